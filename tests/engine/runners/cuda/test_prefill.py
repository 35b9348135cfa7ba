"""Chunks of a prompt: each kernel against plain torch, and both ways through a whole model."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis.strategies import integers

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")

from tests.engine.runners.cuda.bed import Bed, distance  # noqa: E402
from tests.engine.runners.cuda.emulator import COMPILER, Emulator  # noqa: E402
from vivace.engine.runners.base import Stopped  # noqa: E402
from vivace.engine.runners.cuda.decode.launch import Launch  # noqa: E402
from vivace.engine.runners.cuda.decode.plan import Size  # noqa: E402
from vivace.engine.runners.cuda.kernels.driver import Module  # noqa: E402
from vivace.engine.runners.cuda.model import reference  # noqa: E402
from vivace.engine.runners.cuda.model.shape import Shape  # noqa: E402
from vivace.engine.runners.cuda.prefill import chunks  # noqa: E402
from vivace.engine.runners.cuda.prefill.chunks import SIZES, TAIL, chunk_at  # noqa: E402
from vivace.engine.runners.cuda.prefill.fp8 import FP8, row_threads  # noqa: E402
from vivace.engine.runners.cuda.runner import prefill_class  # noqa: E402
from vivace.engine.runners.cuda.weights.build import Dense  # noqa: E402

pytestmark = pytest.mark.skipif(
    not COMPILER and not torch.cuda.is_available(), reason="neither an NVIDIA GPU nor a C++ compiler"
)
SHAPE = Shape(1, 512, 1792, 4, 2, 1003, 1280)
CHUNKS = Shape(5, 512, 512, 4, 2, 320, 640)
NAN = float("nan")
CLOSE = 0.01


def make(seed: int, shape: Shape = SHAPE) -> Bed:
    bed = Bed(shape, 16, 1, seed)
    bed.poison()
    return bed


def poisoned(bed: Bed, *size: int) -> "torch.Tensor":  # type: ignore[name-defined]
    return torch.full(size, NAN, device=bed.device).to(torch.bfloat16)


def run(bed: Bed, kernel: str, size: Size, *arguments: object) -> None:
    bed.run_launch(Launch(kernel, size, arguments, overlaps=False))  # type: ignore[arg-type]
    bed.finish()


@given(count=integers(1, 200))
def test_the_last_tokens_come_first(count: int) -> None:
    """Rows of x and of q, k, v, and where they stand; fewer than there is room for stay where they are."""
    bed = make(0)
    bed.at(50, count)
    x = torch.randn(200, 512, device=bed.device)
    rows = torch.randn(200, 8 * 128, device=bed.device).to(torch.bfloat16)
    before, skipped = (x.clone(), rows.clone()), max(0, count - TAIL)
    state = torch.zeros_like(bed.buffers.state)
    blocks = Size((4, 1, 1), 64, 1, 0)  # 512 / 4 + 1024 / 8 words of 16 bytes
    run(bed, "keep_tail", blocks, bed.buffers.state, state, x, rows, TAIL)
    real = count - skipped
    for found, was in zip((x, rows), before, strict=True):
        assert torch.equal(found[:real], was[skipped:count])
        assert torch.equal(found[TAIL:], was[TAIL:])
    assert state[:2].tolist() == [50 + skipped, real]


def test_place(seed: int) -> None:
    """q and k are turned, k and v go to their pages; rows behind the last token stay as they are."""
    bed = make(seed)
    start, count = 50, 30
    bed.at(start, count)
    rows = torch.randn(count + 5, 8, 128, device=bed.device).to(torch.bfloat16)
    before = rows.clone()
    turned = reference.rotate(rows[:count, :6].float(), bed.model.rotation[start : start + count])
    place = (bed.buffers.state, rows, bed.model.rotation, bed.buffers.pages, bed.buffers.kv[0])
    run(bed, "place", Size((count + 5, 1, 1), 256, 1, 0), *place)
    assert distance(rows[:count, :6], turned) < CLOSE
    assert torch.equal(rows[count:], before[count:])
    assert torch.equal(rows[:, 6:], before[:, 6:])
    assert distance(bed.kv_rows(0, start + count)[start:], turned[:, 4:]) < CLOSE
    assert torch.equal(bed.kv_rows(1, start + count)[start:], rows[:count, 6:].float())
    assert int((~bed.buffers.kv.isnan()).sum()) == 2 * count * bed.shape.kv_heads * 128


@pytest.mark.parametrize("has_delta", [True, False])
def test_add_norm(has_delta: bool, seed: int) -> None:
    """The residual is added in fp32 and in its unit, and the norm is of the sum."""
    bed = make(seed)
    x = torch.randn(3, 512, device=bed.device) * 40
    delta = torch.randn(3, 512, device=bed.device).to(torch.bfloat16)
    rows = torch.rand(3, device=bed.device)
    y, wanted = poisoned(bed, 3, 512), x.clone()
    if has_delta:
        wanted += delta.float() * (rows[:, None] * 0.7)
    gain = bed.dense[0].ffn_gain
    added = (delta, int(has_delta), rows, 0.7)
    run(bed, "add_norm", Size((3, 1, 1), 256, 1, 32), x, *added, gain, y, 1e-6)
    assert torch.allclose(x, wanted, atol=1e-5)
    assert distance(y, reference.norm(wanted, gain, 1e-6)) < CLOSE


def test_silu_product(seed: int) -> None:
    """silu(gate) · up, for a number of tokens that fills no block."""
    bed = make(seed)
    rows = (torch.randn(5, 2 * 1792, device=bed.device) * 3).to(torch.bfloat16)
    h = poisoned(bed, 5, 1792)
    run(bed, "silu_product", Size((-(-5 * 1792 // 8 // 256), 1, 1), 256, 1, 0), rows, h, 5)
    gate, up = rows.float().chunk(2, dim=1)
    assert distance(h, torch.nn.functional.silu(gate) * up) < CLOSE


def test_add_norm_fp8(seed: int) -> None:
    """The residual is added; the norm comes as 8-bit floats with a scale a row, rounded as torch rounds."""
    bed = make(seed)
    x = torch.randn(3, 512, device=bed.device) * torch.tensor([[1e-4], [1.0], [4000.0]], device=bed.device)
    delta = torch.randn(3, 512, device=bed.device).to(torch.bfloat16) * 1e-4
    y8 = poisoned(bed, 3, 512).to(FP8)
    scale, wanted = torch.full((3, 1), NAN, device=bed.device), x + delta.float()
    gain = bed.dense[0].ffn_gain
    run(bed, "add_norm_fp8", Size((3, 1, 1), 256, 1, 64), x, delta, gain, y8, scale, 1e-6)
    assert torch.allclose(x, wanted)
    y = reference.norm(wanted, gain, 1e-6)
    assert distance(y8.float() * scale, y) < 0.04
    step = y / (y.abs().amax(1, keepdim=True) / 448)
    assert float((y8.float() == step.to(FP8).float()).float().mean()) > 0.99  # but for ties


def test_silu_product_fp8(seed: int) -> None:
    """silu(gate) · up, both in their row's unit, as 8-bit floats with another; a row of zeros stays one."""
    bed = make(seed)
    rows = (torch.randn(4, 2 * 1792, device=bed.device) * 3).to(torch.bfloat16)
    rows[2] = 0.0
    h8, scale = poisoned(bed, 4, 1792).to(FP8), torch.rand(4, 1, device=bed.device) + 0.5
    gate, up = (rows.float() * scale * 0.3).chunk(2, dim=1)
    run(bed, "silu_product_fp8", Size((4, 1, 1), row_threads(1792), 1, 128), rows, h8, scale, 0.3)
    assert distance(h8.float() * scale, torch.nn.functional.silu(gate) * up) < 0.04
    assert not h8[2].float().any()


def test_read_tokens(seed: int) -> None:
    """Each token's row of the table."""
    bed = make(seed)
    x = torch.full((4, 512), NAN, device=bed.device)
    tokens = torch.tensor([7, 1002, 0, 7], dtype=torch.int32, device=bed.device)
    run(bed, "read_tokens", Size((4, 1, 1), 256, 1, 0), tokens, bed.model.embedding, x)
    assert torch.equal(x, bed.model.embedding[tokens.long()].float())


@given(position=integers(0, 1 << 20))
def test_chunks_get_smaller_as_the_past_gets_longer(position: int) -> None:
    """So that a question is asked as often: more tokens at once only where fewer keys are before them."""
    size = chunk_at(position, SIZES)
    assert size in SIZES
    assert size >= chunk_at(position + 4096, SIZES)


@pytest.mark.parametrize("count", [1, 65, 128])
@pytest.mark.parametrize("way", ["bf16", "fp8"])
def test_a_chunk_in_teams(way: str, count: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the products of four warps or without: the same logits, and the same KV."""
    bed = Bed(CHUNKS, 16, 1, seed)
    text = torch.randint(0, CHUNKS.vocab, (count,), generator=torch.Generator().manual_seed(seed)).tolist()
    monkeypatch.setattr(chunks, "LEAST_IN_TEAMS", 1)
    found, kept = [], []
    for has_teams in (False, True):
        monkeypatch.setattr(chunks, "has_team_products", lambda has=has_teams: has)
        bed.buffers.kv.zero_()
        launcher = (Module if bed.device == "cuda" else Emulator)(bed.plan)
        reader = prefill_class(CHUNKS, way)(bed.model, bed.dense, bed.buffers.kv, bed.buffers.pages, launcher)
        found.append(logits(bed, reader.run(text, 0, 1, None)))
        kept.append(bed.kv_rows(0, count))
    close = 0.1 if way == "fp8" else CLOSE  # what is rounded to 8 bits was rounded to 16 before, or was not
    assert distance(*found) < close
    assert distance(*kept) < close


def logits(bed: Bed, x: "torch.Tensor") -> "torch.Tensor":  # type: ignore[name-defined]
    """What the head makes of a chunk's last rows."""
    return reference.norm(x, bed.model.final_gain, bed.shape.norm_epsilon) @ bed.model.embedding.float().T


def without_matrices(dense: Dense) -> Dense:
    none = dense.qkv[:0]
    return dense._replace(qkv=none, out=none, gate_up=none, down=none)


@pytest.mark.parametrize(
    ("way", "shape"),
    [
        pytest.param("bf16", CHUNKS, id="bf16"),
        pytest.param("fp8", CHUNKS, id="fp8"),
        pytest.param("bf16", replace(CHUNKS, qkv_bias=False, qk_norm=True), id="Qwen3"),
        pytest.param("packed", replace(CHUNKS, ffn=1408), id="packed"),
    ],
)
def test_a_prompt_in_chunks(way: str, shape: Shape, seed: int) -> None:
    """Two chunks of odd sizes: the last rows' logits are those of the whole text in plain torch."""
    bed = Bed(shape, 16, 1, seed)
    bed.buffers.kv.zero_()
    launcher = (Module if bed.device == "cuda" else Emulator)(bed.plan)
    dense = [without_matrices(each) for each in bed.dense] if way == "packed" else bed.dense
    prefill = prefill_class(shape, way)(bed.model, dense, bed.buffers.kv, bed.buffers.pages, launcher)
    prefill.warm_up()
    text = torch.randint(0, shape.vocab, (150,), generator=torch.Generator().manual_seed(seed)).tolist()
    assert prefill.run(text[:70], 0, 0, None).shape == (0, shape.hidden)
    questions = iter([False, True])
    with pytest.raises(Stopped):
        prefill.run([1] * 80, 70, 1, lambda: next(questions))
    found = logits(bed, prefill.run(text[70:], 70, 2, None))
    tokens = torch.tensor(text, device=bed.device)
    wanted = reference.forward(shape, bed.plain, tokens, bed.model.rotation)[-2:]
    assert distance(found, wanted) < (0.1 if way == "fp8" else 0.03)


def test_layers_in_8_bit_floats_are_kept_once(seed: int) -> None:
    """Gate, up and down are not in bf16 besides; what is kept already is kept as it is."""
    dense, keep = make(seed).dense[0], prefill_class(SHAPE, "fp8").keep
    kept = keep(dense)
    assert [each.dtype for each in (kept.qkv, kept.out)] == [torch.bfloat16] * 2
    for found, unit, wanted in zip(
        (kept.gate_up, kept.down), kept.units, (dense.gate_up, dense.down), strict=True
    ):
        assert found.dtype == FP8
        assert distance(found.float() * unit, wanted.float()) < 0.04
    assert keep(kept) is kept


def test_a_packed_prefill_keeps_no_matrix(seed: int) -> None:
    kept = prefill_class(SHAPE, "packed").keep(make(seed).dense[0])
    assert [len(each) for each in (kept.qkv, kept.out, kept.gate_up, kept.down)] == [0] * 4
