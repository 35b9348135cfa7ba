"""Weights in 4 bits: the rounding, how it lies in memory, the products, passes of all sizes, a runner."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")

from hypothesis import given  # noqa: E402
from hypothesis.strategies import floats, integers, sampled_from  # noqa: E402

from tests.engine.runners.cuda.bed import Bed, distance  # noqa: E402
from tests.engine.runners.cuda.emulator import COMPILER, Emulator  # noqa: E402
from tests.engine.runners.cuda.test_runner import Letters, some  # noqa: E402
from vivace.bench.gpu.run import bytes_per_token  # noqa: E402
from vivace.engine.runners.base import SamplingSpec, Span  # noqa: E402
from vivace.engine.runners.cuda.decode.plan import SHARED_BYTES, Plan  # noqa: E402
from vivace.engine.runners.cuda.kernels.driver import Module  # noqa: E402
from vivace.engine.runners.cuda.model import reference  # noqa: E402
from vivace.engine.runners.cuda.model.reference import StateDict  # noqa: E402
from vivace.engine.runners.cuda.model.shape import QWEN_CODER_1_5B, Shape  # noqa: E402
from vivace.engine.runners.cuda.runner import CudaRunner  # noqa: E402
from vivace.engine.runners.cuda.weights.build import build_model, random_weights  # noqa: E402
from vivace.engine.runners.cuda.weights.int4 import (  # noqa: E402
    GROUP,
    MAX_INTEGER,
    SPANS,
    Int4Weights,
    round_to_int4,
    tile_int4,
    untile_int4,
    widen,
)
from vivace.engine.runners.cuda.weights.layout import gate_up_pairs, pack, rotation_pairs, untile  # noqa: E402

NEEDS_KERNELS = pytest.mark.skipif(
    not COMPILER and not torch.cuda.is_available(), reason="neither an NVIDIA GPU nor a C++ compiler"
)
# Groups of one warp: 6 in qkv and gate_up, 22 in down: more than are kept in registers; 2 elsewhere.
SHAPES = (Shape(1, 1536, 1408, 4, 2, 323, 1280), Shape(1, 512, 1792, 4, 2, 323, 1280))
CLOSE = 6e-3


def four_rounded(plain: StateDict) -> StateDict:
    """The same weights as 4 bits have them, for the reference."""
    return StateDict(
        (name, widen(round_to_int4(each)) if name.endswith("_proj.weight") else each)
        for name, each in plain.items()
    )


def random_int4(rows: int, columns: int, seed: int) -> Int4Weights:
    generator = torch.Generator().manual_seed(seed)
    size = (rows, columns // GROUP)

    def some_bytes(*size: int, least: int = 0, most: int = 255) -> "torch.Tensor":  # type: ignore[name-defined]
        return torch.randint(least, most + 1, size, generator=generator, dtype=torch.uint8)

    integers = some_bytes(*size, GROUP, most=MAX_INTEGER)
    return Int4Weights(
        integers, some_bytes(*size, least=1), some_bytes(*size), torch.rand(rows, generator=generator)
    )


@given(tiles=integers(1, 4), blocks=integers(1, 5), seed=integers(0, 1 << 30))
def test_tiles_hold_what_was_laid_into_them(tiles: int, blocks: int, seed: int) -> None:
    """Integers, steps and zeros come back as they were, from 4.5 bits a weight."""
    before = random_int4(8 * tiles, 64 * blocks, seed)
    laid = tile_int4(before)
    assert laid.nbytes == 8 * tiles * 64 * blocks * 9 // 16
    for found, wanted in zip(untile_int4(laid, before.scales, 64 * blocks), before, strict=True):
        assert torch.equal(found, wanted)


@given(seed=integers(0, 1 << 30), exponent=floats(-20, 20), offset=floats(-3, 3), spread=floats(0, 3))
def test_rounding(seed: int, exponent: float, offset: float, spread: float) -> None:
    """A group is off by no more than half of the widest step that is tried, in the mean; zeros stay zeros.

    Not each weight: a step that leaves out the end of a group is taken where all the others gain by it.
    """
    generator = torch.Generator().manual_seed(seed)
    groups = torch.randn(5, 4, GROUP, generator=generator) + offset
    groups *= 10 ** (exponent + spread * torch.rand(5, 4, 1, generator=generator))
    groups[2] = 0.0
    found = widen(round_to_int4(groups.flatten(1))).reshape(groups.shape)
    width = groups.amax(-1).clamp(min=0) - groups.amin(-1).clamp(max=0)
    unit = width.amax(1, keepdim=True) / (255 * SPANS[-1])  # of a row: groups of small weights put up with it
    error = (found - groups).double().square().mean(-1).sqrt()
    assert bool((error <= (0.5 + 1 / 32) * (width / SPANS[-1] + unit)).all())  # the zero is in 16ths
    assert not found[2].any()


@given(seed=integers(0, 1 << 30), used=sampled_from([15, 14, 12, 10]))
def test_a_file_in_groups_of_32_comes_out_nearly_as_it_went_in(seed: int, used: int) -> None:
    """Weights on a grid of 4 bits find it again, also where they do not use all of it: 1% is lost."""
    generator = torch.Generator().manual_seed(seed)
    integers = torch.randint(0, used + 1, (8, 16, GROUP), generator=generator)
    integers[..., 0], integers[..., 1] = 0, used
    step = 0.2 + torch.rand(8, 16, 1, generator=generator)
    wanted = (step * (integers - used * torch.rand(8, 16, 1, generator=generator))).flatten(1)
    assert distance(widen(round_to_int4(wanted)), wanted) < 0.015


def test_the_prefill_multiplies_by_the_same_numbers(seed: int) -> None:
    """The dense layers are those that the kernels read, in bf16; the head is in 8 bits."""
    shape = SHAPES[1]
    model, (dense,) = build_model(shape, random_weights(shape, seed), 4, "cpu", 64)
    orders = {"qkv": rotation_pairs(shape.qkv_rows // 128), "gate_up": gate_up_pairs(shape.ffn)}
    for name in ("qkv", "out", "gate_up", "down"):
        packed, rows = getattr(model.layers[0], name), getattr(dense, name)
        order = orders.get(name, torch.arange(len(rows)))
        assert torch.equal(untile(packed, rows.shape[1]).to(torch.bfloat16), rows[order])
    assert model.head.tiles.dtype == torch.int8


def test_bytes_of_a_token(seed: int) -> None:
    """What the bench counts is what lies in memory."""
    shape = Shape(1, 512, 512, 4, 2, 320, 1280)
    for bits in (4, 8, 16):
        model, _ = build_model(shape, random_weights(shape, seed), bits, "cpu", 64)
        layers = [m for each in model.layers for m in (each.qkv, each.out, each.gate_up, each.down)]
        assert bytes_per_token(shape, bits) == sum(matrix.tiles.nbytes for matrix in (*layers, model.head))


@pytest.mark.parametrize(
    "neighbours", [("attention", "out_projection", "gate_up"), ("gate_up", "down_projection")]
)
def test_rings_of_neighbours_fit_together(neighbours: tuple[str, ...]) -> None:
    """Weights of the kernels to come wait in shared memory: there is room beside the kernel that runs."""
    size = Plan(QWEN_CODER_1_5B, 4, 1).sizes(1)
    assert sum(size[name].shared_bytes + 1024 for name in neighbours) <= SHARED_BYTES + 1024


@pytest.mark.parametrize("tokens", [1, 2, 3, 7, 16])
@pytest.mark.parametrize("shape", SHAPES)
@NEEDS_KERNELS
def test_products(shape: Shape, tokens: int, seed: int) -> None:
    """Norm and product, SiLU, the way back to x with outliers in h: plain torch's with the same rounding."""
    size = next(each for each in (1, 2, 4, 8, 16) if each >= tokens)
    bed = Bed(shape, 4, size, seed)
    dense, layer, b = bed.dense[0], bed.model.layers[0], bed.buffers
    bed.poison()
    b.x.normal_()
    bed.launch("gate_up")
    y = reference.norm(b.x, dense.ffn_gain, shape.norm_epsilon)
    weight = bed.rows(layer.gate_up, shape.hidden, gate_up_pairs(shape.ffn))
    gate, up = (y @ weight.T).chunk(2, dim=1)
    assert distance(b.h[:, : shape.ffn], torch.nn.functional.silu(gate) * up) < CLOSE
    b.h.normal_()
    b.h[:, 77] = 1e5
    before = b.x.clone()
    bed.launch("down_projection")
    assert distance(b.x - before, b.h @ bed.rows(layer.down, bed.plan.down_columns).T) < CLOSE
    b.part[: bed.parts].normal_()
    b.part_stats[: bed.parts] = 1.0
    before = b.x.clone()
    bed.launch("out_projection")
    mixed = b.part[: bed.parts].mean(0).reshape(size, -1)
    assert distance(b.x - before, mixed @ bed.rows(layer.out, mixed.shape[1]).T) < CLOSE
    bed.at(61, tokens)
    bed.launch("qkv")
    y = reference.norm(b.x[:tokens], dense.attention_gain, shape.norm_epsilon)
    weight = bed.rows(layer.qkv, shape.hidden, rotation_pairs(shape.qkv_rows // 128))
    rows = (y @ weight.T + dense.bias).reshape(tokens, -1, 128)
    assert distance(bed.kv_rows(1, 61 + tokens)[61:], rows[:, 6:]) < CLOSE
    assert int((~b.kv.isnan()).sum()) == 2 * tokens * shape.kv_heads * 128


@pytest.mark.parametrize(
    ("shape", "kv_bits", "sizes"), [(SHAPES[0], 16, (32, 16, 8, 4, 2, 1)), (SHAPES[1], 8, (32, 8, 1))]
)
@NEEDS_KERNELS
def test_a_token_does_not_depend_on_the_size_of_its_pass(
    shape: Shape, kv_bits: int, sizes: tuple[int, ...], seed: int
) -> None:
    """Drafts never change the text: logits of 1 token a pass equal those of 2 … 32 to the bit."""
    tokens = torch.randint(0, shape.vocab, (32,), generator=torch.Generator().manual_seed(seed)).tolist()
    found = {}
    for size in sizes:
        count = min(32, max(4, 2 * size))
        bed = Bed(shape, 4, size, seed, kv_bits=kv_bits)
        found[size] = torch.cat([bed.run_pass(tokens[at : at + size], at) for at in range(0, count, size)])
        assert not found[size].isnan().any()
        assert torch.equal(found[size], found[32][:count]), size


@pytest.mark.parametrize("shape", SHAPES)
@NEEDS_KERNELS
def test_a_whole_pass(shape: Shape, seed: int) -> None:
    """The logits are those of the rounded weights, and not those of the weights as they were."""
    bed = Bed(shape, 4, 4, seed)
    tokens = torch.randint(0, shape.vocab, (4,), generator=torch.Generator().manual_seed(seed))
    found = bed.run_pass(tokens.tolist(), 0).cpu()
    text = (tokens.to(bed.device), bed.model.rotation)
    assert distance(found, reference.forward(shape, four_rounded(bed.plain), *text).cpu()) < 0.03
    assert distance(found, reference.forward(shape, bed.plain, *text).cpu()) > 0.05


@pytest.mark.parametrize("prefill", ["bf16", "fp8"])
@NEEDS_KERNELS
def test_prefill_then_passes_then_stream(prefill: str, seed: int) -> None:
    """A prompt through the prefill, a pass over three tokens and a stream: one model, rounded once."""
    is_real = torch.cuda.is_available()
    shape, device = replace(SHAPES[1], layers=2), "cuda" if is_real else "cpu"
    plain = random_weights(shape, seed, device)
    model, dense = build_model(shape, plain, 4, device, 512)
    runner = CudaRunner(
        "test", model, dense, Letters(), bits=4, context_tokens=512, prefill=prefill,
        make_launcher=Module if is_real else Emulator, blocks=132 if is_real else 5,
    )  # fmt: skip
    text = [token % shape.vocab for token in some(80, seed)]
    first = runner.forward([Span(0, 0, text[:77], want=1)]).copy()
    few = runner.forward([Span(0, 77, text[77:], want=3)]).copy()
    said: list[int] = []
    while len(said) < 3:
        said += runner.decode(Span(0, 79 + len(said), [(text + said)[-1]]), SamplingSpec(), 1)
    whole = torch.tensor(text + said[:-1], device=device)
    wanted = reference.forward(shape, four_rounded(plain), whole, model.rotation).cpu()
    assert distance(torch.tensor(first), wanted[76:77]) < (0.1 if prefill == "fp8" else 0.03)
    assert distance(torch.tensor(few), wanted[77:80]) < 0.06
    for row, token in zip(wanted[79:], said, strict=True):
        assert row[token] > row.max() - 0.2


def test_rows_that_do_not_fill_a_tile() -> None:
    """Padding has a step of zero and stays zero."""
    matrix = pack(torch.randn(13, 64), 4)
    assert not untile(matrix, 64)[13:].any()
