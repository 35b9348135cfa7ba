"""Calls that never became whole, and items that an interrupt discards."""

import pytest

from tests.protocol.parts import name, wire
from tests.protocol.writing.telling import CALL, DOUBTFUL, PATCH, ended, last, names, tell
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
from vivace.protocol.writing.writer import SILENT_DELTAS, ResponseWriter


@pytest.mark.parametrize(
    "after",
    [
        [ended("stop")],
        [ended("length")],
        [ended("steered")],
        [Broken("x", "y")],
        [TextDelta("a"), ended("stop")],
        [ReasoningDelta("a"), ended("stop")],
        [CallBegun("other"), CallDelta("{}"), CallDone(), ended("stop")],
        [CallInvalid(""), ended("stop")],
    ],
)
def test_half_a_call_is_never_called_done(after: list[Outcome]) -> None:
    """However the turn goes on or ends, no client runs half a command."""
    events = tell(CallBegun("rm", call_id="half"), CallDelta('{"path": "/'), *after)
    done = [event.item for event in events if name(event) == "output_item.done"]
    assert not [item for item in done if getattr(item, "call_id", "") == "half"]
    assert not [item for item in events[-1].response.output if getattr(item, "call_id", "") == "half"]
    assert names(events).count("output_item.interrupted") == 1


def test_a_call_that_was_none_becomes_text() -> None:
    """What the model wrote is not lost."""
    response = last(
        CallBegun("f"), CallDelta("{"), CallInvalid("<tool_call>{"), TextDelta(" so"), ended("length")
    )
    assert response.output_text == "<tool_call>{ so"
    assert len(response.output) == 1


def test_a_turn_that_was_only_a_lost_call_has_answered() -> None:
    """With an empty message, like one that said nothing."""
    response = last(DOUBTFUL, CallInvalid(""), ended("stop"))
    assert [item.status for item in response.output] == ["completed"]
    assert response.output_text == ""


def test_a_doubtful_call_is_told_when_it_is_whole() -> None:
    """Then all at once; the message before it was over when it began."""
    events = tell(TextDelta("a"), DOUBTFUL, CallDelta('{"a":'), CallDelta("1}"))
    assert names(events)[-1] == "output_item.done"
    assert wire(events[-1])["item"]["type"] == "message"
    events = tell(TextDelta("a"), DOUBTFUL, CallDelta('{"a":'), CallDelta("1}"), CallDone())
    assert names(events)[-4:] == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    item = wire(events[-1])["item"]
    assert (item["arguments"], item["id"]) == ('{"a":1}', "fc_101")


def test_a_long_doubtful_call_is_not_silent() -> None:
    """Clients wait minutes for an event, and a slow machine may write longer: it is still in progress."""
    events = tell(DOUBTFUL, *[CallDelta("x")] * (2 * SILENT_DELTAS + 1))
    assert names(events)[2:] == ["in_progress", "in_progress"]


@pytest.mark.parametrize("reason", ["stop", "length", "interrupted"])
def test_a_doubtful_call_that_is_none_was_never_told(reason: str) -> None:
    """It is text, and the response ends as it would without it."""
    events = tell(DOUBTFUL, CallDelta("{'"), CallInvalid("<tool_call>{'"), ended(reason))
    assert names(events)[2:] == [
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed" if reason == "stop" else "incomplete",
    ]
    assert events[-1].response.output_text == "<tool_call>{'"


def test_a_response_with_half_a_call_that_was_told_is_not_completed() -> None:
    """Clients cannot take an item back in one that is: it looks cut off."""
    response = last(CallBegun("f"), CallDelta("{"), CallInvalid("{"), TextDelta(" so"), ended("stop"))
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert response.output_text == "{ so"


def test_calls_are_those_that_the_client_must_answer() -> None:
    """Whole ones, of both kinds."""
    writer = ResponseWriter(ResponseCreate(input="hi"), "resp_1", "m")
    for outcome in (*CALL, *PATCH, CallBegun("half")):
        writer.write(outcome)
    assert [call.name for call in writer.calls] == ["look", "patch"]


def test_an_item_that_an_interrupt_cut_off_can_be_dropped() -> None:
    """It is said to be interrupted, and is no part of the response; what was whole stays."""
    events = tell(*CALL, TextDelta("half"), ended("interrupted"), is_discarding=True)
    assert names(events)[-2:] == ["output_item.interrupted", "incomplete"]
    assert wire(events[-2]) == {
        "type": "response.output_item.interrupted",
        "sequence_number": len(events) - 2,
        "response_id": "resp_1",
        "item_id": "msg_101",
        "output_index": 1,
    }
    assert [item.id for item in events[-1].response.output] == ["fc_1"]


def test_a_turn_that_ended_before_the_interrupt_is_whole() -> None:
    """Discarding is for what is not whole."""
    assert last(TextDelta("all"), ended("stop"), is_discarding=True).output_text == "all"
