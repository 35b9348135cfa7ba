"""The kernels compile for the GPU itself, also where there is none: NVRTC needs no GPU."""

import ctypes
import re
from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")

from vivace.engine.runners.cuda.decode.experts import expert_plan
from vivace.engine.runners.cuda.decode.plan import Plan, fitting_passes
from vivace.engine.runners.cuda.kernels import driver
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


@pytest.mark.parametrize("name", ["qwen3-coder-30b-a3b", "gpt-oss-20b"])
def test_kernels_of_groups_compile_for_hopper(name: str) -> None:
    """Tokens that share an expert, in groups of four."""
    plan = Plan(KNOWN_SHAPES[name], 8, 16)
    assert_compiles(expert_plan(replace(plan, tuning=replace(plan.tuned, expert_group=4))))


def test_kernels_compile_for_blackwell() -> None:
    """Without the products of four warps, which it does not have."""
    assert_compiles(Plan(QWEN_CODER_1_5B, 8, 1), "sm_100")


def assert_compiles(plan: Plan, target: str = "sm_90a") -> None:
    try:
        assert len(compile_source(source(plan), target)) > 50_000
    except StartError as error:
        if "was not found" in error.message:
            pytest.skip("NVRTC is not installed")
        raise


@pytest.mark.parametrize("plan", [Plan(QWEN_CODER_1_5B, 8, 1), Plan(QWEN_CODER_1_5B, 8, 64, is_batch=True)])
def test_no_sum_of_two_products_is_left_to_the_compiler(plan: Plan) -> None:
    """Which of them is rounded would be its choice, and another in each kernel: rows would differ from one.

    In PTX that is a rounded product (`mul.f32`; those that are asked for are `mul.rn.f32`) that something is
    multiplied and added to.
    """
    for kernel in re.split(r"\.entry ", intermediate_code(source(plan)))[1:]:
        rounded = set(re.findall(r"\bmul\.f32\s+(%f\d+),", kernel))
        added_to = re.findall(r"\bfma\.rn\.f32\s+%f\d+, \S+, \S+, (%f\d+);", kernel)
        assert not rounded & set(added_to), kernel.split("(")[0]


def intermediate_code(text: str) -> str:
    try:
        nvrtc = driver._load_nvrtc()
    except StartError:
        pytest.skip("NVRTC is not installed")
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    options = (ctypes.c_char_p * 2)(b"--gpu-architecture=compute_90", b"--std=c++17")
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"vivace.cu", 0, None, None)
    assert nvrtc.nvrtcCompileProgram(program, 2, options) == 0
    nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
    code = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetPTX(program, code)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return code.value.decode()
