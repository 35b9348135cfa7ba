"""The default model's shape on a real GPU: long contexts, and streams that repeat themselves."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")
np = pytest.importorskip("numpy")

from dataclasses import replace  # noqa: E402

from tests.engine.runners.cuda.test_runner import Letters  # noqa: E402
from vivace.engine.runners.base import SamplingSpec, Span  # noqa: E402
from vivace.engine.runners.cuda.kv.pool import rounded  # noqa: E402
from vivace.engine.runners.cuda.model import reference  # noqa: E402
from vivace.engine.runners.cuda.model.shape import QWEN_CODER_1_5B  # noqa: E402
from vivace.engine.runners.cuda.runner import CudaRunner  # noqa: E402
from vivace.engine.runners.cuda.weights.build import build_model, random_weights  # noqa: E402

SHAPE = replace(QWEN_CODER_1_5B, layers=2)


@pytest.mark.parametrize(
    ("bits", "kv_bits", "length"),
    [(16, 16, 1024), (16, 16, 4096), (8, 16, 4096), (16, 8, 1024), (8, 8, 4096)],
)
def test_greedy_tokens_at_length(bits: int, kv_bits: int, length: int, seed: int) -> None:
    """After a prefill of that length, a stream's tokens are plain torch's, up to near ties."""
    plain = random_weights(SHAPE, seed, "cuda")
    model, dense = build_model(SHAPE, plain, bits, "cuda", 8192)
    runner = CudaRunner(
        "test", model, dense, Letters(), bits=bits, kv_bits=kv_bits, context_tokens=16384
    )  # fmt: skip
    text = np.random.default_rng(seed).integers(0, SHAPE.vocab, length).tolist()
    for at in range(0, length - 1, 512):
        runner.forward([Span(0, at, text[at : min(at + 512, length - 1)])])
    streams = []
    for _ in range(2):
        tokens: list[int] = []
        while len(tokens) < 24:
            span = Span(0, length - 1 + len(tokens), [(text + tokens)[-1]])
            tokens += runner.decode(span, SamplingSpec(), steps_ahead=2)
        runner.trim(0, length - 1)
        streams.append(tokens)
    assert streams[0] == streams[1]
    whole = torch.tensor(text + streams[0][:-1], device="cuda")
    torch.backends.cuda.matmul.allow_tf32 = False
    keep = rounded if kv_bits == 8 else reference.unrounded
    rows = reference.forward(SHAPE, plain, whole, model.rotation, keep)[length - 1 :]
    chosen = rows[torch.arange(24), torch.tensor(streams[0], device="cuda")]
    spread = rows.std()
    assert float((rows.amax(1) - chosen).max() / spread) < (0.15 if bits == 8 else 0.05)
