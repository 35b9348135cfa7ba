"""KV in 8 bits: every kernel that writes or reads it against plain torch, and passes of all sizes."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")

from hypothesis import given  # noqa: E402
from hypothesis.strategies import floats, integers  # noqa: E402

from tests.engine.runners.cuda.bed import Bed, distance  # noqa: E402
from tests.engine.runners.cuda.emulator import COMPILER  # noqa: E402
from vivace.engine.runners.cuda.decode.launch import Launch  # noqa: E402
from vivace.engine.runners.cuda.decode.plan import Size  # noqa: E402
from vivace.engine.runners.cuda.kv.pool import (  # noqa: E402
    ORDER,
    make_pool,
    make_unpacked,
    pack_rows,
    read_pages,
    rounded,
    split_page,
)
from vivace.engine.runners.cuda.model import reference  # noqa: E402
from vivace.engine.runners.cuda.model.shape import QWEN_CODER_1_5B, Shape  # noqa: E402
from vivace.engine.runners.cuda.weights.layout import rotation_pairs  # noqa: E402

NEEDS_KERNELS = pytest.mark.skipif(
    not COMPILER and not torch.cuda.is_available(), reason="neither an NVIDIA GPU nor a C++ compiler"
)
SMALL = Shape(1, 512, 512, 4, 2, 323, 1280)
CLOSE = 6e-3
FORMATS = pytest.mark.parametrize(("bits", "tokens"), [(8, 1), (16, 1), (8, 3), (16, 3), (8, 7), (8, 16)])


def make(bits: int, tokens: int, seed: int) -> Bed:
    """A bed whose pass is the next power of two; `tokens` of it are real."""
    size = next(each for each in (1, 2, 4, 8, 16) if each >= tokens)
    bed = Bed(SMALL, bits, size, seed, kv_bits=8)
    bed.poison()
    return bed


def steps_off(found: "torch.Tensor", exact: "torch.Tensor") -> float:  # type: ignore[name-defined]
    """The largest difference, in steps of its group's integers."""
    order = ORDER.to(exact.device)
    wanted, got = (rows.float()[..., order].reshape(-1, 8, 16) for rows in (exact, found))
    step = wanted.abs().amax(-1, keepdim=True).clamp(min=1e-30) / 127
    return float(((got - wanted) / step).abs().max())


def untouched(bed: Bed, start: int, end: int) -> bool:
    """Whether only rows start … end-1 of layer 0 were written."""
    rest = bed.buffers.kv.clone()
    packed, scales = split_page(rest[0])
    for at in range(start, end):
        page = int(bed.buffers.pages[at // 64])
        packed[page, :, :, at % 64], scales.view(torch.int16)[page, :, :, at % 64] = 255, -1
    return bool((rest == 255).all())


@FORMATS
@NEEDS_KERNELS
def test_qkv(bits: int, tokens: int, seed: int) -> None:
    """A pass leaves its keys and values in their page, rounded, and writes nothing else there."""
    bed = make(bits, tokens, seed)
    bed.buffers.x.normal_()
    start = 61  # crosses a page
    bed.at(start, tokens)
    bed.launch("qkv")
    dense, shape = bed.dense[0], bed.shape
    y = reference.norm(bed.buffers.x[:tokens], dense.attention_gain, shape.norm_epsilon)
    weight = bed.rows(bed.model.layers[0].qkv, shape.hidden, rotation_pairs(shape.qkv_rows // 128))
    rows = (y @ weight.T + dense.bias).reshape(tokens, -1, 128)
    turned = reference.rotate(rows[:, :6], bed.model.rotation[start : start + tokens])
    assert distance(bed.buffers.q[:tokens], turned[:, :4]) < CLOSE
    for is_value, exact in enumerate((turned[:, 4:], rows[:, 6:])):
        found = bed.kv_rows(is_value, start + tokens)[start:]
        assert distance(found, rounded(exact)) < 2 * CLOSE  # what is halfway may go either way
        assert distance(found, exact) < 2 * CLOSE
    assert untouched(bed, start, start + tokens)


@NEEDS_KERNELS
def test_place(seed: int) -> None:
    """A prefill's rows go to their pages rounded as plain torch rounds; rows behind the last token do not."""
    bed = make(16, 1, seed)
    start, count = 50, 30
    bed.at(start, count)
    rows = torch.randn(count + 5, 8, 128, device=bed.device).to(torch.bfloat16)
    rows[:, 4:6, 7] += 300  # a key's large dimension
    rows[3] = 0.0
    before = rows.clone()
    turned = reference.rotate(rows[:count, :6].float(), bed.model.rotation[start : start + count])
    place = (bed.buffers.state, rows, bed.model.rotation, bed.buffers.pages, bed.buffers.kv[0])
    bed.run_launch(Launch("place", Size((count + 5, 1, 1), 256, 1, 0), place, overlaps=False))
    bed.finish()
    assert distance(rows[:count, :4], turned[:, :4]) < CLOSE
    assert torch.equal(rows[count:], before[count:])
    keys, values = (bed.kv_rows(is_value, start + count)[start:] for is_value in (0, 1))
    assert steps_off(keys, turned[:, 4:]) < 1.2
    assert steps_off(values, rows[:count, 6:]) < 1.2
    assert not keys[3].any()
    assert not values[3].any()
    if bed.device == "cpu":  # a GPU divides a little differently
        assert torch.equal(values, rounded(rows[:count, 6:]))
    assert untouched(bed, start, start + count)


@pytest.mark.parametrize("bits", [8, 16])  # of the weights: the attention is cut differently for each
@pytest.mark.parametrize(
    ("tokens", "start"), [(1, 0), (1, 63), (1, 200), (3, 62), (16, 130), (1, 1100), (2, 1055)]
)
@NEEDS_KERNELS
def test_attention(tokens: int, start: int, bits: int, seed: int) -> None:
    """Causal attention to what was rounded, over scattered pages; what lies behind the end is never read."""
    bed = make(bits, tokens, seed)
    bed.fill_kv(start + tokens)
    bed.buffers.q.normal_()
    bed.at(start, tokens)
    bed.launch("attention")
    found = bed.combine_parts()
    keys, values = (bed.kv_rows(is_value, start + tokens) for is_value in (0, 1))
    wanted = reference.attend(bed.buffers.q[:tokens].float(), keys, values, start)
    assert distance(found[:tokens], wanted) < CLOSE


@pytest.mark.parametrize(("start", "count"), [(0, 1), (0, 64), (37, 100), (517, 70)])
@NEEDS_KERNELS
def test_unpack_pages(start: int, count: int, seed: int) -> None:
    """What a sequence holds comes out in bf16 in the order of its positions, and nothing behind it."""
    bed = make(8, 1, seed)
    length = start + count
    bed.fill_kv(length)
    bed.at(start, count)
    out = make_unpacked(SMALL, 20, bed.device).fill_(float("nan"))
    arguments = (bed.buffers.state, bed.buffers.kv[0], bed.buffers.pages, out)
    bed.run_launch(Launch("unpack_pages", Size((3, 4, 1), 256, 1, 0), arguments, overlaps=False))
    bed.finish()
    for is_value in (0, 1):
        rows = out[:, is_value].transpose(1, 2).reshape(-1, 2, 128)
        assert torch.equal(rows[:length].float(), bed.kv_rows(is_value, length))
        assert bool(rows[length:].isnan().all())


@pytest.mark.parametrize("bits", [8, 16])
@NEEDS_KERNELS
def test_a_token_does_not_depend_on_the_size_of_its_pass(bits: int, seed: int) -> None:
    """Drafts never change the text: logits of 1 token a pass equal those of 2 … 32 to the bit."""
    past = 61  # the passes cross a page
    tokens = torch.randint(0, SMALL.vocab, (32,), generator=torch.Generator().manual_seed(seed)).tolist()
    found = {}
    for size, count in ((32, 32), (16, 32), (8, 16), (4, 8), (2, 4), (1, 4)):
        bed = Bed(SMALL, bits, size, seed, kv_bits=8)
        torch.manual_seed(seed)
        bed.fill_kv(past)
        logits = torch.cat([bed.run_pass(tokens[at : at + size], past + at) for at in range(0, count, size)])
        kept = [bed.kv_rows(is_value, past + count)[past:] for is_value in (0, 1)]
        found[size] = [logits, *kept]
        assert not logits.isnan().any()
        for one, other in zip(found[size], found[32], strict=True):
            assert torch.equal(one, other[:count]), size


@given(seed=integers(0, 1 << 30), exponent=floats(-20, 20), spread=floats(0, 4))
def test_rounding(seed: int, exponent: float, spread: float) -> None:
    """Every group keeps its own size: nothing is off by more than about a step, and zero stays zero."""
    generator = torch.Generator().manual_seed(seed)
    sizes = 10 ** (exponent + spread * torch.rand(8, 1, generator=generator))
    ordered = (torch.randn(5, 8, 16, generator=generator) * sizes).flatten(-2)
    rows = torch.empty_like(ordered).index_copy_(-1, ORDER, ordered)
    rows[2] = 0.0
    assert steps_off(rounded(rows), rows) < 1.2
    assert not rounded(rows)[2].any()


def test_pages_hold_what_was_packed(seed: int) -> None:
    """Rows that are written into a page through its views are what `read_pages` gives back."""
    page = make_pool(SMALL, 3, 8, "cpu")[0]
    rows = torch.randn(3, 2, 2, 64, 128, generator=torch.Generator().manual_seed(seed))
    packed, scales = split_page(page)
    packed[:], scales[:] = pack_rows(rows)
    assert torch.equal(read_pages(page).float(), rounded(rows))


def test_memory() -> None:
    """A page in 8 bits takes 9/16 of one in bf16, as the estimate before a load has it."""
    for bits, share in ((16, 1.0), (8, 9 / 16)):
        pool = make_pool(SMALL, 5, bits, "cpu")
        assert pool.nbytes == 5 * 64 * SMALL.kv_bytes_per_token(bits)
        assert QWEN_CODER_1_5B.kv_bytes_per_token(bits) == 28_672 * share
