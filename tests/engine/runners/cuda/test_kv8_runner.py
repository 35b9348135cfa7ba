"""A runner with its KV in 8 bits: plain torch's text with the same rounding, saved, forked and drafted."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")
np = pytest.importorskip("numpy")
pytest.importorskip("msgspec", reason="the engine's packages are not installed")

from tests.engine.fixtures import cuda_fixture  # noqa: E402
from tests.engine.runners.cuda.bed import distance  # noqa: E402
from tests.engine.runners.cuda.emulator import COMPILER, Emulator  # noqa: E402
from tests.engine.runners.cuda.test_runner import SHAPE, Letters, some  # noqa: E402
from vivace.engine.runners.base import HeldKV, SamplingSpec, Span  # noqa: E402
from vivace.engine.runners.cuda.kernels.driver import Module  # noqa: E402
from vivace.engine.runners.cuda.kv.pool import rounded  # noqa: E402
from vivace.engine.runners.cuda.load import GpuOptions, kv_bytes, with_cells  # noqa: E402
from vivace.engine.runners.cuda.model import reference  # noqa: E402
from vivace.engine.runners.cuda.model.shape import QWEN_CODER_1_5B  # noqa: E402
from vivace.engine.runners.cuda.runner import CudaRunner  # noqa: E402
from vivace.engine.runners.cuda.weights.build import build_model, random_weights  # noqa: E402


def make_runner(bits: int = 8, kv_bits: int = 8) -> CudaRunner:
    """Small, with plain torch in the place of the kernels where there is no GPU."""
    runner = cuda_fixture(bits, kv_bits=kv_bits).runner
    assert isinstance(runner, CudaRunner)
    return runner


def go_on(runner: CudaRunner, seq: int, text: list[int], count: int, steps_ahead: int = 2) -> list[int]:
    """So many greedy tokens, with steps in flight."""
    said: list[int] = []
    while len(said) < count:
        said += runner.decode(
            Span(seq, len(text) - 1 + len(said), [(text + said)[-1]]), SamplingSpec(), steps_ahead
        )
    return said


@pytest.mark.skipif(
    not COMPILER and not torch.cuda.is_available(), reason="neither an NVIDIA GPU nor a C++ compiler"
)
@pytest.mark.parametrize("bits", [8, 16])
def test_prefill_then_passes_then_stream(bits: int, seed: int) -> None:
    """A prompt in two chunks, a pass over three tokens and a stream: plain torch's, rounded the same way."""
    is_real = torch.cuda.is_available()
    device = "cuda" if is_real else "cpu"
    plain = random_weights(SHAPE, seed, device)
    model, dense = build_model(SHAPE, plain, bits, device, 512)
    runner = CudaRunner(
        "test", model, dense, Letters(), bits=bits, kv_bits=8, context_tokens=512,
        make_launcher=Module if is_real else Emulator, blocks=132 if is_real else 5,
    )  # fmt: skip
    text = some(90, seed)
    runner.forward([Span(7, 0, text[:1])])  # has the first page
    runner.forward([Span(0, 0, text[:50])])
    second = runner.forward([Span(0, 50, text[50:87], want=1)]).copy()
    few = runner.forward([Span(0, 87, text[87:], want=3)]).copy()
    said = go_on(runner, 0, text, 3, steps_ahead=1)
    whole = torch.tensor(text + said[:-1], device=device)
    wanted = reference.forward(SHAPE, plain, whole, model.rotation, rounded).cpu()
    assert distance(torch.tensor(second), wanted[86:87]) < 0.05
    assert distance(torch.tensor(few), wanted[87:90]) < 0.05
    for row, token in zip(wanted[89:], said, strict=True):
        assert row[token] > row.max() - 0.2  # the weights are rounded here, and not there


def test_saved_kv_goes_on_with_the_same_tokens() -> None:
    """What `save` wrote, `load` gives to another sequence: the same tokens, the same logits."""
    runner = make_runner()
    text = list(b"a text of some length that is kept, and that fills more than one page of the KV.")
    runner.forward([Span(0, 0, text[:-1])])
    state = runner.save(0)
    said = go_on(runner, 0, text, 20)
    runner.load(3, state)
    runner.trim(3, len(text) - 1)
    assert go_on(runner, 3, text, 20) == said
    rows = [runner.forward([Span(seq, len(text) - 1, text[-1:], want=1)]).copy() for seq in (0, 3)]
    assert np.array_equal(*rows)


def held(runner: CudaRunner, state: bytes) -> HeldKV:
    """Put bytes into memory of the runner's own, as they come from a file."""
    found, at = runner.allocate(len(state)), 0
    for piece in found.pieces():
        piece[:] = state[at : at + len(piece)]
        at += len(piece)
    return found


@pytest.mark.parametrize("kv_bits", [8, 16])
def test_a_save_in_one_format_never_loads_in_another(kv_bits: int) -> None:
    """Not by its name, and not by its bytes, even where their number would do."""
    runner, other = make_runner(kv_bits=kv_bits), make_runner(kv_bits=24 - kv_bits)
    assert runner.info.kv_format != other.info.kv_format
    pages = 9 if kv_bits == 16 else 16  # as many bytes in either format
    tokens = pages * 64
    runner.forward([Span(0, 0, [65] * 40)])
    short = b"".join(runner.save(0).pieces())
    long = short[:16] + short[16:] * pages
    runner.load(1, held(runner, long))
    runner.trim(1, 0)
    for state in (short, long, long[16:], long[:16], b""):
        with pytest.raises(ValueError, match="no KV"):
            other.load(1, held(other, state))
    other.forward([Span(1, 0, [65] * tokens)])  # nothing was taken by the attempts


def test_a_fork_shares_pages_and_both_go_on() -> None:
    """After a fork each side writes its own text; the other's logits do not change by a bit."""
    runner = make_runner()
    text = list(b"one beginning for two, long enough to end in the middle of its second page.")
    runner.forward([Span(0, 0, text)])
    runner.share(0, 5, 66)
    last = Span(0, len(text) - 1, text[-1:], want=1)
    before = runner.forward([last]).copy()
    runner.forward([Span(5, 66, [70, 71], want=1)])
    assert np.array_equal(runner.forward([last]), before)


def test_drafts_do_not_change_the_text() -> None:
    """A draft that is right in part: the tokens are those of single steps."""
    runner = make_runner()
    text = list(b"a text to go on from: ")
    for seq in (0, 1):
        runner.forward([Span(seq, 0, text[:-1])])
    alone = go_on(runner, 0, text, 24)
    said: list[int] = []
    while len(said) < 24:
        draft = [*alone[len(said) : len(said) + 5], 99]
        said += runner.decode(Span(1, len(text) - 1 + len(said), [(text + said)[-1], *draft]), SamplingSpec())
    assert said[:24] == alone


def test_memory_that_is_asked_for() -> None:
    """8 bits: 9/16 of the pages, and one layer of the longest session in bf16 beside them."""
    shape = QWEN_CODER_1_5B
    assert kv_bytes(shape, 131_072, 0, 16) == 131_072 * 28_672
    assert kv_bytes(shape, 131_072, 0, 8) == 131_072 * 28_672 * 9 // 16 + 32_768 * 1024
    assert kv_bytes(shape, 131_072, 131_072, 8) == 131_072 * (28_672 * 9 // 16 + 1024)
    assert kv_bytes(shape, 4096, 0, 8) == 4096 * (28_672 * 9 // 16 + 1024)


def test_cells_that_nobody_chose() -> None:
    """Half of what is free holds them, within bounds, in whole pages; what was chosen stays."""
    shape = QWEN_CODER_1_5B
    assert with_cells(GpuOptions(4096), shape, 1 << 40).context_tokens == 4096
    assert with_cells(GpuOptions(0), shape, 1 << 40).context_tokens == 524_288
    assert with_cells(GpuOptions(0), shape, 0).context_tokens == 16_384
    some = with_cells(GpuOptions(0), shape, 5 << 30)
    assert some.context_tokens % 64 == 0
    assert 0.49 < kv_bytes(shape, some.cells, 0, 16) / (5 << 30) <= 0.5
