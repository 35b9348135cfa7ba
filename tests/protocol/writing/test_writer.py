"""One turn, told as events: its items, its end, its place in the line, and the response object."""

from typing import Any

import msgspec
import pytest

from tests.protocol.parts import name, wire
from tests.protocol.writing.telling import CALL, PATCH, SDK, ended, last, names, tell
from vivace.protocol.shapes.events import ResponseInProgress
from vivace.protocol.shapes.outcomes import (
    Broken,
    CallBegun,
    Outcome,
    Queued,
    ReasoningDelta,
    Started,
    TextDelta,
)
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.protocol.writing.writer import ResponseWriter


def test_an_answer_is_told_in_the_order_of_the_api() -> None:
    """Created, the item, its part, deltas, and everything closed again in reverse."""
    assert names(tell(TextDelta("a"), TextDelta("b"), ended("stop"))) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]


def test_a_call_is_told_when_it_is_whole() -> None:
    """Tools start at `output_item.done`: it comes with the call's end, before the turn's."""
    events = tell(*CALL)
    assert names(events)[2:] == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    item = wire(events[-1])["item"]
    assert (item["type"], item["name"], item["arguments"]) == ("function_call", "look", '{"a":1}')
    assert (item["status"], item["id"]) == ("completed", "fc_1")
    assert item["call_id"].startswith("call_")
    assert "namespace" not in item


def test_a_custom_call_has_input_and_not_arguments() -> None:
    """Free-form tools, such as apply_patch; the namespace is told if there is one."""
    events = tell(*PATCH)
    assert names(events)[3:] == [
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
    ]
    item = wire(events[-1])["item"]
    assert (item["type"], item["input"], item["namespace"]) == ("custom_tool_call", "***", "files")
    assert item["id"] == "ctc_1"


def test_a_call_keeps_the_id_that_the_backend_gave() -> None:
    """An upstream's ids are its own."""
    assert wire(tell(CallBegun("f", call_id="call_9"))[-1])["item"]["call_id"] == "call_9"


def test_reasoning_is_an_item_of_its_own() -> None:
    """Closed when the answer begins."""
    response = last(ReasoningDelta("hm"), ReasoningDelta("."), TextDelta("yes"), ended("stop"))
    reasoning, message = response.output
    assert (reasoning.content[0].text, reasoning.status, reasoning.id) == ("hm.", "completed", "rs_1")
    assert message.content[0].text == "yes"


def test_items_have_their_places_and_ids() -> None:
    """Indices count up; no two items share an id."""
    events = tell(TextDelta("a"), *CALL, *CALL, ReasoningDelta("b"), TextDelta("c"), ended("stop"))
    added = [event for event in events if name(event) == "output_item.added"]
    assert [event.output_index for event in added] == [0, 1, 2, 3, 4]
    assert len({event.item.id for event in added}) == 5
    assert len(events[-1].response.output) == 5


def test_log_probabilities_come_with_the_text() -> None:
    """With each delta, and all of them with the whole."""
    first, second = [{"token": "a"}], [{"token": "b"}]
    events = tell(TextDelta("a", first), TextDelta("b", second), ended("stop"))
    assert [event.logprobs for event in events if name(event) == "output_text.delta"] == [first, second]
    assert events[-1].response.output[0].content[0].logprobs == first + second


@pytest.mark.parametrize(
    ("end", "terminal", "status", "reason"),
    [
        (ended("stop"), "completed", "completed", None),
        (ended("length"), "incomplete", "incomplete", "max_output_tokens"),
        (ended("interrupted"), "incomplete", "incomplete", "interrupted"),
        (ended("steered"), "incomplete", "incomplete", "steered"),
        (Broken("engine_died", "twice"), "failed", "failed", None),
    ],
)
def test_every_end_has_its_event(end: Outcome, terminal: str, status: str, reason: str | None) -> None:
    """The terminal event carries the whole response, with what was said so far."""
    event = tell(TextDelta("a"), end)[-1]
    assert name(event) == terminal
    assert event.is_terminal
    response = event.response
    assert (response.status, response.output_text) == (status, "a")
    assert (response.incomplete_details and response.incomplete_details.reason) == reason
    assert response.output[0].status == ("completed" if status == "completed" else "incomplete")


def test_a_failure_says_why() -> None:
    """Code and message, and no usage."""
    response = last(Broken("engine_died", "twice"))
    assert (response.error.code, response.error.message, response.usage) == ("engine_died", "twice", None)


def test_an_empty_answer_is_an_answer() -> None:
    """A model that says nothing has still answered with a message."""
    assert [message.content[0].text for message in last(ended("stop")).output] == [""]


def test_a_turn_cut_short_before_its_first_word_has_no_output() -> None:
    """Nothing was said, and nothing is made up."""
    assert last(ended("interrupted")).output == []


def test_a_warm_up_has_no_output() -> None:
    """Prefill only: created and completed, and no item."""
    assert names(tell(ended("appended"), generate=False)) == ["created", "in_progress", "completed"]


def test_scores_come_with_the_response() -> None:
    """Scored candidates are in the completed response, and in no other."""
    assert last(ended("scored", [-1.0, -2.0]), generate=False).scores == [-1.0, -2.0]
    assert "scores" not in wire(last(ended("stop")))


def test_a_turn_that_waits_says_where() -> None:
    """Created and queued; again when the place changes; in progress when it starts."""
    writer = ResponseWriter(ResponseCreate(input="hi"), "resp_1", "m")
    created, queued = writer.begin(Queued(3, 4.5))
    assert (created.response.status, queued.response.status) == ("queued", "queued")  # type: ignore[union-attr]
    assert wire(queued)["response"]["vivace"]["queue"] == {"position": 3, "estimate_s": 4.5}
    (moved,) = writer.write(Queued(1, 1.0))
    assert wire(moved)["response"]["vivace"]["queue"]["position"] == 1
    (going,) = writer.write(Started())
    assert isinstance(going, ResponseInProgress)
    assert going.response.status == "in_progress"


def test_a_change_of_place_does_not_repeat_the_request() -> None:
    """Everyone in line hears of it when somebody leaves; before and after, all that was asked is told."""
    asked: dict[str, Any] = {"instructions": "x" * 10_000, "tools": [{"type": "function", "name": "look"}]}
    writer = ResponseWriter(ResponseCreate(input="hi", **asked), "resp_1", "m")
    told = [*writer.begin(Queued(3, 4.5)), *writer.write(Queued(2, 1.0)), *writer.write(Started())]
    sizes = [len(msgspec.json.encode(event)) for event in told]
    assert sizes[2] < 1500 < 10_000 < min(sizes[0], sizes[1], sizes[3])
    for event in told:
        SDK.validate_python(wire(event))


def test_the_response_repeats_the_request() -> None:
    """Settings as they were asked for, and the API's defaults for the rest."""
    response = wire(
        last(
            ended("stop"),
            instructions="be brief",
            metadata={"a": "b"},
            store=False,
            temperature=0.5,
            top_p=0.9,
        )
    )
    assert (response["instructions"], response["metadata"], response["store"]) == (
        "be brief",
        {"a": "b"},
        False,
    )
    assert (response["temperature"], response["top_p"], response["object"]) == (0.5, 0.9, "response")
    assert (response["tool_choice"], response["tools"], response["truncation"]) == ("auto", [], "disabled")
    assert response["text"] == {"format": {"type": "text"}}


def test_usage_has_what_clients_need() -> None:
    """Codex reads all of these."""
    usage = wire(last(ended("stop")))["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (3, 2, 5)
    assert usage["input_tokens_details"]["cached_tokens"] == 0
    assert usage["output_tokens_details"]["reasoning_tokens"] == 0
