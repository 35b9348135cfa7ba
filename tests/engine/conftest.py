"""Shared by the engine's tests: the runners that compute."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.engine.fixtures import RunnerFixture, cuda_fixture, llama_fixture

settings.register_profile("untimed", deadline=None)  # a busy machine is no fault of the code
settings.load_profile("untimed")


@pytest.fixture(scope="module", params=["llama.cpp", "cuda"])
def fixture(request: pytest.FixtureRequest) -> Iterator[RunnerFixture]:
    """Each runner in turn; a test that takes it must hold for all of them."""
    is_cuda = request.param == "cuda"
    found = cuda_fixture() if is_cuda else llama_fixture(request.getfixturevalue("smol"))
    yield found
    found.close()
