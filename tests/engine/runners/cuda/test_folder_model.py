"""A Hugging Face folder on the runner: plain torch's tokens; a folder that is none is refused in one line."""

import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")
for package in ("safetensors", "tokenizers"):
    pytest.importorskip(package, reason=f"{package} is not installed: vivace extras add cuda")

from safetensors.torch import load_file, save_file  # noqa: E402

from tests.engine.desk import Desk  # noqa: E402
from tests.engine.runners.cuda.plain_launcher import PlainLauncher  # noqa: E402
from tests.folders import CONFIG, write_config, write_model  # noqa: E402
from vivace.bench.gpu.material import CODE_TOKENS, make_material  # noqa: E402
from vivace.engine.runners.cuda.model import reference  # noqa: E402
from vivace.engine.runners.cuda.model.vocabulary import read_vocabulary  # noqa: E402
from vivace.engine.runners.cuda.runner import CudaRunner  # noqa: E402
from vivace.engine.runners.cuda.weights.build import build_model  # noqa: E402
from vivace.engine.runners.cuda.weights.checkpoint import describe, identity_of, read_checkpoint  # noqa: E402
from vivace.engine.wire.frames import Generate, Open  # noqa: E402
from vivace.errors import StartError  # noqa: E402
from vivace.models.families.base import Message, OutputSpec  # noqa: E402
from vivace.models.families.choose import family_for  # noqa: E402
from vivace.models.tokenizer import load_tokenizer  # noqa: E402

TOKENS = 24


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("folders") / "Tiny2.5-1.5B", shards=3)


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """One's own to break."""
    return Path(shutil.copytree(whole, tmp_path / "tiny"))


def open_on_cpu(folder: Path) -> CudaRunner:
    """As `load.open_runner` does it, with plain torch in the kernels' place."""
    torch.set_num_threads(1)
    shape, weights = read_checkpoint(folder)
    model, dense = build_model(shape, weights, 16, "cpu", 512)
    return CudaRunner(
        folder.name, model, dense, read_vocabulary(folder, shape.vocab), bits=16, context_tokens=512,
        identity=identity_of(folder), make_launcher=PlainLauncher, blocks=5,
    )  # fmt: skip


def refusal(read: Any, folder: Path) -> StartError:
    with pytest.raises(StartError) as raised:
        read(folder)
    assert "\n" not in raised.value.message
    assert raised.value.hint
    return raised.value


def test_the_bench_finds_its_material_in_the_words_of_a_folder(whole: Path) -> None:
    """Code and edits for `vivace bench gpu --model FOLDER`: old text in its own tokens."""
    rows = pytest.importorskip(
        "vivace.bench.rows", reason="edits are cut by tree-sitter, which is not installed"
    )
    material = make_material(whole, None)
    tokenizer = load_tokenizer(str(whole), whole)
    texts = [row.before for row in rows.read_rows(None).rows]
    for edit in material.edits:
        old = b"".join(tokenizer.token_bytes(token) for token in edit.prediction).decode()
        longest = max(old.splitlines(), key=len)
        assert any(longest in text for text in texts), edit.name
    assert len(material.code) >= CODE_TOKENS
    assert max(material.code) < tokenizer.size  # type: ignore[attr-defined]


def test_a_turn_says_what_plain_torch_says(whole: Path) -> None:
    """A message through the folder's own vocabulary and template; greedy tokens, end tokens and bytes."""
    tokenizer = load_tokenizer(str(whole), whole)
    family = family_for(tokenizer, str(whole))
    prompt = family.render([Message("user", "def reverse(text): übrig?")])
    prompt += family.answer(prompt, OutputSpec())
    runner = open_on_cpu(whole)
    assert runner.info.end_tokens == tokenizer.end_tokens
    assert [runner.token_bytes(token) for token in prompt] == [
        tokenizer.token_bytes(token) for token in prompt
    ]
    desk = Desk(runner)
    desk.run(Open("s", list(prompt)), Generate("s", "t", max_tokens=TOKENS))
    said = desk.tokens("t")
    shape, weights = read_checkpoint(whole)
    rotation = build_model(shape, weights, 16, "cpu", 512)[0].rotation
    ids = torch.tensor(prompt + said[:-1])
    rows = reference.forward(shape, weights, ids, rotation)[len(prompt) - 1 :]
    chosen = rows[torch.arange(len(said)), torch.tensor(said)]
    assert said
    assert float((rows.amax(1) - chosen).max() / rows.std()) < 0.05


def test_one_file_or_many(whole: Path, tmp_path: Path) -> None:
    """The same model, however it is cut."""
    single = write_model(tmp_path / "single")
    (shape, weights), (other, parts) = read_checkpoint(single), read_checkpoint(whole)
    assert shape == other == describe(whole)
    assert weights.keys() == parts.keys()
    assert all(torch.equal(weights[name], parts[name]) for name in weights)


@pytest.mark.parametrize("numbers", ["float16", "float32"])
def test_other_numbers_become_ours(folder: Path, numbers: str) -> None:
    """fp16 and fp32 are taken as they are and rounded to bf16 where the model is built."""
    before = read_checkpoint(folder)[1]
    for file in folder.glob("*.safetensors"):
        save_file({n: t.to(getattr(torch, numbers)) for n, t in load_file(str(file)).items()}, str(file))
    shape, weights = read_checkpoint(folder)
    model, dense = build_model(shape, weights, 16, "cpu", 64)
    assert dense[0].down.dtype == model.embedding.dtype == torch.bfloat16
    assert torch.allclose(
        model.embedding, before["embed_tokens.weight"], atol=1e-4
    )  # fp16 has no smaller ones


def test_tied_words(folder: Path) -> None:
    """Where the head is the embedding, a copy of it is not used; where it is not, the head must be there."""
    write_config(folder, tie_word_embeddings=True)
    assert "lm_head.weight" not in read_checkpoint(folder)[1]
    for file in folder.glob("*.safetensors"):
        kept = {name: tensor for name, tensor in load_file(str(file)).items() if name != "lm_head.weight"}
        save_file(kept, str(file))
    assert describe(folder).vocab == CONFIG["vocab_size"]
    write_config(folder, tie_word_embeddings=False)
    assert "lm_head.weight is not there" in refusal(describe, folder).message


def test_saved_kv_belongs_to_the_weights(folder: Path) -> None:
    """When any shard is another, what was saved before is not read."""
    before = open_on_cpu(folder).info.kv_format
    assert open_on_cpu(folder).info.kv_format == before
    shard = next(folder.glob("*00002-of*"))
    facts = shard.stat()
    os.utime(shard, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
    assert open_on_cpu(folder).info.kv_format != before


def test_llama_3_positions(folder: Path) -> None:
    """Its stretch comes out of config.json of either age."""
    rope = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 512}  # fmt: skip
    write_config(folder, rope_scaling=rope)
    old = read_checkpoint(folder)[1]["rope_freqs.weight"]
    write_config(folder, rope_theta=None, rope_parameters=rope | {"rope_theta": CONFIG["rope_theta"]})
    shape, weights = read_checkpoint(folder)
    assert torch.equal(old, weights["rope_freqs.weight"])
    assert shape.rope_theta == CONFIG["rope_theta"]
    lengths = 2 * math.pi * 1e6 ** (torch.arange(64) / 64)  # of a turn, in tokens
    assert torch.equal(old == 8.0, lengths > 512)
    assert torch.equal(old == 1.0, lengths < 512 / 4)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "gpt2"}, "is a gpt2 model; the GPU engine knows qwen2, llama"),
        ({"model_type": None}, "is not as it should be"),
        ({"model_type": "a\n\x1b[31mb"}, r"is a a\n\x1b[31mb model"),
        ({"num_hidden_layers": 10**12}, "is not as it should be"),
        ({"num_hidden_layers": 3}, "layers.2.self_attn.q_proj.weight is not there"),
        ({"num_hidden_layers": 1}, "does not know: layers.1."),
        ({"hidden_size": "512"}, "is not as it should be"),
        ({"hidden_size": 1024, "head_dim": 128}, "is 384 by 512, and should be 384 by 1024"),
        ({"hidden_size": 384, "head_dim": 128}, "config.json says"),
        ({"intermediate_size": 1 << 24}, "and should be 16777216 by 512"),
        ({"num_attention_heads": 8}, "its heads are 64 wide, and not 128"),
        ({"num_attention_heads": 0}, "is not as it should be"),
        ({"num_key_value_heads": 4}, "config.json says"),
        ({"rms_norm_eps": float("nan")}, "is not as it should be"),
        ({"rope_theta": float("inf")}, "is not as it should be"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2}}, "it stretches positions by dynamic"),
        ({"rope_scaling": {"type": "llama3"}}, "original_max_position_embeddings"),
        ({"hidden_act": "gelu"}, "its activation is gelu"),
        ({"use_sliding_window": True}, "a sliding window"),
        ({"quantization_config": {"quant_method": "gptq"}}, "its weights are quantised (gptq)"),
    ],
)
def test_a_config_that_cannot_be_run(folder: Path, change: dict[str, Any], words: str) -> None:
    """Each says in one line what was found, before any weight is read."""
    write_config(folder, **change)
    for read in (describe, read_checkpoint):
        assert words in refusal(read, folder).message


anything = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just({}) | st.just([])


@given(changes=st.dictionaries(st.sampled_from([*CONFIG, "rope_scaling", "head_dim"]), anything))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_config_is_run_or_refused(folder: Path, changes: dict[str, Any]) -> None:
    """Whatever it says: the shape of these weights, or one line."""
    write_config(folder, **changes)
    message = ""
    try:
        assert describe(folder).layers == CONFIG["num_hidden_layers"]
    except StartError as error:
        message = error.message
    assert "\n" not in message


def test_files_that_cannot_be_read(folder: Path) -> None:
    """A part that was cut off, one that is no safetensors, one that is gone, and what is no model at all."""
    shard = sorted(folder.glob("*.safetensors"))[1]
    data = shard.read_bytes()
    for broken in (data[: len(data) // 2], data[:100], b"", b"\xff" * 400, b"hello"):
        shard.write_bytes(broken)
        for read in (describe, read_checkpoint):
            assert f"{shard.name} is damaged or was cut off" in refusal(read, folder).message
    shard.unlink()
    assert f"lacks {shard.name}" in refusal(describe, folder).message
    (folder / "config.json").unlink()
    assert "has no config.json" in refusal(describe, folder).message


def test_numbers_that_nobody_multiplies(folder: Path) -> None:
    """Weights in 8-bit integers are named."""
    file = next(folder.glob("*.safetensors"))
    save_file({name: tensor.to(torch.int8) for name, tensor in load_file(str(file)).items()}, str(file))
    assert "weights of the kind I8" in refusal(describe, folder).message


def test_a_tokenizer_of_another_model(folder: Path) -> None:
    """Tokens that the weights do not know are refused at the start, and not when one is said."""
    told = json.loads((folder / "tokenizer.json").read_text())
    told["added_tokens"].append({"id": 384, "content": "<more>"})
    (folder / "tokenizer.json").write_text(json.dumps(told))
    with pytest.raises(StartError, match="has 385 tokens, but its weights know 384"):
        read_vocabulary(folder, 384)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(StartError, match=r"has no tokenizer\.json"):
        read_vocabulary(folder, 384)
