"""Shared by the engine's tests: the runners that compute."""

from collections.abc import Iterator

import pytest

from tests.engine.fixtures import (
    SMALL_CONTEXT_TOKENS,
    RunnerFixture,
    cuda_fixture,
    llama_fixture,
    vulkan_fixture,
)


@pytest.fixture(
    scope="module", params=["llama.cpp", "cuda", pytest.param("vulkan", marks=pytest.mark.thorough)]
)
def fixture(request: pytest.FixtureRequest) -> Iterator[RunnerFixture]:
    """Each runner in turn; a test that takes it must hold for all of them."""
    if request.param == "cuda":
        found = cuda_fixture()
    else:
        make = vulkan_fixture if request.param == "vulkan" else llama_fixture
        found = make(request.getfixturevalue("smol"))
    yield found
    found.close()


@pytest.fixture(params=["llama.cpp", "cuda"])
def small_fixture(request: pytest.FixtureRequest) -> Iterator[RunnerFixture]:
    """Each runner in turn, with a KV that a test can fill in one pass; for tests that read no text."""
    if request.param == "cuda":
        found = cuda_fixture(context_tokens=SMALL_CONTEXT_TOKENS)
    else:
        found = llama_fixture(request.getfixturevalue("shallow"), context_tokens=SMALL_CONTEXT_TOKENS)
    yield found
    found.close()
