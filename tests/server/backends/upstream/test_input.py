"""The free text of custom tools inside JSON arguments, and calls that come in pieces of several at once."""

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from vivace.protocol.shapes.outcomes import CallBegun, CallDelta, CallDone, Outcome, TextDelta
from vivace.protocol.shapes.tools import Choice
from vivace.server.backends.upstream.dialects.chat_reader import ChatReader
from vivace.server.backends.upstream.dialects.custom_input import InputText, wrapped
from vivace.server.backends.upstream.dialects.tools import Toolbox
from vivace.server.backends.upstream.errors import Problems
from vivace.server.backends.upstream.sequencer import OutcomeSequencer
from vivace.server.backends.upstream.settings import parse_upstream

PROBLEMS = Problems(parse_upstream("box=http://a/v1"))
texts = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('"\\/\n\t{}:😀é'))


def cut(text: str, places: list[int]) -> list[str]:
    ends = sorted({0, len(text), *(place for place in places if place < len(text))})
    return [text[start:end] for start, end in itertools.pairwise(ends)]


@given(texts, st.booleans(), st.lists(st.integers(0, 400)))
def test_the_input_comes_out_of_its_json(text: str, is_ascii: bool, places: list[int]) -> None:
    """Any text, escaped in either way and cut anywhere, is given back as it was."""
    data = json.dumps({"input": text}, ensure_ascii=is_ascii)
    found = InputText()
    said = [found.feed(piece) for piece in cut(data, places)]
    assert "".join(said) + found.finish() == text


@given(st.text('{}"\\input: u0dx8\n', max_size=60), st.lists(st.integers(0, 60)))
def test_whatever_comes_gives_text_that_can_be_sent(data: str, places: list[int]) -> None:
    """Malformed arguments raise nothing, and cuts do not matter."""
    results = []
    for pieces in ([data], cut(data, places)):
        found = InputText()
        results.append("".join(map(found.feed, pieces)) + found.finish())
    assert results[0] == results[1]
    results[0].encode()


def test_half_a_character_stays_half() -> None:
    """What JSON writes in two is one character; a half alone is replaced, and what follows it is kept."""
    for data, text in [
        ("\\ud83d\\ude00", "😀"),
        ("\\ud83dx", "\ufffdx"),
        ("\\ude00\\n", "\ufffd\n"),
        ("\\ud83d", "\ufffd"),
    ]:
        found = InputText()
        assert found.feed(f'{{"input": "{data}"}}') + found.finish() == text


def test_the_input_grows_as_it_comes() -> None:
    """A client sees a patch grow; it does not wait for its end."""
    found = InputText()
    pieces = ['{"in', 'put":', ' "*** Be', "gin\\", 'n", "x": 1}']
    assert [found.feed(piece) for piece in pieces] == ["", "", "*** Be", "gin", "\n"]


def test_other_arguments_are_understood_at_the_end() -> None:
    """One other name, a bare string, or no JSON at all: the text is what the model meant."""
    for data, text in [
        ('{"patch": "a\\n"}', "a\n"),
        ('"a"', "a"),
        ("ls -l", "ls -l"),
        ('{"a":1,"b":2}', '{"a":1,"b":2}'),
    ]:
        found = InputText()
        assert found.feed(data) + found.finish() == text
    assert json.loads(wrapped("a\nb")) == {"input": "a\nb"}


arguments = st.dictionaries(st.text("ab{}", max_size=3), st.text('x{}[]"\\,: ', max_size=8), max_size=3).map(
    json.dumps
)


@st.composite
def interleavings(draw: st.DrawFn) -> tuple[list[str], list[tuple[int, str]]]:
    """Arguments of some calls, and a mixture of their pieces that keeps the order within each call."""
    calls = draw(st.lists(arguments, min_size=1, max_size=4))
    queues = [
        (index, cut(call, draw(st.lists(st.integers(0, 40), max_size=4)))) for index, call in enumerate(calls)
    ]
    order = draw(st.permutations([index for index, pieces in queues for _ in pieces]))
    iterators = {index: iter(pieces) for index, pieces in queues}
    return calls, [(index, next(iterators[index])) for index in order]


@given(interleavings())
def test_calls_in_any_mixture_are_told_one_by_one(mixture: tuple[list[str], list[tuple[int, str]]]) -> None:
    """Each call begins once, is whole before the next begins, and has exactly its own arguments."""
    calls, pieces = mixture
    outcomes: list[Outcome] = []
    reader = ChatReader(OutcomeSequencer(outcomes.append), Toolbox([], Choice()), PROBLEMS)
    begun: list[int] = []
    for index, piece in pieces:
        function: dict[str, str] = {"arguments": piece}
        if index not in begun:
            begun.append(index)
            function["name"] = f"f{index}"
        delta = {"tool_calls": [{"index": index, "id": f"id{index}", "function": function}]}
        reader.read_event("", json.dumps({"choices": [{"delta": delta}]}))
    reader.read_event("", json.dumps({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}))
    told: list[tuple[str, str]] = []
    is_open = False
    for outcome in outcomes:
        match outcome:
            case CallBegun(name=name):
                assert not is_open
                is_open = True
                told.append((name, ""))
            case CallDelta(delta=delta_text):
                assert is_open
                told[-1] = (told[-1][0], told[-1][1] + delta_text)
            case CallDone():
                is_open = False
            case _:
                raise AssertionError(outcome)
    assert not is_open
    assert told == [(f"f{index}", calls[index]) for index in begun]


def test_text_beside_a_call_waits_for_its_end() -> None:
    """Text in the middle of a call neither ends the call nor is lost."""
    outcomes: list[Outcome] = []
    sequencer = OutcomeSequencer(outcomes.append)
    first = sequencer.begin_call(CallBegun("a"))
    sequencer.extend_call(first, "{")
    sequencer.text("hm")
    second = sequencer.begin_call(CallBegun("b"))
    sequencer.end_call(second)
    sequencer.extend_call(first, "}")
    assert outcomes == [CallBegun("a"), CallDelta("{"), CallDelta("}")]
    sequencer.end_call(first)
    assert outcomes[3:] == [CallDone(), TextDelta("hm"), CallBegun("b"), CallDone()]
