"""Which family a model belongs to: by the catalog, by its chat template, by its architecture."""

from pathlib import Path

import pytest

from tests.models.families import tokenizers
from tests.models.families.tokenizers import NamedTokenizer, real_tokenizer
from vivace.errors import StartError
from vivace.models.catalog import CATALOG
from vivace.models.families.choose import FAMILIES, family_for, kind_of, template_of
from vivace.models.families.harmony.family import Harmony
from vivace.models.families.llama3 import Llama3
from vivace.models.families.qwen3 import Qwen3
from vivace.models.families.qwen25 import Qwen25
from vivace.models.tokenizer import ByteTokenizer

CHATML = "{{- '<|im_start|>' + message.role + '\\n' }}"


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        (CHATML, "chatml"),
        (CHATML + "You are Qwen, created by Alibaba Cloud. <tool_call> <tool_response>", "qwen2.5"),
        (CHATML + "a helpful AI assistant named SmolLM", "smollm2"),
        (CHATML + "<tool_call> <tool_response> {%- if enable_thinking is false %}<think>", "qwen3"),
        (CHATML + "<tool_response> {{- '<|im_start|>assistant\\n<think>\\n' }}", "qwen3-thinking"),
        (CHATML + "<tool_call> <tool_response>", "qwen3-instruct"),
        (CHATML + "<tool_response> <function=example>", "qwen3-coder"),
        (CHATML + "<function=example> enable_thinking", "qwen3-coder-thinking"),
        ("{{- '<|start_header_id|>system<|end_header_id|>' }}", "llama3"),
        ("<|start|>system<|message|> <|channel|>analysis", "harmony"),
        ("[INST] [TOOL_CALLS] + name + [ARGS]", "mistral"),
        ("[INST] [TOOL_CALLS] + name + [CALL_ID] + id + [ARGS]", "chatml"),  # which it is not: it is refused
        ("qwen2", "qwen2.5"),
        ("qwen3moe", "qwen3"),
        ("gpt-oss", "harmony"),
        ("llama", "llama3"),
        ("", "chatml"),
        ("something", "chatml"),
    ],
)
def test_a_template_or_an_architecture_tells_the_family(told: str, kind: str) -> None:
    """Each has something that no other has."""
    assert kind_of(told) == kind
    assert kind in FAMILIES


def test_known_models_say_it_in_the_catalog() -> None:
    """Every card of a file with a template names a family that exists; a scripted model speaks ChatML."""
    for card in CATALOG:
        if card.template:
            continue
        assert card.family in FAMILIES
        assert isinstance(family_for(tokenizers.chatml(), card.name), Qwen25)
    assert isinstance(family_for(ByteTokenizer(), "scripted:anything.json"), Qwen25)


def test_a_file_of_the_users_tells_it_itself(tmp_path: Path) -> None:
    """The chat template inside it is read, or else its architecture."""
    path = tmp_path / "mine.gguf"
    template = CHATML + "<tool_response> enable_thinking"
    tokenizer = real_tokenizer(
        path, tokenizers.CHATML, tokenizers.QWEN_WORDS, end="<|im_end|>", template=template
    )
    assert template_of(path) == template
    family = family_for(tokenizer, str(path))
    assert isinstance(family, Qwen3)
    bare = tmp_path / "bare.gguf"
    real_tokenizer(bare, tokenizers.LLAMA, end="<|eot_id|>")
    assert template_of(bare) == "llama"
    assert template_of(tmp_path / "none.gguf") == ""


def test_each_family_finds_its_tokens() -> None:
    """The vocabulary of a family's models is enough to make it."""
    for name, make in FAMILIES.items():
        special = {
            "llama3": tokenizers.llama(),
            "harmony": tokenizers.harmony(),
            "mistral": tokenizers.mistral(),
        }
        tokenizer = special.get(name, tokenizers.chatml())
        family = make(tokenizer)
        assert set(family.stop_tokens) <= {256 + place for place in range(len(tokenizer.names))}
    assert isinstance(FAMILIES["llama3"](tokenizers.llama()), Llama3)
    assert isinstance(FAMILIES["harmony"](tokenizers.harmony()), Harmony)


def test_a_model_without_the_tokens_of_any_format_is_refused(tmp_path: Path) -> None:
    """It is said in one sentence, with what to do."""
    path = tmp_path / "odd.gguf"
    tokenizer = real_tokenizer(path, ["<s>", "</s>"], end="</s>", template="[INST] {{ message }} [/INST]")
    for told in (tokenizer, NamedTokenizer(["<s>"])):
        with pytest.raises(StartError) as refused:
            family_for(told, str(path))
        assert "odd.gguf" in refused.value.message
        assert "vivace models" in refused.value.hint
