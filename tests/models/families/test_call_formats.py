"""Every format of calls: found by what a template writes, read as it was written, and nothing lost."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.families.reading import GET, SPEC, brief, cut, read
from tests.models.families.test_cuts import lines_run
from tests.models.families.written import WRITTEN
from tests.thorough import examples
from vivace.models.families.base import CallArguments, CallEnd, CallError, CallStart, TextPart
from vivace.models.families.calls.call_format import CallFormat
from vivace.models.families.calls.call_reader import callable_tools
from vivace.models.families.calls.formats import FORMATS, PROBES, format_of
from vivace.models.families.calls.text_parser import TextParser

TOOLS = callable_tools(SPEC)
PROBE_CALLS = [(call.name, json.loads(call.arguments)) for call in PROBES]
NAMES = [one.name for one in FORMATS]
everyone = pytest.mark.parametrize("each", FORMATS, ids=NAMES)
ARGUMENTS = {"city": "Oslo", "n": 2}


def parser(each: CallFormat, before: str = "") -> TextParser:
    return TextParser(TOOLS, each.style, before=before)


def calls_in(each: CallFormat, *pieces: str, before: str = "") -> list[Any]:
    """What is read of an answer: text, and calls with their arguments as values."""
    found = brief(read(parser(each, before), *pieces))
    return [
        one if isinstance(one, str) or one[0] == "broke" else (one[0], json.loads(one[1])) for one in found
    ]


def test_every_format_has_an_example() -> None:
    """So that the tests of this file hold for all of them."""
    assert sorted(WRITTEN) == sorted(NAMES)
    assert len(set(NAMES)) == len(NAMES)


@everyone
def test_a_template_speaks_the_format_that_it_writes(each: CallFormat) -> None:
    """Two known calls, with a header's rest before and an end token behind them, tell the format."""
    write = WRITTEN[each.name]
    one, two = write(PROBE_CALLS[:1]), write(PROBE_CALLS)
    assert format_of(one, two) == each
    assert format_of(f"{one}<|end|>\n", f"{two}<|end|>\n") == each
    assert format_of(one, one) == each, "some templates write the first call only"


def test_text_without_those_calls_is_no_format() -> None:
    """Nothing, other arguments, or a form that we do not know."""
    for text in ("", "Hello", '<tool_call>{"name": "get_weather", "arguments": {}}</tool_call>'):
        assert format_of(text) is None
    assert format_of(f"CALL get_weather WITH {PROBES[0].arguments}") is None


@everyone
def test_a_call_is_told_apart_from_the_text_before_it(each: CallFormat) -> None:
    """Text and two calls, as a whole and letter by letter."""
    written = WRITTEN[each.name]([("get", ARGUMENTS), ("now", {})])
    before = [] if each.name == "llama" else ["I look."]  # its call is the whole answer
    text = f"{before[0]}\n{written}" if before else written
    expected = [*before, ("get", ARGUMENTS), ("now", {})]
    for pieces in ([text], text):
        assert [
            one.rstrip("\n") if isinstance(one, str) else one for one in calls_in(each, *pieces)
        ] == expected


@everyone
def test_a_call_is_announced_and_its_arguments_stream(each: CallFormat) -> None:
    """The name is told long before the end, and a long text comes in many pieces."""
    written = WRITTEN[each.name]([("get", {"city": "a long street " * 20})])
    reader = parser(each)
    parts = [part for letter in written[: len(written) // 2] for part in reader.feed(letter)]
    assert CallStart(GET) in parts
    assert sum(isinstance(part, CallArguments) for part in parts) > 20


@everyone
def test_a_call_that_breaks_off_is_told_whole(each: CallFormat) -> None:
    """The output ends inside of the arguments: all of the call is in the error, nothing is lost."""
    written = WRITTEN[each.name]([("get", ARGUMENTS)])
    broken = written[: written.index("Oslo") + 2]
    *_, last = read(parser(each), broken)
    assert last == CallError(broken)


@everyone
def test_calls_of_unknown_tools_stay_text(each: CallFormat) -> None:
    """No call is announced of a tool that nobody gave."""
    written = WRITTEN[each.name]([("other", ARGUMENTS)])
    parts = read(parser(each), written)
    assert not any(isinstance(part, CallStart) for part in parts)
    assert "".join(part.text for part in parts if isinstance(part, TextPart)) == written


@everyone
def test_an_answer_goes_on_inside_of_a_call(each: CallFormat) -> None:
    """What was said before is in the log; the call is told from its beginning."""
    written = WRITTEN[each.name]([("get", ARGUMENTS)])
    name = "Oslo" if each.name == "llama" else "get"  # a bare call is none before its arguments
    for size in (written.index(name) + 3, written.index("Oslo") + 2):
        assert calls_in(each, written[size:], before=written[:size]) == [("get", ARGUMENTS)]


@everyone
def test_a_call_that_was_told_is_not_told_again(each: CallFormat) -> None:
    """The log ends inside of the second of two calls, or behind both: only what is new is told."""
    written = WRITTEN[each.name]([("get", {"city": "Rome"}), ("get", ARGUMENTS)])
    size = written.index("Oslo") + 2
    calls = calls_in(each, written[size:], before=written[:size])
    if each.name != "llama":  # there the first call is in the log as text
        assert calls == [("get", ARGUMENTS)]
    assert [one for one in calls_in(each, "", before=written) if isinstance(one, tuple)] == []


@everyone
def test_a_required_call_goes_on_behind_the_opening(each: CallFormat) -> None:
    """What `Family.answer` writes is the beginning of what the format writes."""
    written = WRITTEN[each.name]([("get", ARGUMENTS)])
    assert written.startswith(each.opening)
    rest = written.removeprefix(each.opening)
    assert calls_in(each, *rest, before=each.opening) == [("get", ARGUMENTS)]


# ---- any calls, any text, any cuts ------------------------------------------------------------------

LETTERS = st.characters(codec="utf-8", exclude_characters="<'\\\r", exclude_categories=["Cs"])
VALUES = st.recursive(
    st.booleans() | st.integers() | st.text(LETTERS, max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2)
    ),
    max_leaves=5,
)
CALLS = st.lists(
    st.tuples(
        st.just("get"),
        st.fixed_dictionaries(
            {"city": st.text(LETTERS, max_size=12)},
            optional={
                "n": st.integers(-99, 10**6),
                "kind": st.sampled_from(["big", "small"]),
                "any": st.lists(VALUES, max_size=2)
                | st.dictionaries(st.sampled_from("ab"), VALUES, max_size=2),
            },
        ),
    ),
    min_size=1,
    max_size=3,
)


@everyone
@settings(max_examples=examples(10))
@given(calls=CALLS, size=st.integers(1, 30))
def test_what_is_written_is_read(
    each: CallFormat, calls: list[tuple[str, dict[str, Any]]], size: int
) -> None:
    """Any calls, in any pieces, come back as they were."""
    if each.name == "minimax-m3":  # without a schema, only the looks of a value tell what it is
        calls = [
            (name, {key: value for key, value in found.items() if key != "any"}) for name, found in calls
        ]
    written = WRITTEN[each.name](calls)
    assert calls_in(each, *(written[i : i + size] for i in range(0, len(written), size))) == calls


COMMON = [
    "\n", " ", "{", "}", "[", "]", ",", '"', "\\", "(", ")", "=", ":", "'", "get", "patch", "now", "city",
    "input", '{"name": "get", "arguments": ', '{"n": 1}', '{"input": "x"}', "a", "é", "<", "0", "```json",
    "```", "function",
]  # fmt: skip


def texts(each: CallFormat) -> st.SearchStrategy[str]:
    """Text of the format's own markers and pieces of its calls."""
    example = WRITTEN[each.name]([("get", ARGUMENTS), ("patch", {"input": "x"})])
    style = each.style
    marks = [*style.openers, *style.closers, *style.ends, *style.dropped, *each.markers]
    pieces = st.sampled_from([*COMMON, *marks, *marks, example])
    cuts = st.tuples(st.integers(0, len(example)), st.integers(0, len(example)))
    return st.lists(pieces | cuts.map(lambda ends: example[min(ends) : max(ends)]), max_size=12).map("".join)


@everyone
@settings(max_examples=examples(12))
@given(data=st.data())
def test_cuts_change_nothing_and_nothing_is_lost(each: CallFormat, data: st.DataObject) -> None:
    """Any pieces give the same parts; where no call comes of it, all that was said is in them."""
    pieces = data.draw(cut(texts(each)))
    text = "".join(pieces)
    whole = read(parser(each), text)
    assert read(parser(each), *pieces) == whole
    assert read(parser(each), *text) == whole
    brief(whole)
    if not any(isinstance(part, CallEnd) for part in whole) and not any(
        m in text for m in each.style.dropped
    ):
        assert "".join(part.text for part in whole if isinstance(part, TextPart | CallError)) == text


@everyone
@pytest.mark.parametrize("size", [1, 10**9], ids=["letters", "whole"])
def test_work_grows_with_the_length_only(each: CallFormat, size: int) -> None:
    """Eight times the text is eight times the work, for calls, markers, long values and half a call."""
    written = WRITTEN[each.name]([("get", {"city": "CITY", "any": ["ANY"]})])
    head, tail = written.split("CITY")
    inside, _ = written.split("ANY")
    shapes = [
        ("", written),
        ("", each.style.openers[0]),
        ("", written[: len(written) // 2]),
        (head, "x\n"),
        (head, "".join(each.markers)[:60] + " "),
        (inside, "y\\"),
        (inside, "', ',"),
        (head + tail[: len(tail) // 3], "a"),
    ]
    for begin, loop in shapes:

        def work(times: int, begin: str = begin, loop: str = loop) -> int:
            reader, answer = parser(each), begin + loop * times
            pieces = [answer[i : i + size] for i in range(0, len(answer), size)]
            return lines_run(lambda: [reader.feed(piece) for piece in pieces])

        assert work(16) <= 9 * work(2) + 600, (begin, loop)
