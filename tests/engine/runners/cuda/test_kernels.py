"""Every kernel against plain torch: fresh random inputs, odd sizes, poisoned outputs."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")

from tests.engine.runners.cuda.bed import Bed, distance  # noqa: E402
from tests.engine.runners.cuda.emulator import COMPILER  # noqa: E402
from vivace.engine.runners.cuda.model import reference  # noqa: E402
from vivace.engine.runners.cuda.model.shape import Shape  # noqa: E402
from vivace.engine.runners.cuda.weights.layout import gate_up_pairs, rotation_pairs  # noqa: E402

pytestmark = pytest.mark.skipif(
    not COMPILER and not torch.cuda.is_available(), reason="neither an NVIDIA GPU nor a C++ compiler"
)
SMALL = Shape(1, 512, 1792, 4, 2, 1003, 1280)  # 1003: the last tile of the head is not full
CLOSE = 6e-3  # bf16 operands
FORMATS = pytest.mark.parametrize(("bits", "tokens"), [(8, 1), (16, 1), (8, 3), (16, 3), (8, 16)])


QWEN3 = Shape(1, 512, 1792, 8, 2, 1003, 1280, qkv_bias=False, qk_norm=True)  # that of test_whole_pass


def make(bits: int, tokens: int, seed: int, shape: Shape = SMALL) -> tuple[Bed, int]:
    """A bed whose pass is the next power of two; `tokens` of it are real."""
    size = next(each for each in (1, 2, 4, 8, 16) if each >= tokens)
    return Bed(shape, bits, size, seed), size


@FORMATS
@pytest.mark.parametrize("family", [SMALL, QWEN3], ids=["Qwen2", "Qwen3"])
def test_qkv(bits: int, tokens: int, family: Shape, seed: int) -> None:
    """Norms, product, bias and rotation; q in its buffer, k and v in their page, and nowhere else."""
    bed, _ = make(bits, tokens, seed, family)
    bed.poison()
    bed.buffers.x.normal_()
    start = 61  # crosses a page
    bed.at(start, tokens)
    bed.launch("qkv")
    dense, shape = bed.dense[0], bed.shape
    y = reference.norm(bed.buffers.x[:tokens], dense.attention_gain, shape.norm_epsilon)
    weight = bed.rows(bed.model.layers[0].qkv, shape.hidden, rotation_pairs(shape.qkv_rows // 128))
    rows = (y @ weight.T + dense.bias).reshape(tokens, -1, 128)
    table = bed.model.rotation[start : start + tokens]
    q, k, v = rows.split([shape.heads, shape.kv_heads, shape.kv_heads], dim=1)
    if shape.qk_norm:
        q, k = (
            reference.norm(part, gain, shape.norm_epsilon)
            for part, gain in zip((q, k), dense.head_gain, strict=True)
        )
    q, k = (reference.rotate(part, table) for part in (q, k))
    assert distance(bed.buffers.q[:tokens], q) < CLOSE
    assert distance(bed.kv_rows(0, start + tokens)[start:], k) < CLOSE
    assert distance(bed.kv_rows(1, start + tokens)[start:], v) < CLOSE
    assert int((~bed.buffers.kv.isnan()).sum()) == 2 * tokens * shape.kv_heads * 128


@pytest.mark.parametrize(
    ("tokens", "start"), [(1, 0), (1, 63), (1, 200), (3, 62), (16, 130), (1, 1100), (2, 1055)]
)
@pytest.mark.parametrize("parts", [1, 2])
def test_attention(tokens: int, start: int, parts: int, seed: int) -> None:
    """Causal attention over scattered pages; what lies behind the end is never read."""
    bed, _ = make(8, tokens, seed)
    bed.parts = parts
    bed.poison()
    bed.fill_kv(start + tokens)
    bed.buffers.q.normal_()
    bed.at(start, tokens)
    bed.launch("attention")
    found = bed.combine_parts()
    wanted = reference.attend(
        bed.buffers.q[:tokens].float(), bed.kv_rows(0, start + tokens), bed.kv_rows(1, start + tokens), start
    )
    assert distance(found[:tokens], wanted) < CLOSE


@pytest.mark.parametrize(
    ("tokens", "start", "parts", "tiles"), [(16, 130, 1, 2), (9, 1010, 2, 1), (13, 1140, 1, 3)]
)
def test_attention_of_a_draft(tokens: int, start: int, parts: int, tiles: int, seed: int) -> None:
    """Rows that share what they read come out as those that do not, to the bit; padding is not written."""
    found = []
    for kernels, tuning in (
        (["attention"], {"draft_tiles": 0}),
        (["draft_attention", "merge_ranks"], {"draft_tiles": tiles}),
    ):
        bed = Bed(SMALL, 8, 16, seed, parts=parts, tuning=tuning)
        bed.poison()
        bed.fill_kv(start + tokens)
        bed.buffers.q.normal_()
        bed.at(start, tokens)
        for kernel in kernels:
            bed.launch(kernel)
        found.append([each.view(torch.int32) for each in (bed.buffers.part, bed.buffers.part_stats)])
    (part, stats), (shared_part, shared_stats) = found
    assert torch.equal(shared_part[:parts, :tokens], part[:parts, :tokens])
    if parts > 1:
        assert torch.equal(shared_stats[:parts, :tokens, :, :2], stats[:parts, :tokens, :, :2])
    assert shared_part[:, tokens:].view(torch.float32).isnan().all()


@FORMATS
@pytest.mark.parametrize("parts", [1, 2, 4, 8])
def test_out_projection(bits: int, tokens: int, parts: int, seed: int) -> None:
    """The parts are combined, multiplied and added to x; an empty one counts for nothing."""
    bed, size = make(bits, tokens, seed)
    bed.parts = parts
    bed.poison()
    b = bed.buffers
    b.x.normal_()
    b.part[:parts].normal_()
    if parts > 1:
        b.part_stats[:parts] = torch.rand_like(b.part_stats[:parts]) + 0.5
        b.part_stats[parts - 1, ..., 0], b.part_stats[parts - 1, ..., 1] = -1e30, 0.0
    before = b.x.clone()
    bed.launch("out_projection")
    wanted = bed.combine_parts().reshape(size, -1) @ bed.rows(bed.model.layers[0].out, 512).T
    assert distance((b.x - before)[:tokens], wanted[:tokens]) < CLOSE


@FORMATS
def test_gate_up(bits: int, tokens: int, seed: int) -> None:
    """silu(gate) · up of the normalised x."""
    bed, _ = make(bits, tokens, seed)
    bed.poison()
    bed.buffers.x.normal_()
    bed.launch("gate_up")
    dense, shape = bed.dense[0], bed.shape
    y = reference.norm(bed.buffers.x, dense.ffn_gain, shape.norm_epsilon)
    gate, up = (y @ bed.rows(bed.model.layers[0].gate_up, 512, gate_up_pairs(shape.ffn)).T).chunk(2, dim=1)
    assert distance(bed.buffers.h[:, : shape.ffn], torch.nn.functional.silu(gate) * up) < CLOSE


@FORMATS
def test_down_projection(bits: int, tokens: int, seed: int) -> None:
    """The down projection is added to x, also where h has outliers."""
    bed, _ = make(bits, tokens, seed)
    bed.poison()
    b = bed.buffers
    b.x.normal_()
    b.h.normal_()
    b.h[:, 77] = 1e5
    before = b.x.clone()
    bed.launch("down_projection")
    wanted = b.h @ bed.rows(bed.model.layers[0].down, bed.plan.down_columns).T
    assert distance(b.x - before, wanted) < CLOSE


@FORMATS
def test_head(bits: int, tokens: int, seed: int) -> None:
    """Logits of every row, and the best row of all."""
    bed, size = make(bits, tokens, seed)
    bed.poison()
    bed.buffers.x.normal_()
    bed.at(5, tokens)
    bed.launch("head")
    bed.launch("choose")
    y = reference.norm(bed.buffers.x, bed.model.final_gain, bed.shape.norm_epsilon)
    wanted = y @ bed.rows(bed.model.head, 512)[: bed.shape.vocab].T
    assert distance(bed.buffers.logits, wanted) < CLOSE
    chosen = bed.buffers.ring[:size] & 0xFFFFFFFF
    assert chosen.tolist() == bed.buffers.logits.argmax(-1).tolist()


def test_embed(seed: int) -> None:
    """x is the tokens' rows of the embedding, exactly."""
    bed, _ = make(8, 3, seed)
    bed.poison()
    bed.buffers.tokens.copy_(torch.tensor([7, 1002, 0, 7]))
    bed.launch("embed")
    assert torch.equal(bed.buffers.x, bed.model.embedding[[7, 1002, 0, 7]].float())
