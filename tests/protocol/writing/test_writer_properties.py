"""Any turn at all: numbers without a gap, events that OpenAI's SDK reads, deltas encoded as events are."""

import itertools
import re
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import omit
from openai._models import construct_type_unchecked
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import ResponseStreamEvent

from tests.protocol.parts import name, wire
from tests.protocol.writing.telling import CALL, DOUBTFUL, PATCH, SDK, ended, tell
from vivace.protocol.shapes.events import ResponseInProgress
from vivace.protocol.shapes.outcomes import (
    Broken,
    CallBegun,
    CallDelta,
    CallDone,
    CallInvalid,
    Outcome,
    ReasoningDelta,
    TextDelta,
)
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.protocol.writing.writer import SILENT_DELTAS, Numbering, ResponseWriter


def test_events_of_a_named_lane_carry_it() -> None:
    """And without a name there is no field."""
    request = ResponseCreate(input="hi")
    assert wire(ResponseWriter(request, "resp_1", "m", stream_id="a").begin()[0])["stream_id"] == "a"
    assert "stream_id" not in wire(ResponseWriter(request, "resp_1", "m").begin()[0])


def test_numbers_go_on_after_the_end() -> None:
    """For what is told of a response later."""
    writer = ResponseWriter(ResponseCreate(input="hi"), "resp_1", "m")
    count = len([*writer.begin(), *writer.write(ended("stop"))])
    event = writer.numbering.number(ResponseInProgress, response=writer.response("completed"))
    assert event.sequence_number == count
    assert Numbering().number(ResponseInProgress, response=event.response).sequence_number == 0


def test_nothing_follows_the_end() -> None:
    """A second end is our own mistake, and is caught."""
    with pytest.raises(AssertionError):
        tell(ended("stop"), ended("stop"))


def test_a_mistake_of_the_backends_leaves_room_for_the_end() -> None:
    """What cannot be told raises; the turn can still fail."""
    writer = ResponseWriter(ResponseCreate(input="hi"), "resp_1", "m")
    with pytest.raises(AssertionError):
        writer.write(CallDelta("of no call"))
    assert name(writer.write(Broken("x", "y"))[-1]) == "failed"


WORDS = st.text("ab", max_size=3)
ITEMS = st.one_of(
    st.lists(WORDS.map(TextDelta), max_size=3),
    st.lists(WORDS.map(ReasoningDelta), max_size=3),
    st.sampled_from([CALL, PATCH, CALL[:2], [*CALL[:2], CallInvalid("x")], [*CALL[:1], CallInvalid("")]]),
    st.sampled_from([[DOUBTFUL, *CALL[1:]], [DOUBTFUL, CallDelta("{")], [DOUBTFUL, CallInvalid("x")]]),
    st.just([DOUBTFUL, *[CallDelta("x")] * SILENT_DELTAS, CallDone()]),
)
ENDS = st.sampled_from(
    [ended("stop"), ended("length"), ended("steered"), ended("interrupted"), Broken("server_error", "y")]
)


@given(st.lists(ITEMS, max_size=6), ENDS, st.booleans())
def test_any_turn_is_told_well(items: list[list[Outcome]], end: Outcome, is_discarding: bool) -> None:
    """Numbers without a gap, one terminal event, items closed in their places, deltas that add up to them."""
    outcomes = itertools.chain.from_iterable(items)
    events = tell(*outcomes, end, is_discarding=is_discarding)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.is_terminal for event in events] == [False] * (len(events) - 1) + [True]
    opened: list[int] = []
    closed: list[Any] = []
    for event in map(wire, events):
        if event["type"] == "response.output_item.added":
            opened.append(event["output_index"])
            text = ""
        elif event["type"] in ("response.output_item.done", "response.output_item.interrupted"):
            assert event["output_index"] == opened[-1]
            if event["type"] == "response.output_item.done":
                closed.append(event["item"])
                assert text == said_in(event["item"])
            assert len(closed) <= len(opened)
        elif event["type"].endswith(".delta"):
            text += event["delta"]
    assert opened == list(range(len(opened)))
    assert wire(events[-1])["response"]["output"] == closed


@given(st.lists(ITEMS, max_size=6), ENDS)
def test_openais_sdk_can_read_every_event(items: list[list[Outcome]], end: Outcome) -> None:
    """Strictly, by its own types; Codex's event and reason are not in them."""
    for event in map(wire, tell(*itertools.chain.from_iterable(items), end)):
        details = event.get("response", {}).get("incomplete_details")
        if event["type"] != "response.output_item.interrupted" and details != {"reason": "interrupted"}:
            SDK.validate_python(event)


@given(st.lists(ITEMS, max_size=6), ENDS)
def test_openais_stream_helper_takes_every_turn(items: list[list[Outcome]], end: Outcome) -> None:
    """It follows items as they grow, and raises where a completed response leaves one open."""
    state = ResponseStreamState[Any](input_tools=omit, text_format=omit)
    for event in tell(*itertools.chain.from_iterable(items), end):
        if name(event) != "output_item.interrupted":  # which it passes on as it is
            state.handle_event(
                construct_type_unchecked(type_=cast(Any, ResponseStreamEvent), value=wire(event))
            )


def said_in(item: dict[str, Any]) -> str:
    match item["type"]:
        case "function_call":
            return str(item["arguments"])
        case "custom_tool_call":
            return str(item["input"])
    return "".join(part["text"] for part in item["content"])


DELTAS = st.lists(
    st.text().flatmap(
        lambda text: st.sampled_from(
            [TextDelta(text), TextDelta(text, [{"token": "a"}]), ReasoningDelta(text)]
        )
    )
    | st.sampled_from([*CALL, *PATCH, DOUBTFUL, CallDelta("é"), CallInvalid("<tool_call>")]),
    max_size=12,
)


@given(DELTAS, st.sampled_from([None, "a-lane"]))
def test_a_delta_is_encoded_as_the_event_would_be(outcomes: list[Outcome], stream_id: str | None) -> None:
    """The quick way gives the bytes of the event itself, or gives way; the answer at the end is the same."""
    quick, plain = (
        ResponseWriter(ResponseCreate(input="hi"), "resp_1", "m", stream_id=stream_id) for _ in range(2)
    )
    is_in_call = False
    for outcome in [*outcomes, ended("stop")]:
        if isinstance(outcome, CallDelta | CallDone | CallInvalid) and not is_in_call:
            continue  # a backend tells these only in a call
        is_in_call = isinstance(outcome, CallBegun | CallDelta)
        events = [msgspec.json.encode(event) for event in plain.write(outcome)]
        delta = (
            quick.encode_delta(outcome)
            if isinstance(outcome, TextDelta | ReasoningDelta | CallDelta)
            else None
        )
        if delta is None:
            delta = b"".join(msgspec.json.encode(event) for event in quick.write(outcome))
        said = [_without_ids(text) for text in (delta, b"".join(events))]
        assert said[0] == said[1]


def test_the_text_after_the_first_is_encoded_the_quick_way() -> None:
    """The first delta opens its item; those that go on with it need no event."""
    writer = ResponseWriter(ResponseCreate(input="hi"), "resp_1", "m")
    assert writer.encode_delta(TextDelta("a")) is None
    writer.write(TextDelta("a"))
    assert wire_delta(writer.encode_delta(TextDelta("b"))) == "b"
    assert writer.encode_delta(ReasoningDelta("c")) is None
    writer.write(ReasoningDelta("c"))
    assert wire_delta(writer.encode_delta(ReasoningDelta("d"))) == "d"


def wire_delta(data: bytes | None) -> str:
    assert data is not None
    return str(msgspec.json.decode(data)["delta"])


def _without_ids(data: bytes) -> bytes:
    """Without the ids of calls and the times, which differ from writer to writer."""
    return re.sub(rb'call_[0-9a-f]{24}|"created_at":\d+', b"", data)
