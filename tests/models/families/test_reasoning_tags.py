"""Reasoning between any model's tags: told apart, in any cuts, and found in what a template writes."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.families.reading import SPEC, brief, cut, read
from tests.thorough import examples
from vivace.models.families.base import ReasoningPart, TextPart
from vivace.models.families.calls.call_reader import callable_tools
from vivace.models.families.calls.known_formats import FORMATS, GEMMA, HERMES
from vivace.models.families.calls.reasoning import KNOWN, THINKING, Reasoning, reasoning_of, tags
from vivace.models.families.calls.text_parser import Style, TextParser

everyone = pytest.mark.parametrize("each", KNOWN, ids=[one.opening for one in KNOWN])
CALL = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'


def parser(each: Reasoning, before: str = "", style: Style = HERMES.style) -> TextParser:
    return TextParser(callable_tools(SPEC), _with(style, each), before=before)


def _with(style: Style, each: Reasoning) -> Style:

    return msgspec.structs.replace(style, reasoning=each)


@everyone
def test_reasoning_is_told_apart(each: Reasoning) -> None:
    """Before text and before a call; the tags and their line breaks are nobody's."""
    for rest, expected in (("Yes.", "Yes."), (CALL, ("now", "{}"))):
        text = f"{each.begun}Hm.\nSo.{each.ended}{rest}"
        for pieces in ([text], text):
            assert brief(read(parser(each), *pieces)) == [("mused", "Hm.\nSo."), expected]


@everyone
def test_an_answer_goes_on_inside_of_reasoning(each: Reasoning) -> None:
    """The tag may be the template's, or the model's before an interrupt; behind its end comes the answer."""
    assert brief(read(parser(each, each.begun), f"Hm.{each.ended}Yes.")) == [("mused", "Hm."), "Yes."]
    assert brief(read(parser(each, f"{each.begun}Let me"), f" see{each.ended}Yes.")) == [
        ("mused", " see"),
        "Yes.",
    ]
    assert brief(read(parser(each, each.skipped), "Yes.")) == ["Yes."]


@everyone
@settings(max_examples=examples(40))
@given(data=st.data())
def test_cuts_change_nothing_and_words_are_kept(each: Reasoning, data: st.DataObject) -> None:
    """Only one pair of tags, and space around them, is not told."""
    words = st.sampled_from(
        [each.opening, each.closing, each.begun, each.ended, "\n", " ", "a", "<", "[", CALL[:9]]
    )
    pieces = data.draw(cut(st.lists(words, max_size=9).map("".join)))
    text = "".join(pieces)
    whole = read(parser(each), text)
    assert read(parser(each), *pieces) == whole
    told = "".join(part.text for part in whole if isinstance(part, TextPart | ReasoningPart))
    if not each.is_repeated and not text.lstrip().startswith(each.opening):
        assert told == text
    else:
        gone = text.replace(each.opening, "").replace(each.closing, "")
        assert len("".join(told.split())) >= len("".join(gone.split()))


def test_reasoning_may_come_again_where_the_model_does_so() -> None:
    """Gemma 4 thinks again behind text; Qwen's tag in text is text."""
    gemma = next(one for one in KNOWN if one.opening == "<|channel>thought")
    text = "One. <|channel>thought\nHm.\n<channel|>Two."
    for pieces in ([text], text):
        assert brief(read(parser(gemma, style=GEMMA.style), *pieces)) == ["One. ", ("mused", "Hm."), "Two."]
    assert brief(read(parser(THINKING), "One. <think>Two.")) == ["One. <think>Two."]


@everyone
def test_a_template_tells_its_tags_and_line_breaks(each: Reasoning) -> None:
    """From an answer that it wrote, or from both tags in its own text."""
    written = f"<|assistant|>{each.begun}THOUGHT{each.ended}ANSWER<|end|>"
    assert reasoning_of(written, "THOUGHT", "ANSWER") == each
    assert reasoning_of(f"if {each.opening} then {each.closing}") == each
    assert reasoning_of(f"no {each.closing}") is None
    bare = reasoning_of(f"{each.opening}THOUGHT{each.closing}ANSWER", "THOUGHT", "ANSWER")
    assert bare == tags(each.opening, each.closing, is_repeated=each.is_repeated)


def test_text_markers_are_not_told() -> None:
    """Command frames its answers, functionary names them; the frames are dropped in any cuts."""
    by_name = {one.name: one.style for one in FORMATS}
    for name, text in (
        ("command", "<|START_RESPONSE|>Hi.<|END_RESPONSE|>"),
        ("functionary-3.2", ">>>all\nHi."),
        ("kimi-k3", "<|open|>response<|sep|>Hi.<|close|>response<|sep|>"),
    ):
        for pieces in ([text], text):
            assert brief(read(TextParser(callable_tools(SPEC), by_name[name]), *pieces)) == ["Hi."]
