"""Our own gate and up of a prompt against plain torch: on the GPU, or by the emulator."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")

from tests.engine.runners.cuda.bed import distance  # noqa: E402
from tests.engine.runners.cuda.emulator import COMPILER, Emulator  # noqa: E402
from vivace.engine.runners.cuda.decode.launch import Launch  # noqa: E402
from vivace.engine.runners.cuda.decode.plan import Plan, Size  # noqa: E402
from vivace.engine.runners.cuda.kernels.driver import Module  # noqa: E402
from vivace.engine.runners.cuda.model.shape import Shape  # noqa: E402
from vivace.engine.runners.cuda.prefill.fp8 import FP8, row_threads  # noqa: E402
from vivace.engine.runners.cuda.prefill.prompt_feed import prompt_gate_up  # noqa: E402

pytestmark = pytest.mark.skipif(
    not COMPILER and not torch.cuda.is_available(), reason="neither an NVIDIA GPU nor a C++ compiler"
)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CASES = [  # hidden, ffn, tokens, blocks
    (512, 512, 256, 4),  # four steps: three eights of columns are finished in each
    (512, 512, 300, 6),  # tokens end within a tile, columns too
    (2048, 512, 1, 2),  # 16 steps: the last four have nothing to finish
    (2048, 512, 64, 14),  # more blocks than tiles
]


def run(shape: Shape, launch: Launch) -> None:
    plan = Plan(shape, 8, 1)
    (Module(plan) if DEVICE == "cuda" else Emulator(plan)).run(launch)


@pytest.mark.parametrize(("hidden", "ffn", "tokens", "blocks"), CASES)
def test_prompt_gate_up(hidden: int, ffn: int, tokens: int, blocks: int, seed: int) -> None:
    """silu(gate) * up in the units of rows and weights; what lies behind the last token is never written."""
    torch.manual_seed(seed)
    shape = Shape(1, hidden, ffn, 4, 2, 1003, 1280)
    rows, weights = ((torch.randn(n, hidden) * 60).clamp(-448, 448).to(FP8) for n in (tokens, 2 * ffn))
    scale, unit = torch.rand(tokens) * 0.02 + 0.01, 1e-3
    h = torch.full((tokens + 3, ffn), float("nan"), dtype=torch.bfloat16, device=DEVICE)
    given = (rows.to(DEVICE), weights.to(DEVICE), scale.to(DEVICE), unit, h[:tokens])
    run(shape, prompt_gate_up(*given, blocks=blocks))
    gate, up = ((rows.float() @ weights.float().T) * scale[:, None] * unit).split(ffn, dim=1)
    assert distance(h[:tokens].cpu(), torch.nn.functional.silu(gate) * up) < 0.004
    assert bool(h[tokens:].isnan().all())


def test_to_fp8(seed: int) -> None:
    """Every row has the scale that makes its largest number the largest of 8 bits."""
    torch.manual_seed(seed)
    shape, tokens = Shape(1, 512, 1792, 4, 2, 1003, 1280), 5
    sizes = torch.tensor([[1e-4], [1.0], [50.0], [3.0], [0.0]])
    h = (torch.randn(tokens, shape.ffn) * sizes).to(torch.bfloat16)
    h8, scale = torch.zeros(tokens, shape.ffn, dtype=FP8, device=DEVICE), torch.ones(tokens, device=DEVICE)
    size = Size((tokens, 1, 1), row_threads(shape.ffn), 1, 128)
    run(shape, Launch("to_fp8", size, (h.to(DEVICE), h8, scale), overlaps=False))
    assert h8.float().abs().amax(1).tolist() == [448.0] * 4 + [0.0]
    for row in range(tokens):
        assert distance(h8[row].float().cpu() * scale[row].cpu(), h[row]) < 0.04 or not h[row].any()
