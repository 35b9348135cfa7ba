"""The kernels compile for the GPU itself, also where there is none: NVRTC needs no GPU."""

import pytest

pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")

from vivace.engine.runners.cuda.decode.plan import Plan, fitting_passes
from vivace.engine.runners.cuda.kernels.driver import compile_source, source
from vivace.engine.runners.cuda.model.shape import KNOWN_SHAPES, QWEN_CODER_1_5B, Shape
from vivace.errors import StartError

SHAPES = {
    "Qwen2.5-Coder 1.5B": QWEN_CODER_1_5B,
    "Qwen2.5-Coder 7B": KNOWN_SHAPES["qwen2.5-coder-7b"],
    "Llama 3.1 8B": Shape(32, 4096, 14336, 32, 8, 128256, 131072),
}


@pytest.mark.parametrize(("bits", "kv_bits"), [(8, 16), (16, 16), (4, 16), (8, 8), (16, 8), (4, 8)])
@pytest.mark.parametrize("name", SHAPES)
def test_kernels_compile_for_hopper(name: str, bits: int, kv_bits: int) -> None:
    """One token and the most that fit: machine code comes out."""
    sizes = fitting_passes(SHAPES[name], bits)
    assert sizes[0] == 1
    for tokens in {1, sizes[-1]}:
        assert_compiles(Plan(SHAPES[name], bits, tokens, kv_bits=kv_bits))


@pytest.mark.parametrize("bits", [4, 8])
def test_kernels_of_experts_compile_for_hopper(bits: int) -> None:
    """Those of Qwen3-Coder-30B-A3B, which are in the module for one token."""
    assert_compiles(Plan(KNOWN_SHAPES["qwen3-coder-30b-a3b"], bits, 1))


def test_kernels_of_gpt_oss_compile_for_hopper() -> None:
    """One token with its experts in MXFP4, and 16 at once."""
    for tokens in (1, 16):
        assert_compiles(Plan(KNOWN_SHAPES["gpt-oss-20b"], 8, tokens))


def assert_compiles(plan: Plan) -> None:
    try:
        assert len(compile_source(source(plan), "sm_90")) > 50_000
    except StartError as error:
        if "was not found" in error.message:
            pytest.skip("NVRTC is not installed")
        raise
