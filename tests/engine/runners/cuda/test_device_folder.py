"""A Hugging Face folder on a real GPU, from its files through the engine: plain torch's tokens."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")
for package in ("safetensors", "tokenizers", "msgspec"):
    pytest.importorskip(package, reason=f"{package} is not installed: vivace extras add cuda")

from tests.engine.desk import Desk  # noqa: E402
from tests.folders import write_model  # noqa: E402
from vivace.engine.loop.opening import open_runner  # noqa: E402
from vivace.engine.runners.cuda.decode.launches import rotation_table  # noqa: E402
from vivace.engine.runners.cuda.model import reference  # noqa: E402
from vivace.engine.runners.cuda.runner import CudaRunner  # noqa: E402
from vivace.engine.runners.cuda.weights.checkpoint import read_checkpoint  # noqa: E402
from vivace.engine.wire.frames import Generate, Open  # noqa: E402
from vivace.engine.wire.job import Job  # noqa: E402
from vivace.models.families.base import Message, OutputSpec  # noqa: E402
from vivace.models.families.choose import family_for  # noqa: E402
from vivace.models.tokenizer import load_tokenizer  # noqa: E402

TOKENS = 48


@pytest.mark.parametrize("bits", [16, 8])
def test_a_folder_on_the_gpu(tmp_path: Path, bits: int) -> None:
    """Opened as the engine process opens it; nothing but kernels is kept beside it."""
    folder = write_model(tmp_path / "Tiny2.5-1.5B", shards=2)
    job = Job(
        str(folder), str(folder), context_tokens=1024, device="cuda", weight_bits=bits,
        gpu_folder=str(tmp_path / "cache"), gpu_prefill="bf16",
    )  # fmt: skip
    runner = open_runner(job).runner
    assert isinstance(runner, CudaRunner)
    assert runner.info.name == folder.name
    tokenizer = load_tokenizer(str(folder), folder)
    assert runner.info.end_tokens == tokenizer.end_tokens
    family = family_for(tokenizer, str(folder))
    prompt = family.render([Message("user", "def reverse(text): return 'übrig'\n" * 8)])
    prompt += family.answer(prompt, OutputSpec())
    desk = Desk(runner)
    desk.run(Open("s", list(prompt)), Generate("s", "t", max_tokens=TOKENS))
    said = desk.tokens("t")
    assert said
    shape, weights = read_checkpoint(folder)
    ids = torch.tensor(prompt + said[:-1])
    rows = reference.forward(shape, weights, ids, rotation_table(shape, 1024, "cpu"))[len(prompt) - 1 :]
    chosen = rows[torch.arange(len(said)), torch.tensor(said)]
    assert float((rows.amax(1) - chosen).max() / rows.std()) < (0.05 if bits == 16 else 0.15)
    assert not list((tmp_path / "cache").glob("*.safetensors"))
    runner.close()
