"""A prompt's experts out of packed weights, in Triton, against plain torch with the same weights."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")

from tests.engine.runners.cuda import oss_bed  # noqa: E402
from tests.engine.runners.cuda.bed import NAN, distance  # noqa: E402
from tests.engine.runners.cuda.expert_bed import DEVICE, ExpertBed  # noqa: E402
from tests.engine.runners.cuda.triton_here import HAS_GPU  # noqa: E402
from vivace.engine.runners.cuda.decode.launches import Model  # noqa: E402
from vivace.engine.runners.cuda.decode.plan import SHARED_BYTES  # noqa: E402
from vivace.engine.runners.cuda.model import reference  # noqa: E402
from vivace.engine.runners.cuda.model.shape import Shape  # noqa: E402
from vivace.engine.runners.cuda.prefill import grouped  # noqa: E402
from vivace.engine.runners.cuda.prefill.experts import mix_experts, router_of  # noqa: E402
from vivace.engine.runners.cuda.prefill.grouped import Cut, Groups  # noqa: E402
from vivace.engine.runners.cuda.weights.build import build_model  # noqa: E402
from vivace.engine.runners.cuda.weights.oss import random_oss_weights  # noqa: E402

DTYPE = torch.bfloat16 if HAS_GPU else torch.float16  # the interpreter cannot multiply bf16
SMALL = Shape(
    1, 192, 256, 4, 2, 640, 512, qkv_bias=False, qk_norm=True, experts=8, experts_per_token=4, expert_ffn=64
)
SIX = replace(SMALL, experts=6, experts_per_token=3)  # no powers of two
OSS = replace(oss_bed.SMALL, layers=1, hidden=192, experts=8, expert_ffn=128)
WIDE: dict[str, Any] = (
    {"hidden": 1920, "expert_ffn": 960} if HAS_GPU else {}
)  # blocks of columns enough to overlap
CLOSE = 8e-3  # both round weights, what is between the products, and sums to bf16


def bed_of(kind: str, seed: int, shape: Shape = SMALL, oss: Shape = OSS) -> Model:
    if kind == "mxfp4":
        return build_model(oss, random_oss_weights(oss, seed, DEVICE), 8, DEVICE, 64)[0]
    model = ExpertBed(shape, int(kind), seed).model
    return model._replace(layers=[model.layers[0]._replace(oss=None)])


def run(model: Model, x: Any, most: int = 0) -> tuple[Any, Any]:
    """Return what the kernels make of x, and what plain torch does."""
    shape, layer = model.shape, model.layers[0]
    x = x.to(DEVICE)
    y = reference.norm(x, layer.ffn_gain, shape.norm_epsilon).to(DTYPE)
    scores = x @ router_of(layer)
    delta = torch.full((len(x), shape.hidden), NAN, dtype=DTYPE, device=DEVICE)
    groups = Groups(model, most or len(x), torch.device(DEVICE), DTYPE)
    for _ in range(2):  # the second finds what the first has left
        groups.run(layer, x, scores, delta)
    return delta.float().cpu(), mix_experts(shape, layer, x, y, scores).cpu()


def some_x(shape: Shape, tokens: int, seed: int) -> Any:
    return torch.randn(tokens, shape.hidden, generator=torch.Generator().manual_seed(seed)) * 3


@pytest.mark.parametrize("kind", ["4", "8", "16", "mxfp4"])
def test_tokens_get_what_their_experts_make_of_them(kind: str, seed: int) -> None:
    """Out of each format of weights, with tiles that are not whole in either direction."""
    model = bed_of(kind, seed)
    found, plain = run(model, some_x(model.shape, 37, seed))
    assert distance(found, plain) < CLOSE


@pytest.mark.parametrize("raised", [0, 3, *([60] if HAS_GPU else [])])  # the interpreter's floats end at 2^16
def test_scales_above_two(raised: int, seed: int) -> None:
    """With numbers of MXFP4 that are so many powers of two larger, nothing runs over and sums are as exact.

    Those of gate and up are clamped behind their product, so their scales are raised in `down` alone.
    """
    model = bed_of("mxfp4", seed)
    scales = model.layers[0].down.tiles.view(-1, 272)[:, 256:]
    scales += 128 - int(scales.max()) + raised
    found, plain = run(model, some_x(model.shape, 37, seed))
    assert found.isfinite().all()
    assert distance(found, plain) < CLOSE


@pytest.mark.parametrize("tokens", [1, 70])
def test_any_number_of_tokens(tokens: int, seed: int) -> None:
    """Of one token most experts have no row; of 70 each has several tiles. None is a power of two."""
    model = bed_of("4", seed, SIX)
    found, plain = run(model, some_x(SIX, tokens, seed), most=96)
    assert distance(found, plain) < CLOSE


def test_all_tokens_may_choose_the_same_experts(seed: int) -> None:
    """One expert has all rows, and ties are the lower number's."""
    model = bed_of("4", seed)
    router = model.layers[0].router
    assert router is not None
    router[:] = router[0]
    found, plain = run(model, some_x(SMALL, 33, seed))
    assert distance(found, plain) < CLOSE


def test_a_token_does_not_depend_on_those_beside_it(seed: int) -> None:
    """To the bit: where a row stands among its expert's is not known before, and changes nothing."""
    model = bed_of("4", seed)
    x = some_x(SMALL, 40, seed)
    together, _ = run(model, x)
    others, _ = run(model, x.flip(0))
    assert torch.equal(others.flip(0), together)


@pytest.mark.parametrize("kind", ["4", "mxfp4"])
def test_cuts_change_no_number(kind: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = bed_of(kind, seed)
    x = some_x(model.shape, 40, seed)
    plain, _ = run(model, x)
    monkeypatch.setattr(grouped, "CUTS", {1 << 20: Cut(64, 128, 4, 3)})
    other, _ = run(model, x)
    assert torch.equal(other, plain)


@pytest.mark.parametrize("rows", sorted(cut.rows for cut in grouped.CUTS.values()) if HAS_GPU else [128])
@pytest.mark.parametrize("kind", ["4", "mxfp4"])
def test_every_cut(kind: str, rows: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As prompts have them: whole tiles of an expert, and a rest of up to 16 rows, or of more."""
    cut = next(cut for cut in grouped.CUTS.values() if cut.rows == rows)
    monkeypatch.setattr(grouped, "CUTS", {1 << 20: cut})
    model = bed_of(kind, seed, *(replace(shape, **WIDE) for shape in (SMALL, OSS)))
    found, plain = run(model, some_x(model.shape, 2 * rows + 24, seed))  # half of that for each expert
    assert distance(found, plain) < CLOSE


def test_compiling_launches_nothing(seed: int) -> None:
    """Chunks of several sizes; what a chunk writes is as it was. The interpreter has nothing to compile."""
    model = bed_of("mxfp4", seed)
    x = some_x(model.shape, 96, seed).to(DEVICE)
    scores = x @ router_of(model.layers[0])
    delta = torch.full((96, model.shape.hidden), NAN, dtype=DTYPE, device=DEVICE)
    groups = Groups(model, 96, torch.device(DEVICE), DTYPE)
    groups.compile(model.layers[0], x, scores, delta, [16, 48, 96])
    assert delta.isnan().all()
    assert not groups._counts.any()


COMPILE = """
import itertools
import json
import re

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from vivace.engine.runners.cuda.prefill import grouped

kinds = {"y": "*bf16", "inner": "*bf16", "made": "*bf16", "tiles": "*u8", "limit": "fp32", "slope": "fp32"}
kinds |= {"lift": "i32"}
kinds |= dict.fromkeys(("words", "shifts", "counts", "rows"), "*i32")
kinds |= dict.fromkeys(("scales", "bias", "shares"), "*fp32")
shapes = {4: (2048, 768, 128, 8), grouped.MXFP4: (2880, 2880, 32, 4)}
for (width, (hidden, ffn, experts, chosen)), cut in itertools.product(shapes.items(), grouped.CUTS.values()):
    of_both = dict(EXPERTS=experts, EXPERTS2=experts, WIDTH=width, ROWS=cut.rows)
    for kernel, own in (
        (grouped._gate_up, dict(COLUMNS=hidden, FFN=ffn, CHOSEN=chosen, UNITS=cut.outputs // 2)),
        (grouped._down, dict(COLUMNS=ffn, HIDDEN=hidden, OUTPUTS=cut.outputs)),
    ):
        known = of_both | own | {"IS_CUDA": True}
        told = {name: "constexpr" if name in known else kinds[name] for name in kernel.arg_names}
        target, options = GPUTarget("cuda", 90, 32), dict(num_warps=cut.warps, num_stages=cut.stages)
        aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(told) if "*" in told[name]}
        made = triton.compile(ASTSource(kernel, told, known, aligned), target=target, options=options)
        waits = re.findall("wgmma.wait_group.sync.aligned (.)", made.asm["ptx"])
        print(json.dumps([made.metadata.shared, made.asm["ptx"].count("wgmma.mma_async"), waits]))
"""


@pytest.mark.skipif(HAS_GPU, reason="the GPU runs them")
def test_they_compile_for_hopper(tmp_path: Path) -> None:
    """Their assembly, which the interpreter does not read, and the true shapes; within shared memory.

    No product runs on while the next weights are unpacked: they may come to where it still reads.
    """
    found = subprocess.run(
        [sys.executable, "-c", COMPILE],
        env=os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    kernels = [json.loads(line) for line in found.stdout.splitlines()]
    assert len(kernels) == 4 * len(grouped.CUTS)
    for shared, products, waits in kernels:
        assert shared <= SHARED_BYTES
        assert products
        assert set(waits) == {"0"}
