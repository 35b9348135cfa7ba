"""A chunk's attention against plain torch: on the GPU, or by Triton's interpreter."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")

from tests.engine.runners.cuda.bed import distance  # noqa: E402
from tests.engine.runners.cuda.triton_here import HAS_GPU  # noqa: E402
from vivace.engine.runners.cuda.decode.launches import COUNT, POSITION, STATE_WORDS  # noqa: E402
from vivace.engine.runners.cuda.model import reference  # noqa: E402
from vivace.engine.runners.cuda.model.shape import Shape  # noqa: E402
from vivace.engine.runners.cuda.prefill.attention import ChunkAttention, splits_for  # noqa: E402

DEVICE = "cuda" if HAS_GPU else "cpu"
DTYPE = torch.bfloat16 if DEVICE == "cuda" else torch.float16  # the interpreter cannot multiply bf16
PAGES = 20
NAN = float("nan")
CASES = [  # heads, heads of keys, start, count, size; the last one is so large that its keys are not split
    (4, 2, 0, 1, 64),
    (2, 1, 0, 64, 64),
    (4, 2, 37, 50, 64),
    (2, 2, 63, 65, 128),
    (2, 1, 517, 70, 256),
    (6, 2, 100, 150, 1088),
]


@pytest.mark.parametrize(("heads", "kv_heads", "start", "count", "size"), CASES)
def test_chunk_attention(heads: int, kv_heads: int, start: int, count: int, size: int, seed: int) -> None:
    """Causal, from any position, over scattered pages; what lies behind the end is never read or written."""
    assert_attends(reference.ALL, (heads, kv_heads, start, count, size), seed)


TWO_HEADS = (2, 1, 37, 70, 128)  # a program of the interpreter for each row and head: few of them
OF_GPT_OSS = (64, 8, 0, 1023, 1024)  # too many of them


@pytest.mark.parametrize(
    ("case", "window"),
    [(TWO_HEADS, 0), (TWO_HEADS, 40), (CASES[4], 130), (CASES[5], 40)]
    + [(OF_GPT_OSS, 0), (OF_GPT_OSS, 128)] * HAS_GPU,
)
def test_sinks_and_windows(case: tuple[int, int, int, int, int], window: int, seed: int) -> None:
    """A sink takes its share once, however the keys are split; what lies before a window takes none.

    Heads of 64 have no zeros in q and in what is made of them.
    """
    sinks = torch.randn(case[0], generator=torch.Generator().manual_seed(seed)) * 2
    for width in (64, 128):
        assert_attends(reference.View(64**-0.5, window, sinks), case, seed, width)


def assert_attends(
    view: reference.View, case: tuple[int, int, int, int, int], seed: int, width: int = 128
) -> None:
    heads, kv_heads, start, count, size = case
    torch.manual_seed(seed)
    shape = Shape(1, 512, 1792, heads, kv_heads, 1003, 1280, head_width=width)
    length = start + count
    rows = reference.in_rows(torch.randn(2, length, kv_heads, width).to(DTYPE))
    pages = torch.randperm(PAGES)
    kv = torch.full((PAGES, 2, kv_heads, 64, 128), NAN, dtype=DTYPE)
    for at in range(length):
        kv[pages[at // 64], :, :, at % 64] = rows[:, at]
    state = torch.zeros(STATE_WORDS, dtype=torch.int32)
    state[POSITION], state[COUNT] = start, count
    q = torch.randn(size, heads + 2 * kv_heads, width).to(DTYPE)[:, :heads]  # k and v lie between its rows
    q[count:] = NAN
    mixed = torch.full((size, heads * width), NAN, dtype=DTYPE, device=DEVICE)
    attention = ChunkAttention(shape, [size], torch.device(DEVICE))
    attention._parts.fill_(NAN)
    attention._weights.fill_(NAN)
    on_device = view if view.sinks is None else view._replace(sinks=view.sinks.to(DEVICE))
    attention.run(state.to(DEVICE), q.to(DEVICE), kv.to(DEVICE), pages.int().to(DEVICE), mixed, on_device)
    queries = reference.in_rows(q[:count].float())
    wanted = reference.attend(queries, rows[0].float(), rows[1].float(), start, view)
    assert distance(mixed[:count].cpu(), reference.out_of_rows(wanted, width).reshape(count, -1)) < 0.01
    assert bool(mixed[count:].isnan().all())


def test_a_small_chunk_keeps_the_gpu_busy() -> None:
    """Its keys are split; those of a large one, which has blocks enough, are not."""
    assert [splits_for(size, 12) for size in (64, 256, 512, 1024, 4096)] == [16, 4, 2, 1, 1]
