"""Shared by the engine's tests: the runners that compute."""

from collections.abc import Iterator

import pytest

from tests.engine.fixtures import House, cuda_house, llama_house


@pytest.fixture(scope="module", params=["llama.cpp", "cuda"])
def house(request: pytest.FixtureRequest) -> Iterator[House]:
    """Each runner in turn; a test that takes it must hold for all of them."""
    is_cuda = request.param == "cuda"
    found = cuda_house() if is_cuda else llama_house(request.getfixturevalue("smol"))
    yield found
    found.close()
