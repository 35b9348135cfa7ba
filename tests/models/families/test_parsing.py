"""Calls and reasoning in what models of plain text say: Qwen2.5, Qwen3, Llama 3."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.families import tokenizers
from tests.models.families.reading import GET, SPEC, brief, read
from vivace.models.families.base import CallArguments, CallStart, OutputSpec, TextPart
from vivace.models.families.llama3 import Llama3
from vivace.models.families.qwen3 import Qwen3
from vivace.models.families.qwen25 import Qwen25

CHATML = tokenizers.chatml()
QWEN, QWEN3, LLAMA = Qwen25(CHATML), Qwen3(CHATML), Llama3(tokenizers.llama())


def said(text: str, spec: OutputSpec = SPEC) -> list[tuple[str, ...] | str]:
    """What becomes of an answer of Qwen2.5's, whole and letter by letter alike."""
    whole = brief(read(QWEN.parser(spec, []), text))
    assert brief(read(QWEN.parser(spec, []), *text)) == whole
    return whole


def call(arguments: str, name: str = "get") -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


# ---- calls ------------------------------------------------------------------------------------------


def test_text_and_calls_are_told_apart() -> None:
    """Text, two calls, text: the white space that frames calls is nobody's."""
    arguments = '{"city": "Oslo", "n": 2}'
    text = f"I look.\n{call(arguments)}\n{call('{}', 'now')}\nDone."
    assert said(text) == ["I look.", ("get", arguments), ("now", "{}"), "Done."]


def test_a_call_is_announced_when_its_name_is_whole() -> None:
    """The name is told before any argument has come, and arguments as they come."""
    parser = QWEN.parser(SPEC, [])
    assert parser.feed('<tool_call>\n{"name": "get') == []
    assert parser.feed('", ') == [CallStart(GET)]
    assert parser.feed('"arguments": {"ci') == [CallArguments('{"ci')]
    assert parser.feed('ty": "O') == [CallArguments('ty": "O')]


@given(st.dictionaries(st.text(max_size=5), st.none() | st.booleans() | st.integers() | st.text(max_size=9)))
def test_arguments_are_told_as_they_were_written(arguments: dict[str, object]) -> None:
    """Whatever the arguments are, their JSON comes through unchanged."""
    for text in (json.dumps(arguments), json.dumps(arguments, ensure_ascii=False, indent=2)):
        assert said(call(text)) == [("get", text)]


def test_arguments_before_the_name_wait_for_it() -> None:
    """Which tool it is decides what they are; then they are told at once."""
    assert said('<tool_call>{"arguments": {"n": 1}, "name": "get"}</tool_call>') == [("get", '{"n": 1}')]
    text = '<tool_call>{"arguments": {"input": "a\\nb"}, "name": "patch"}</tool_call>'
    assert said(text) == [("patch", "a\nb")]


def test_arguments_in_a_string_lose_their_escapes() -> None:
    """Some models write the arguments as OpenAI's API does, as JSON in a string."""
    assert said(call(json.dumps('{"city": "a\\"é😀"}'))) == [("get", '{"city": "a\\"é😀"}')]


def test_a_call_without_arguments_has_none() -> None:
    """Left out or null: an empty object."""
    assert said('<tool_call>\n{"name": "now"}\n</tool_call>') == [("now", "{}")]
    assert said(call("null", "now")) == [("now", "{}")]


@given(st.text(max_size=30))
def test_a_custom_tool_gets_its_text_without_escapes(text: str) -> None:
    """Free text comes in a JSON string and goes on as it is."""
    for arguments in (json.dumps({"input": text}), json.dumps(text), json.dumps({"a": 1, "input": text})):
        assert said(call(arguments, "patch")) == [("patch", text)]


def test_line_breaks_and_backslashes_in_strings_are_escaped() -> None:
    """Small models write code into JSON as it is; the client gets JSON all the same."""
    (found,) = said(call('{"city": "grep \\d+ \\\nx\ty \\u12 \\u00e9"}'))
    assert json.loads(found[1]) == {"city": "grep \\d+ \\\nx\ty \\u12 é"}


# ---- forms that small models use --------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "get", "arguments": {"n": 1}}',
        '\n{ "name" : "get" , "arguments" : {"n": 1} }\n',
        '```json\n{"name": "get", "arguments": {"n": 1}}\n```',
        '```\n{"name": "get", "arguments": {"n": 1}}\n```\n',
        '{{"name": "get", "arguments": {"n": 1}}}',
        '{"type": "function", "name": "get", "parameters": {"n": 1}}',
        '<tool_call>{"name": "get", "arguments": {"n": 1}}',
        '<tool_call>{"name": "get", "arguments": {"n": 1}',
        '<tool_call>\n{"name": "get", "arguments": {"n": 1}\n</tool_call>',
        '<tool_call>\n{{"name": "get", "arguments": {"n": 1}}}\n</tool_call>',
        '{"name": "get", "arguments": {"n": 1}}\n</tool_call>',
    ],
)
def test_a_call_is_understood_without_its_frame(text: str) -> None:
    """A whole answer that can only be a call is one: bare, in a fence, with a brace or a closer too few."""
    assert said(text) == [("get", '{"n": 1}')]


def test_bare_calls_may_follow_each_other() -> None:
    """Several objects, and a word at the end."""
    one = '{"name": "now", "arguments": {}}'
    assert said(f"{one}\n{one}") == [("now", "{}"), ("now", "{}")]
    assert said(f"```json\n{one}\n```\n```json\n{one}\n```\nDone") == [("now", "{}"), ("now", "{}"), "Done"]


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "other", "arguments": {}}',
        '{"name": "get", "description": "a tool"}',
        '{"arguments": {}, "name": "get"}',
        '{"name": "get", "arguments": [1]}',
        '{"name": "get"}',
        '```json\n{"city": "Oslo"}\n```',
        '```python\nprint({"name": "get", "arguments": {}})\n```',
        "```json\n[1]\n```",
        "``",
        "```json",
        'So: {"name": "get", "arguments": {}}',
        "Calls stand between <tool_call> and </tool_call>.",
        'A<tool_call>{"name": "other", "arguments": {}}</tool_call>B',
        "<tool_call>[]</tool_call>",
        "a < b, <tool, <tool_call",
        "  \n ",
    ],
)
def test_what_is_no_call_stays_text(text: str) -> None:
    """Nothing of it is swallowed, and no call is announced."""
    assert said(text) == [text]


def test_without_tools_everything_is_text() -> None:
    """Where no tool may be called, a call is only a text about one, and nothing waits."""
    text = call("{}")
    for spec in (OutputSpec(), OutputSpec(tools=(GET,), choice="none")):
        assert said(text, spec) == [text]
    assert QWEN.parser(OutputSpec(), []).feed("a <tool_ca") == [TextPart("a <tool_ca")]


# ---- calls that are none after all ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ('<tool_call>\n{"name": "get", "arguments": {"city": "Os', ""),
        ('<tool_call>\n{"name": "get", "arg', ""),
        ('{"name": "get", "arguments": {"city', ""),
        ('```json\n{"name": "get", "arguments": {"city', ""),
        ('x\n<tool_call>{"name": "get", "arguments": {"n": tru}', "}</tool_call>"),
        ('<tool_call>{"name": "get", "arguments": [1]', "}</tool_call>"),
        ('<tool_call>{"name": "get", "arguments": "no JSON"', "}</tool_call>"),
        ('<tool_call>{"name": "patch", "arguments": {"x": "y"}', "}"),
        ('<tool_call>{"name": "get" ', "oops}</tool_call>"),
    ],
)
def test_a_call_that_breaks_off_or_is_malformed_is_told_as_text(text: str, broken: str) -> None:
    """What began as a call comes back whole, as the model wrote it; what follows is text."""
    found = said(text + broken)
    before = "x" if text.startswith("x") else ""
    assert found == [
        *([before] if before else []),
        ("broke", text.removeprefix("x")),
        *([broken] if broken else []),
    ]


def test_a_call_goes_on_where_an_answer_stopped_in_it() -> None:
    """An answer that continues an interrupted one tells of the call from its beginning."""
    log = QWEN.answer([], SPEC) + CHATML.encode('Hm\n<tool_call>\n{"name": "get", "argu')
    assert brief(read(QWEN.parser(SPEC, log), 'ments": {"n": 1}}', "\n</tool_call>")) == [("get", '{"n": 1}')]
    log += CHATML.encode('ments": {"n": 1}}')
    assert brief(read(QWEN.parser(SPEC, log), "\n</tool_call>\nDone")) == ["Done"]
    doubled = QWEN.answer([], SPEC) + CHATML.encode('<tool_call>{{"name": "get", "arguments": {}}')
    assert brief(read(QWEN.parser(SPEC, doubled), "}</tool_call>Done")) == ["Done"]


# ---- reasoning --------------------------------------------------------------------------------------


def thought(text: str, before: str = "") -> list[tuple[str, ...] | str]:
    log = QWEN3.answer([], OutputSpec(effort="high")) + CHATML.encode(before)
    whole = brief(read(QWEN3.parser(SPEC, log), text))
    assert brief(read(QWEN3.parser(SPEC, log), *text)) == whole
    return whole


def test_reasoning_is_told_apart_from_the_answer() -> None:
    """Qwen3 thinks first; the line breaks around its thoughts are nobody's."""
    assert thought("<think>\nHm.\n\nSo.\n</think>\n\nYes.") == [("mused", "Hm.\n\nSo."), "Yes."]
    text = f"<think>\nHm\n</think>\n\n{call('{}', 'now')}"
    assert thought(text) == [("mused", "Hm"), ("now", "{}")]
    assert thought("<think>\n\n</think>\n\nYes.") == ["Yes."]
    assert thought("Yes. <think>no") == ["Yes. <think>no"]
    assert thought("<think>\nHm <tool_call>") == [("mused", "Hm <tool_call>")]


def test_reasoning_that_was_begun_for_the_model_goes_on() -> None:
    """Behind a `<think>` in the log everything is reasoning until its end."""
    assert thought("Hm\n</think>\n\nYes", "<think>\n") == [("mused", "Hm"), "Yes"]
    assert thought("Yes", "<think>\n\n</think>\n\n") == ["Yes"]
    assert thought("x\n</think>\n\nYes", "<think>\nA <tool_call> ") == [("mused", "x"), "Yes"]


# ---- Llama ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"name": "get", "parameters": {"n": 1}}', [("get", '{"n": 1}')]),
        (
            '{"name": "now", "parameters": {}}; {"name": "now", "parameters": {}}',
            [("now", "{}"), ("now", "{}")],
        ),
        ('{"name": "patch", "parameters": {"input": "a\\nb"}}', [("patch", "a\nb")]),
        ("Hello.", ["Hello."]),
    ],
)
def test_llama_calls_with_an_object(text: str, expected: list[tuple[str, ...] | str]) -> None:
    """The object is the whole answer, with or without `<|python_tag|>` before it."""
    assert brief(read(LLAMA.parser(SPEC, []), text)) == expected
    if text.startswith("{"):
        parser = LLAMA.parser(SPEC, [])
        parts = parser.feed("So:\n") + parser.control("<|python_tag|>")
        assert brief(parts + read(parser, *text)) == ["So:", *expected]
