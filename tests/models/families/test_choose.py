"""Which family a model belongs to: by the catalog, by its chat template, by its architecture."""

from pathlib import Path

import pytest

from tests.models.families import tokenizers
from tests.models.families.tokenizers import NamedTokenizer, real_tokenizer
from vivace.errors import StartError
from vivace.models import gguf_vocab
from vivace.models.catalog import CATALOG
from vivace.models.families.base import Message, OutputSpec
from vivace.models.families.choose import FAMILIES, family_for, known, template_of
from vivace.models.families.harmony.family import Harmony
from vivace.models.families.llama3 import Llama3
from vivace.models.families.qwen25 import Qwen25
from vivace.models.families.template.family import TemplateFamily
from vivace.models.tokenizer import ByteTokenizer


@pytest.mark.parametrize(
    ("told", "family"),
    [("qwen2", "qwen2.5"), ("qwen3moe", "qwen3"), ("gpt-oss", "harmony"), ("llama", "llama3")],
)
def test_an_architecture_tells_the_family_where_there_is_no_template(told: str, family: str) -> None:
    """Files without a chat template are rare, and these architectures have one format."""
    assert known(told).family == family
    assert not known(told).refusal


def test_what_is_not_known_is_refused() -> None:
    """An architecture that nobody knows, a template that frames nothing, one that is none."""
    for told in ("", "something", "{% for m in messages %}{{ m.content }}{% endfor %}", "{% if %}"):
        assert known(told).refusal.endswith(".")


QWEN = (
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\nSo: ' }}{% endif %}"
    "{# You are Qwen, created by: <tool_call> <tool_response> enable_thinking #}"
)


def test_marks_do_not_decide(tmp_path: Path) -> None:
    """A template with every mark of Qwen's that writes something else gets what it writes."""
    path = tmp_path / "v.gguf"
    tokenizer = real_tokenizer(
        path, tokenizers.CHATML, tokenizers.QWEN_WORDS, end="<|im_end|>", template=QWEN
    )
    family = family_for(tokenizer, str(path))
    assert isinstance(family, TemplateFamily)
    log = family.render([Message("user", "hi")])
    log += family.answer(log, OutputSpec())
    text = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nSo: "
    assert log == gguf_vocab.tokenize(tokenizer._vocab, text.encode(), special=True)


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
    tokenizer = real_tokenizer(
        path, tokenizers.CHATML, tokenizers.QWEN_WORDS, end="<|im_end|>", template=QWEN
    )
    assert template_of(path) == QWEN
    assert isinstance(family_for(tokenizer, str(path)), TemplateFamily)
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
