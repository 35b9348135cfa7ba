"""Parsers against any text in any cuts: the same parts, nothing lost, no more work than there is text."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.families import tokenizers
from tests.models.families.reading import SPEC, brief, cut, read
from tests.thorough import examples
from vivace.models.families.base import (
    CallEnd,
    CallError,
    Family,
    OutputSpec,
    Parser,
    ReasoningPart,
    TextPart,
)
from vivace.models.families.harmony.family import Harmony
from vivace.models.families.llama3 import Llama3
from vivace.models.families.qwen3 import Qwen3
from vivace.models.families.qwen3coder import Qwen3Coder
from vivace.models.families.qwen25 import Qwen25

CHATML, HARMONY = tokenizers.chatml(), tokenizers.harmony()
GPT_OSS = Harmony(HARMONY)
FAMILIES: dict[str, Family] = {
    "qwen25": Qwen25(CHATML),
    "qwen3": Qwen3(CHATML),
    "qwen3coder": Qwen3Coder(CHATML),
    "llama3": Llama3(tokenizers.llama()),
}
FRAGMENTS = [
    "<tool_call>", "</tool_call>", "<think>", "</think>", "<|python_tag|>", "```json", "```", "\n", " ", "{",
    "}", '{"name": "get"', ', "arguments": ', '{"name": "get", "arguments": {', '"name"', ": ", '"', '"n": 1',
    '"patch"', "\\", "\\u00e9", "\\ud83d", ",", ";", "[", "]", "null", "a", "é", "<", "<function=get>",
    "<function=patch>", "<parameter=city>", "<parameter=input>", "</parameter>", "</function>",
    '{"input": "x"}',
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join) | st.text(max_size=20)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
@settings(max_examples=examples(400))
@given(pieces=cut(TEXTS))
def test_cuts_change_nothing(family: Family, pieces: list[str]) -> None:
    """An answer in any pieces gives the same parts as in one, and every call that begins ends or breaks."""
    whole = read(family.parser(SPEC, []), "".join(pieces))
    assert read(family.parser(SPEC, []), *pieces) == whole
    brief(whole)


@pytest.mark.parametrize("name", ["qwen25", "qwen3coder", "llama3"])
@settings(max_examples=examples(400))
@given(text=TEXTS)
def test_nothing_is_lost(name: str, text: str) -> None:
    """Where no call comes of it, all that was said is in the parts, letter by letter."""
    parts = read(FAMILIES[name].parser(SPEC, []), text)
    if not any(isinstance(part, CallEnd) for part in parts):
        assert "".join(part.text for part in parts if isinstance(part, TextPart | CallError)) == text


@settings(max_examples=examples(300))
@given(text=TEXTS)
def test_reasoning_loses_only_its_frame(text: str) -> None:
    """Of an answer with reasoning and without calls, only the markers and the space around them are gone."""
    parts = read(FAMILIES["qwen3"].parser(OutputSpec(), []), text)
    found = "".join(part.text for part in parts if isinstance(part, TextPart | ReasoningPart))
    if not text.lstrip().startswith("<think>"):
        assert found == text
    else:
        bare = text.lstrip().removeprefix("<think>").replace("</think>", "", 1)
        assert "".join(found.split()) == "".join(bare.split())


# ---- work -------------------------------------------------------------------------------------------


def lines_run(work: Callable[[], object]) -> int:
    """How many lines of the families' code a piece of work runs."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace if "families" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


HARD = {
    "text": "a < b <tool_call no ",
    "markers": "<tool_call><tool_call>",
    "space": "\n \n",
    "strings": '<tool_call>{"name": "get", "arguments": {"city": "' + "\\n\\u00e9",
    "braces": '{"name": "get", "arguments": {"any": ' + "[{",
    "fences": "```json\n",
    "calls": '<tool_call>\n{"name": "get", "arguments": {}}\n</tool_call>\n',
    "tags": "<function=get><parameter=city>\n</parameter>\n",
    "values": "<function=get><parameter=city>" + "\n</parameter>\n<parameter=any>x",
    "thoughts": "<think>\n</thin",
}


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
@pytest.mark.parametrize("text", HARD.values(), ids=HARD)
@pytest.mark.parametrize("size", [1, 7, 10**9], ids=["letters", "pieces", "whole"])
def test_work_grows_with_the_length_only(family: Family, text: str, size: int) -> None:
    """Ten times the text is ten times the work, in letters, in pieces or as a whole; little is held back."""
    begin, loop = (text[:-8], text[-8:]) if len(text) > 30 else ("", text)

    def work(times: int) -> tuple[int, Parser]:
        parser, answer = family.parser(SPEC, []), begin + loop * times
        pieces = [answer[i : i + size] for i in range(0, len(answer), size)]
        return lines_run(lambda: [parser.feed(piece) for piece in pieces]), parser

    few, _ = work(20)
    many, parser = work(200)
    assert many <= 11 * few + 200
    assert len(parser._held) < 20  # type: ignore[attr-defined]


def test_harmony_works_as_fast() -> None:
    """Reasoning, arguments and free text of any length cost the same for each letter."""

    def work(letters: int) -> int:
        parser = GPT_OSS.parser(SPEC, [])
        parser.control("<|channel|>")
        parser.feed("commentary to=functions.get")
        parser.control("<|message|>")
        return lines_run(lambda: [parser.feed(letter) for letter in '{"city": "' + "a\\n{" * letters])

    assert work(200) <= 11 * work(20)


@settings(max_examples=examples(200))
@given(pieces=cut(TEXTS))
def test_cuts_change_nothing_in_a_body_of_harmony(pieces: list[str]) -> None:
    """The text of a message in any pieces gives the same parts."""
    for head in ("final", "analysis", "commentary to=functions.get", "commentary to=functions.patch"):

        def parser(head: str = head) -> Parser:
            found = GPT_OSS.parser(SPEC, [])
            found.control("<|channel|>")
            found.feed(head)
            found.control("<|message|>")
            return found

        first, second = parser(), parser()
        assert read(second, *pieces) == read(first, "".join(pieces))
