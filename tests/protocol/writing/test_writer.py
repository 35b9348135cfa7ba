"""One turn, told as events."""

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
from pydantic import TypeAdapter

from tests.protocol.parts import name, wire
from vivace.protocol.shapes.events import AnyEvent, ResponseInProgress, Usage, Waterfall
from vivace.protocol.shapes.outcomes import (
    Broken,
    CallBegun,
    CallDelta,
    CallDone,
    CallInvalid,
    Ended,
    Outcome,
    Queued,
    ReasoningDelta,
    Started,
    TextDelta,
)
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.protocol.writing.writer import SILENT_DELTAS, Numbering, ResponseWriter

SDK: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
CALL: list[Outcome] = [CallBegun("look"), CallDelta('{"a":'), CallDelta("1}"), CallDone()]
PATCH: list[Outcome] = [CallBegun("patch", is_custom=True, namespace="files"), CallDelta("***"), CallDone()]
DOUBTFUL = CallBegun("look", is_sure=False)


def ended(reason: str, scores: list[float] | None = None) -> Ended:
    return Ended(reason, Usage(3, 2, 5), Waterfall(), scores)


def tell(*outcomes: Outcome, is_discarding: bool = False, **fields: Any) -> list[AnyEvent]:
    request = ResponseCreate(**{"input": "hi"} | fields)
    writer = ResponseWriter(request, "resp_1", "m", is_discarding=is_discarding)
    events = writer.begin()
    for outcome in outcomes:
        events += writer.write(outcome)
    return events


def names(events: list[AnyEvent]) -> list[str]:
    return [name(event) for event in events]


def last(*outcomes: Outcome, **fields: Any) -> Any:
    return tell(*outcomes, **fields)[-1].response  # type: ignore[union-attr]


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


# ---- calls that never became whole ------------------------------------------------------------------


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


# ---- interrupts that discard ------------------------------------------------------------------------


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


# ---- waiting ----------------------------------------------------------------------------------------


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


# ---- the response object ----------------------------------------------------------------------------


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


# ---- numbers ----------------------------------------------------------------------------------------


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
