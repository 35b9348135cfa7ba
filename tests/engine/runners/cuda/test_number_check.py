"""What a runner looks at before it serves anybody: whether its kernels leave numbers."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")
pytest.importorskip("msgspec", reason="the engine's packages are not installed")

from tests.engine.fixtures import cuda_fixture  # noqa: E402
from vivace.engine.runners.base import Span  # noqa: E402
from vivace.engine.runners.cuda.kv.pool import read_pages  # noqa: E402
from vivace.engine.runners.cuda.runner import CudaRunner  # noqa: E402

PROMPT, BEHIND = 1000, 20  # tokens, of what is looked at


@pytest.fixture(params=[16, 8], ids=["KV in 16 bits", "in 8"])
def runner(request: pytest.FixtureRequest) -> CudaRunner:
    made = cuda_fixture(8, kv_bits=request.param).runner
    assert isinstance(made, CudaRunner)
    return made


def spoil(runner: CudaRunner, layer: int, at: int, value: float) -> Callable[..., Any]:
    """Return the pass of a prompt with a kernel that goes wrong at one place."""
    read = runner._prefill.run

    def run(*arguments: Any) -> Any:
        x = read(*arguments)
        table = runner._pages.table(0)
        if at // 64 < len(table):
            page = runner._kv[layer, table[at // 64], 1, 0]
            if page.dtype == torch.uint8:  # the scales of its rows are behind them, 8 each
                page[64:].flatten().view(torch.bfloat16)[at % 64 * 8] = value
            else:
                page[at % 64, 5] = value
        return x

    return run


def test_a_sound_runner_is_left_as_it_was(runner: CudaRunner) -> None:
    """It passes, and no page is taken."""
    free = runner._pages.free_pages
    runner.check_numbers()
    assert runner._pages.free_pages == free
    assert runner.forward([Span(0, 0, [1, 2, 3], want=1)]).shape == (1, runner.info.vocab_size)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("at", [0, 99, PROMPT - 1])
def test_what_is_no_number_is_found_wherever_it_is(runner: CudaRunner, at: int, value: float) -> None:
    """In the last layer too, whose KV says nothing to any other."""
    layer = len(runner._kv) - 1
    runner._prefill.run = spoil(runner, layer, at, value)  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match=rf"no number in the KV \(layer {layer}, token {at} of"):
        runner.check_numbers()


def test_what_lies_behind_the_end_may_be_anything(runner: CudaRunner) -> None:
    """A page that was used before has old bytes behind a sequence's last token."""
    runner._prefill.run = spoil(runner, 0, PROMPT + BEHIND, float("nan"))  # type: ignore[method-assign]
    runner.check_numbers()
    assert not read_pages(runner._kv).isfinite().all(), "it was there, and the check has passed over it"
