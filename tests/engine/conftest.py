"""Shared by the engine's tests: the runners that compute."""

from collections.abc import Iterator

import pytest

from tests.engine.fixtures import (
    SMALL_CONTEXT_TOKENS,
    RunnerFixture,
    cuda_fixture,
    llama_fixture,
    llama_gpu_fixture,
    tiny_fixture,
)
from tests.engine.tiny_models import ARCHITECTURES
from vivace.engine.devices.backend_files import NAMES

OF_A_KIND = ("gemma3", "gpt-oss", "qwen35", "mamba2")  # memories that cannot be cut everywhere
OTHERS = tuple(name for name in ARCHITECTURES if name not in OF_A_KIND)
ON_GPUS = {f"llama.cpp {kind}": kind for kind in NAMES}


@pytest.fixture(
    scope="module",
    params=[
        "llama.cpp",
        *OF_A_KIND,
        "cuda",
        *(pytest.param(name, marks=pytest.mark.thorough) for name in (*OTHERS, *ON_GPUS)),
    ],
)
def fixture(request: pytest.FixtureRequest) -> Iterator[RunnerFixture]:
    """Each runner in turn; a test that takes it must hold for all of them."""
    if request.param == "cuda":
        found = cuda_fixture()
    elif request.param in ARCHITECTURES:
        folder = request.getfixturevalue("tmp_path_factory").mktemp("tiny")
        found = tiny_fixture(request.param, folder)
    elif kind := ON_GPUS.get(request.param):
        found = llama_gpu_fixture(request.getfixturevalue("smol"), kind)
    else:
        found = llama_fixture(request.getfixturevalue("smol"))
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
