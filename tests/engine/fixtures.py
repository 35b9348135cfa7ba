"""Where the shared suite lives: each runner with a real computation, its words, and a way to start afresh.

llama.cpp has SmolLM2. The GPU's runner has a small random model: its kernels on a GPU, plain torch in their
place without one. Tests that hold for both take the fixture `fixture`.
"""

import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine.desk import Desk
from tests.engine.tiny_models import write_tiny_model
from vivace.config import load_settings
from vivace.engine.devices.backend_files import BackendName, find_built
from vivace.engine.kv.parked_cache import ParkedCache
from vivace.engine.runners.base import Logits, Runner, ShouldStop, Span
from vivace.errors import StartError
from vivace.models.families.base import Message, OutputSpec
from vivace.models.families.qwen25 import Qwen25
from vivace.models.tokenizer import ByteTokenizer, GgufTokenizer, Tokenizer

CONTEXT_TOKENS = 2048
SMALL_CONTEXT_TOKENS = 256  # for tests that fill the KV
NEAR = 0.3  # logits apart: kernels for one row and for many round differently
PAYING = {1: 10.0, 2: 10.1, 4: 10.2, 8: 10.4, 16: 10.8, 32: 11.6, 64: 13.0}  # drafts are all but free


@dataclass
class RunnerFixture:
    name: str
    runner: Runner
    tokenizer: Tokenizer
    close: Callable[[], None]

    def desk(self, parked_cache: ParkedCache | None = None, costs: dict[int, float] | None = None) -> Desk:
        """An engine on the runner, with nothing in its KV."""
        for seq in range(self.runner.info.sequences):
            self.runner.trim(seq, 0)
        return Desk(self.runner, parked_cache, costs) if costs else Desk(self.runner, parked_cache)

    def prompt(self, text: str) -> list[int]:
        chat = Qwen25(self.tokenizer)
        log = chat.render([Message("user", text)])
        return log + chat.answer(log, OutputSpec())

    def text(self, tokens: list[int]) -> str:
        return b"".join(map(self.runner.token_bytes, tokens)).decode("utf-8", "replace")

    def assert_same(self, log: list[int], said: list[int], expected: list[int]) -> None:
        """The same tokens, up to the first near-tie of the two likeliest."""
        for index, (one, other) in enumerate(zip(said, expected, strict=False)):
            if one != other:
                spare = self.runner.info.sequences - 3
                (row,) = self.runner.forward([Span(spare, 0, log + expected[:index], want=1)])
                gap = abs(float(row[one]) - float(row[other]))
                is_best = max(row[one], row[other]) >= row.max() - NEAR
                self.runner.trim(spare, 0)
                assert gap < NEAR, f"{one} instead of {other} at {index}: {gap:.2f} apart"
                assert is_best
                return
        assert len(said) == len(expected)


def llama_fixture(smol: Path, *, context_tokens: int = CONTEXT_TOKENS) -> RunnerFixture:
    pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")
    from vivace.engine.runners.llamacpp import LlamaRunner

    runner = LlamaRunner(smol, context_tokens=context_tokens, threads=1)
    return RunnerFixture("llama.cpp", runner, GgufTokenizer(smol), runner.close)


def tiny_fixture(architecture: str, folder: Path) -> RunnerFixture:
    """llama.cpp with a tiny random model of another memory kind, whose tokens are bytes."""
    pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")
    from vivace.engine.runners.llamacpp import LlamaRunner

    words = ByteTokenizer()

    class ByteRunner(LlamaRunner):
        """The file has no vocabulary; what it says are printable letters."""

        def forward(self, spans: Sequence[Span], should_stop: ShouldStop | None = None) -> Logits:
            rows = super().forward(spans, should_stop).copy()
            rows[:, :32] = rows[:, 127:] = -100.0
            return rows

        def token_bytes(self, token: int) -> bytes:
            return words.token_bytes(token)

    path = write_tiny_model(architecture, folder, words.size)
    runner = ByteRunner(path, context_tokens=CONTEXT_TOKENS, threads=1)
    runner.info = runner.info._replace(end_tokens=words.end_tokens)
    return RunnerFixture(architecture, runner, words, runner.close)


def divergences(found: Logits, wanted: Logits) -> Logits:
    """Return the KL divergence of each row's probabilities: what is added to all of its logits is nothing."""

    def logs(logits: Logits) -> Logits:
        rows = logits.astype(np.float64) - logits.max(1, keepdims=True)
        logs: Logits = rows - np.log(np.exp(rows).sum(1, keepdims=True))
        return logs

    ours, exact = logs(found), logs(wanted)
    apart: Logits = (np.exp(exact) * (exact - ours)).sum(1)
    return apart


def widen_model(model: Path, out: Path) -> Path:
    """Write a model's weights in 32 bits, so that nothing is rounded to 8 bits while they are multiplied."""
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")
    options = llama_cpp.llama_model_quantize_default_params()
    options.ftype, options.allow_requantize = 0, True  # LLAMA_FTYPE_ALL_F32
    assert llama_cpp.llama_model_quantize(bytes(model), bytes(out), ctypes.byref(options)) == 0
    return out


def llama_gpu_fixture(
    smol: Path, kind: BackendName, *, context_tokens: int = CONTEXT_TOKENS
) -> RunnerFixture:
    """llama.cpp on a GPU; Mesa's software device will do for Vulkan."""
    built = find_built(load_settings().cache_dir).get(kind)
    if built is None:
        pytest.skip(f"llama.cpp is not built for {kind}: vivace extras add {kind}")
    from vivace.engine.runners.ggml import find_device, load_library
    from vivace.engine.runners.llamacpp import LlamaGpu, LlamaRunner

    os.environ.setdefault("GGML_VK_VISIBLE_DEVICES", "0")  # a software device is not taken by itself
    try:
        load_library(Path(built.library))
        device = find_device(kind)
    except StartError as error:
        pytest.skip(error.message)
    gpu = LlamaGpu(device, kind, f"{kind}:0", context_tokens)
    runner = LlamaRunner(smol, context_tokens=context_tokens, threads=1, gpu=gpu)
    return RunnerFixture(kind, runner, GgufTokenizer(smol), runner.close)


def cuda_fixture(
    bits: int = 16, seed: int = 5, *, kv_bits: int = 16, context_tokens: int = CONTEXT_TOKENS
) -> RunnerFixture:
    keep_torch_off_amx()
    torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")
    from tests.engine.runners.cuda.plain_launcher import PlainLauncher
    from vivace.engine.runners.cuda.runner import CudaRunner

    torch.set_num_threads(1)  # small products on a busy machine: threads only wait for each other
    is_real = torch.cuda.is_available()
    words = ByteTokenizer()
    model, dense = _random_model(bits, seed, "cuda" if is_real else "cpu")
    # Plain torch has no large products, so there are few rows.
    plain_options = {"make_launcher": PlainLauncher, "blocks": 5, "max_rows": 16}
    options: dict[str, Any] = {} if is_real else plain_options
    options |= {"bits": bits, "kv_bits": kv_bits}
    runner = CudaRunner("random", model, dense, words, context_tokens=context_tokens, **options)
    return RunnerFixture("cuda", runner, words, runner.close)


@lru_cache(maxsize=2)
def _random_model(bits: int, seed: int, device: str) -> tuple[Any, Any]:
    """Return a model that says letters, never ends by itself and does not only repeat its last token."""
    from vivace.engine.runners.cuda.model.shape import Shape
    from vivace.engine.runners.cuda.weights.build import build_model, random_weights

    shape = Shape(2, 512, 512, 4, 2, 256 + len(ByteTokenizer.CONTROLS), CONTEXT_TOKENS)
    plain = random_weights(shape, seed)
    plain["lm_head.weight"] = random_weights(shape, seed + 1)["embed_tokens.weight"] * 0.4
    plain["lm_head.weight"][:32] = plain["lm_head.weight"][127:] = 0.0
    return build_model(shape, plain, bits, device, CONTEXT_TOKENS)


def keep_torch_off_amx() -> None:
    """Keep torch off the CPU's matrix tiles: llama.cpp sets them up once a thread and relies on it."""
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    os.environ.setdefault("MKL_ENABLE_INSTRUCTIONS", "AVX512")


def some_tokens(fixture: RunnerFixture, count: int, seed: int = 1) -> list[int]:
    """Tokens without control tokens."""
    draw = np.random.default_rng(seed)
    return fixture.tokenizer.encode("".join(chr(c) for c in draw.integers(97, 123, 4 * count)))[:count]
