"""Our own attention of a prompt against plain torch: on the GPU, or by the emulator."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")

from tests.engine.runners.cuda.bed import distance  # noqa: E402
from tests.engine.runners.cuda.emulator import COMPILER, Emulator  # noqa: E402
from vivace.engine.runners.cuda.decode.launches import COUNT, POSITION, STATE_WORDS  # noqa: E402
from vivace.engine.runners.cuda.decode.plan import Plan  # noqa: E402
from vivace.engine.runners.cuda.kernels.driver import Module  # noqa: E402
from vivace.engine.runners.cuda.model import reference  # noqa: E402
from vivace.engine.runners.cuda.model.shape import Shape  # noqa: E402
from vivace.engine.runners.cuda.prefill.prompt_attention import prompt_attention  # noqa: E402

pytestmark = pytest.mark.skipif(
    not COMPILER and not torch.cuda.is_available(), reason="neither an NVIDIA GPU nor a C++ compiler"
)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PAGES = 20
NAN = float("nan")
CASES = [  # heads, heads of keys, start, count, size
    (4, 2, 0, 1, 64),
    (4, 2, 0, 64, 64),
    (4, 2, 37, 50, 64),
    (4, 4, 63, 65, 128),
    (28, 4, 30, 70, 128),
    (12, 2, 100, 150, 256),
    (4, 1, 60, 580, 640),
]


@pytest.mark.parametrize("is_short", [False, True])
@pytest.mark.parametrize(("heads", "kv_heads", "start", "count", "size"), CASES)
def test_prompt_attention(
    heads: int, kv_heads: int, start: int, count: int, size: int, is_short: bool, seed: int
) -> None:
    """Causal, from any position, over scattered pages; what lies behind the end is never read or written."""
    torch.manual_seed(seed)
    shape, length = Shape(1, 512, 1792, heads, kv_heads, 1003, 1280), start + count
    rows = torch.randn(2, length, kv_heads, 128).to(torch.bfloat16)
    pages = torch.randperm(PAGES)
    kv = torch.full((PAGES, 2, kv_heads, 64, 128), NAN, dtype=torch.bfloat16)
    for at in range(length):
        kv[pages[at // 64], :, :, at % 64] = rows[:, at]
    state = torch.zeros(STATE_WORDS, dtype=torch.int32)
    state[POSITION], state[COUNT] = start, count
    q = torch.randn(size, heads + 2 * kv_heads, 128).to(torch.bfloat16)  # k and v lie between its rows
    q[count:] = NAN
    mixed = torch.full((size, heads * 128), NAN, dtype=torch.bfloat16, device=DEVICE)
    plan = Plan(shape, 16, 1)
    launcher = Module(plan) if DEVICE == "cuda" else Emulator(plan)
    given = (state.to(DEVICE), q.to(DEVICE), kv.to(DEVICE), pages.int().to(DEVICE), mixed)
    launcher.run(prompt_attention(shape, *given, 128**-0.5, is_short=is_short))
    wanted = reference.attend(
        q[:count, :heads].float(), rows[0].float(), rows[1].float(), start, reference.ALL
    )
    assert distance(mixed[:count].cpu(), wanted.reshape(count, -1)) < 0.01
    assert bool(mixed[count:].isnan().all())
