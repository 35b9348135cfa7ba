"""How thinking that was cut short is ended in the log, for each family that thinks."""

import pytest

from tests.models.families import tokenizers
from vivace.models.families.base import Family, Message, OutputSpec, ReasoningPart, TextPart, Tool
from vivace.models.families.harmony.family import Harmony
from vivace.models.families.qwen3 import Qwen3
from vivace.models.families.qwen25 import Qwen25

pytestmark = pytest.mark.unit
ASKED = [Message("user", "go")]
THOUGHT = "let me see"


def begun(family: Family, spec: OutputSpec) -> list[int]:
    log = family.render(ASKED)
    return log + family.answer(log, spec)


@pytest.mark.parametrize("cut", range(len(THOUGHT) + 1))
def test_qwen3_answers_behind_any_piece_of_thinking(cut: int) -> None:
    """Wherever the thinking is cut, what follows the end is the answer's text."""
    tokenizer, spec = tokenizers.chatml(), OutputSpec()
    family = Qwen3(tokenizer)
    log = begun(family, spec)
    parser = family.parser(spec, log)
    said = tokenizer.encode(f"<think>\n{THOUGHT[:cut]}")
    ending = family.end_thinking(log + said, spec)
    assert tokenizer.shown(ending) == "\n</think>\n\n"
    parts = parser.feed(tokenizer.shown(said)) + parser.feed(tokenizer.shown(ending)) + parser.feed("Yes.")
    parts += parser.finish()
    assert "".join(part.text for part in parts if isinstance(part, TextPart)) == "Yes."
    assert "".join(part.text for part in parts if isinstance(part, ReasoningPart)) == THOUGHT[:cut]
    assert family.end_thinking(log + said + ending, spec) == [], "it is ended once"


def test_qwen3_skips_thinking_that_has_not_begun() -> None:
    """In front of the first token, an empty thought is written."""
    tokenizer = tokenizers.chatml()
    family = Qwen3(tokenizer)
    ending = family.end_thinking(begun(family, OutputSpec()), OutputSpec())
    assert tokenizer.shown(ending) == "<think>\n\n</think>\n\n"


@pytest.mark.parametrize("thinking", ["never", "optional"])
def test_what_does_not_think_has_nothing_to_end(thinking: str) -> None:
    """A family, a model or a request without thinking is left as it is, an open call included."""
    tokenizer = tokenizers.chatml()
    spec = OutputSpec(effort="low", tools=(Tool("look"),))
    family = Qwen3(tokenizer, thinking=thinking)  # type: ignore[arg-type]
    log = begun(family, spec) + tokenizer.encode('<tool_call>\n{"name": "look"')
    assert family.end_thinking(log, spec) == []
    assert Qwen25(tokenizer).end_thinking(log, spec) == []


def test_harmony_goes_on_in_the_final_channel() -> None:
    """Analysis is ended, and the answer begun; a call that is required may still come."""
    tokenizer = tokenizers.harmony()
    family = Harmony(tokenizer)
    log = begun(family, OutputSpec())
    header = [
        tokenizer.control("<|channel|>"),
        *tokenizer.encode("analysis"),
        tokenizer.control("<|message|>"),
    ]
    thinking = log + header + tokenizer.encode(THOUGHT)
    ended = "<|end|><|start|>assistant<|channel|>"
    assert tokenizer.shown(family.end_thinking(thinking, OutputSpec())) == f"{ended}final<|message|>"
    required = OutputSpec(tools=(Tool("look"),), choice="required")
    assert tokenizer.shown(family.end_thinking(thinking, required)) == ended
    assert tokenizer.shown(family.end_thinking(log, OutputSpec())) == "<|channel|>final<|message|>"
    whole = thinking + family.end_thinking(thinking, OutputSpec())
    assert family.end_thinking(whole, OutputSpec()) == []
