"""llama.cpp on a GPU: says what the CPU says, stops between passes, and exchanges parked KV with it.

Needs a build for CUDA or Vulkan (`vivace extras add cuda --llama-cpp`, `vivace extras add vulkan`) and a
device, which for Vulkan may be Mesa's software one.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.engine.fixtures import (
    NEAR,
    RunnerFixture,
    divergences,
    llama_fixture,
    llama_gpu_fixture,
    widen_model,
)
from vivace.config import load_settings
from vivace.engine.devices.backend_files import NAMES, BackendName, find_built
from vivace.engine.loop.opening import open_runner
from vivace.engine.runners.base import Span
from vivace.engine.wire.frames import Generate, Interrupt, Open
from vivace.engine.wire.job import Job

PROMPT = "Write the numbers from one to ten as words."
# The most that a logit may differ from the CPU's, of -25 to 41, with weights in 32 bits on both.
APART = 0.3
# Of the probabilities, with weights as they are, from those in 32 bits: 0.0029 on the CPU. Each device rounds
# what it multiplies in its own way.
DIVERGENCE = 0.02


@pytest.fixture(scope="module")
def wide(smol: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model with weights in 32 bits: with those as they are two devices round to 8 bits in two ways."""
    return widen_model(smol, tmp_path_factory.mktemp("wide") / "wide.gguf")


@pytest.fixture(scope="module")
def on_cpu(wide: Path) -> Iterator[RunnerFixture]:
    fixture = llama_fixture(wide)
    yield fixture
    fixture.close()


@pytest.fixture(scope="module", params=NAMES)
def kind(request: pytest.FixtureRequest) -> BackendName:
    name: BackendName = request.param
    return name


@pytest.fixture(scope="module")
def on_gpu(kind: BackendName, wide: Path) -> Iterator[RunnerFixture]:
    fixture = llama_gpu_fixture(wide, kind, context_tokens=512)
    yield fixture
    fixture.close()


def test_it_says_where_it_is(on_gpu: RunnerFixture) -> None:
    """The whole model is there, and a pass cannot be stopped in the middle."""
    info = on_gpu.runner.info
    assert info.device == on_gpu.name
    assert info.place.startswith("llama.cpp on ")
    assert info.place.endswith(f"({on_gpu.name}:0), all layers")
    assert not info.can_stop


def test_it_is_chosen_by_itself(on_gpu: RunnerFixture, smol: Path) -> None:
    """Nothing names a device: what was built is found, loaded and used.

    No reason is given for less; on a GPU that has our own kernels, that they do not know this model.
    """
    cache = load_settings().cache_dir
    if on_gpu.name != next(iter(find_built(cache))):
        pytest.skip("CUDA comes first here")
    job = Job("smol", str(smol), context_tokens=64, gpu_context_tokens=64, backend_dir=str(cache))
    opened = open_runner(job)
    assert opened.runner.info.device == on_gpu.name
    assert not opened.why_no_gpu or "cannot run on the GPU: its heads" in opened.why_no_gpu
    assert opened.runner.forward([Span(0, 0, [1], want=1)]).shape == (1, opened.runner.info.vocab_size)
    opened.runner.close()


def test_logits_are_those_of_the_cpu(on_gpu: RunnerFixture, on_cpu: RunnerFixture) -> None:
    """Within rounding, for every row of a prompt; so the likeliest token is the same or a near tie."""
    tokens = on_gpu.prompt(PROMPT)
    span = Span(0, 0, tokens, want=len(tokens))
    rows = np.array(on_gpu.runner.forward([span]))
    expected = np.array(on_cpu.runner.forward([span]))
    on_gpu.runner.trim(0, 0)
    on_cpu.runner.trim(0, 0)
    assert np.abs(rows - expected).max() < APART
    for row, other in zip(rows, expected, strict=True):
        assert other.max() - other[row.argmax()] < NEAR


def test_weights_as_they_are_say_nearly_the_same(
    kind: BackendName, on_cpu: RunnerFixture, smol: Path
) -> None:
    """What a device rounds to 8 bits while it multiplies hardly moves the probabilities."""
    as_it_is = llama_gpu_fixture(smol, kind, context_tokens=512)
    tokens = on_cpu.prompt(PROMPT)
    span = Span(0, 0, tokens, want=len(tokens))
    found, exact = (np.array(each.runner.forward([span])) for each in (as_it_is, on_cpu))
    on_cpu.runner.trim(0, 0)
    as_it_is.close()
    assert divergences(found, exact).mean() < DIVERGENCE


def test_an_engine_on_it_says_what_one_on_the_cpu_says(on_gpu: RunnerFixture, on_cpu: RunnerFixture) -> None:
    """Greedy tokens are the same up to a near tie; an interrupt ends a turn, which then goes on."""
    prompt = on_gpu.prompt(PROMPT)
    expected = on_cpu.desk()
    expected.run(Open("s"), Generate("s", "t", list(prompt), max_tokens=16))
    desk = on_gpu.desk()
    desk.give(Open("s"), Generate("s", "t", list(prompt), max_tokens=16))
    while len(desk.tokens("t")) < 4:
        desk.engine.step()
    desk.run(Interrupt("t"))
    said = desk.tokens("t")
    desk.run(Generate("s", "u", [], max_tokens=16 - len(said)))
    on_cpu.assert_same(prompt, said + desk.tokens("u"), expected.tokens("t"))


def test_parked_kv_goes_from_one_to_the_other(on_gpu: RunnerFixture, on_cpu: RunnerFixture) -> None:
    """Saved on the GPU and loaded there or on the CPU, a sequence goes on as if it had stayed."""
    tokens = on_gpu.prompt(PROMPT)
    assert on_gpu.runner.info.kv_format == on_cpu.runner.info.kv_format
    on_gpu.runner.forward([Span(0, 0, tokens[:-1])])
    state = on_gpu.runner.save(0)
    (stayed,) = np.array(on_gpu.runner.forward([Span(0, len(tokens) - 1, tokens[-1:], want=1)]))
    for fixture in (on_gpu, on_cpu):
        fixture.runner.trim(0, 0)
        fixture.runner.load(0, state)  # on the GPU into the same cells: sums in the same order, the same bits
        (row,) = np.array(fixture.runner.forward([Span(0, len(tokens) - 1, tokens[-1:], want=1)]))
        fixture.runner.trim(0, 0)
        assert np.abs(row - stayed).max() < (1e-6 if fixture is on_gpu else APART)
