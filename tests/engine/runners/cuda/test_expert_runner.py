"""A mixture of experts behind the runner's seam: prompts, drafts, streams and rows of several sequences."""

from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")

for package in ("safetensors", "tokenizers", "gguf"):
    pytest.importorskip(package, reason=f"{package} is not installed: vivace extras add cuda")

from tests.engine.desk import Desk  # noqa: E402
from tests.engine.fixtures import PAYING  # noqa: E402
from tests.engine.runners.cuda.bed import distance  # noqa: E402
from tests.engine.runners.cuda.emulator import COMPILER, Emulator  # noqa: E402
from tests.engine.runners.cuda.expert_bed import BLOCKS, DEVICE  # noqa: E402
from tests.engine.runners.cuda.plain_launcher import PlainLauncher  # noqa: E402
from tests.engine.runners.cuda.test_experts import FOUR  # noqa: E402
from tests.engine.runners.cuda.test_families import SHAPES, config_of, write_folder  # noqa: E402
from tests.engine.runners.cuda.test_runner import Letters, some  # noqa: E402
from tests.folders import VOCAB, write_vocabulary  # noqa: E402
from vivace.engine.runners.base import DecodeRow, SamplingSpec, Span  # noqa: E402
from vivace.engine.runners.cuda.decode import tuning  # noqa: E402
from vivace.engine.runners.cuda.kernels.driver import Module  # noqa: E402
from vivace.engine.runners.cuda.model import reference  # noqa: E402
from vivace.engine.runners.cuda.model.vocabulary import read_vocabulary  # noqa: E402
from vivace.engine.runners.cuda.pass_choice import PassChoice  # noqa: E402
from vivace.engine.runners.cuda.runner import CudaRunner  # noqa: E402
from vivace.engine.runners.cuda.weights.build import build_model, random_weights  # noqa: E402
from vivace.engine.runners.cuda.weights.checkpoint import read_checkpoint  # noqa: E402
from vivace.engine.wire.frames import Generate, Open  # noqa: E402

pytestmark = pytest.mark.skipif(
    not COMPILER and not torch.cuda.is_available(), reason="neither an NVIDIA GPU nor a C++ compiler"
)
# Of logits. Rounding may turn a near tie of two experts: seen to cost 0.09. Another text is 1.4 away.
NEAR = 0.3


@pytest.mark.parametrize("group", [0, 2], ids=["each token", "groups"])
def test_a_prompt_a_draft_a_stream_and_rows_agree(
    group: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the text read at once in plain torch; a draft, single steps and rows say the same tokens."""
    monkeypatch.setattr(tuning, "EXPERT_GROUPS", dict.fromkeys((2, 4), group))
    plain = random_weights(FOUR, seed, DEVICE)
    model, dense = build_model(FOUR, plain, 8, DEVICE, 512)
    runner = CudaRunner(
        "test", model, dense, Letters(), bits=8, context_tokens=512, blocks=BLOCKS,
        make_launcher=Module if DEVICE == "cuda" else Emulator, max_rows=2,
    )  # fmt: skip
    text = some(61, seed)
    runner._choice = PassChoice(2)  # a prompt of this length would be read by passes of 32
    last = runner.forward([Span(0, 0, text[:60], want=1)]).copy()
    wanted = reference.forward(FOUR, plain, torch.tensor(text, device=DEVICE), model.rotation).cpu()
    assert distance(torch.tensor(last), wanted[59:60]) < NEAR
    for seq in (1, 2, 3):
        runner.share(0, seq, 60)
    said = text[60:]
    for at in range(60, 63):
        said += runner.decode(Span(1, at, said[-1:]), SamplingSpec(), steps_ahead=1)
    assert runner.decode(Span(0, 60, said[:-1]), SamplingSpec()) == said[1:]  # all of the draft is right
    rows = list(said[:1])
    for at in range(60, 63):
        both = [DecodeRow(seq, at, rows[-1], SamplingSpec()) for seq in (2, 3)]
        found = runner.decode_rows(both)
        assert found[0] == found[1]
        assert isinstance(found[0], list)
        rows += found[0]
    assert rows == said
    alone = runner.forward([Span(2, 60, said[:1], want=1)]).copy()
    assert distance(torch.tensor(alone), wanted[60:]) < NEAR


def test_a_folder_of_qwen3_moe_answers(tmp_path: Path, seed: int) -> None:
    """Read from its files: a turn alone, predicted, and two at once say what plain torch says."""
    write_vocabulary(tmp_path)
    shape = replace(SHAPES["qwen3_moe"], vocab=VOCAB)
    weights = random_weights(shape, seed)
    weights["lm_head.weight"] *= 0.4
    told = config_of("qwen3_moe", shape) | {"eos_token_id": 0}
    write_folder(tmp_path, "qwen3_moe", weights, **told)
    found, read = read_checkpoint(tmp_path)
    model, dense = build_model(found, read, 16, "cpu", 512)
    runner = CudaRunner(
        "tiny", model, dense, read_vocabulary(tmp_path, VOCAB), bits=16, context_tokens=512,
        make_launcher=PlainLauncher, blocks=5,
    )  # fmt: skip
    prompt = [token % 250 for token in some(40, seed)]

    def answer(turns: int, prediction: list[int]) -> list[list[int]]:
        for seq in range(runner.info.sequences):
            runner.trim(seq, 0)
        desk = Desk(runner, costs=PAYING)
        names = [f"t{i}" for i in range(turns)]
        desk.run(
            *(Open(name, tenant=name) for name in names),  # a shared prefix would be read in another way
            *(Generate(name, name, prompt, max_tokens=16, prediction=prediction) for name in names),
        )
        return [desk.tokens(name) for name in names]

    (alone,) = answer(1, [])
    assert answer(1, alone[:6] + alone[9:]) == [alone]
    assert answer(2, []) == [alone, alone]
    ids = torch.tensor(prompt + alone[:-1])
    rows = reference.forward(shape, weights, ids, model.rotation)[len(prompt) - 1 :]
    chosen = rows[torch.arange(len(alone)), torch.tensor(alone)]
    assert alone
    assert float((rows.amax(1) - chosen).max() / rows.std()) < NEAR
