"""transformers with our weights is the model that ours is held against: it says what our reference says."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")
pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("gguf", reason="gguf is not installed: vivace extras add cuda")

from tests.engine.runners.cuda.bed import distance  # noqa: E402
from tests.engine.runners.cuda.test_checkpoint import SHAPE, write_gguf  # noqa: E402
from vivace.bench.gpu.peers.transformers import load_transformers  # noqa: E402
from vivace.engine.runners.cuda.decode.launches import rotation_table  # noqa: E402
from vivace.engine.runners.cuda.model import reference  # noqa: E402
from vivace.engine.runners.cuda.weights.build import random_weights  # noqa: E402
from vivace.engine.runners.cuda.weights.checkpoint import read_checkpoint  # noqa: E402


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # a CPU without bf16 takes another way
def test_the_same_file_in_transformers(tmp_path: Path, seed: int) -> None:
    """Logits of 50 tokens, in bf16 there and fp32 here."""
    file = tmp_path / "tiny.gguf"
    write_gguf(file, random_weights(SHAPE, seed))
    model = load_transformers(file, "cpu")
    shape, weights = read_checkpoint(file)
    tokens = torch.randint(0, SHAPE.vocab, (50,))
    with torch.inference_mode():
        theirs = model(tokens[None]).logits[0]
    ours = reference.forward(shape, weights, tokens, rotation_table(shape, 64, "cpu"))
    assert distance(theirs, ours) < 0.03
