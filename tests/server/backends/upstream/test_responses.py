"""Answers of upstreams that speak the Responses API, well and in their own ways, over real sockets."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.server.backends.upstream.fake import Asker, Fake, completed, responses
from vivace.protocol.shapes.items import InputItem, Part
from vivace.protocol.shapes.outcomes import CallBegun, CallDelta, ReasoningDelta, TextDelta

FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object"}}
PATCH = {"type": "custom", "name": "apply_patch"}
MESSAGE = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Hello."}],
}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": '{"a":1}'}
CUSTOM = {
    "type": "custom_tool_call",
    "id": "ctc_1",
    "call_id": "c2",
    "name": "apply_patch",
    "input": "*** Begin\n",
}
THOUGHT = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "Hm."}],
}
USAGE = {
    "input_tokens": 7,
    "output_tokens": 2,
    "total_tokens": 9,
    "input_tokens_details": {"cached_tokens": 3},
    "output_tokens_details": {"reasoning_tokens": 1},
}


@pytest.fixture
async def box(fake: Fake) -> AsyncIterator[Asker]:
    async with Asker(fake, api="responses") as asker:
        yield asker


def added(item: dict[str, Any], index: int = 0) -> dict[str, Any]:
    begun = (
        item | ({"arguments": ""} if "arguments" in item else {}) | ({"input": ""} if "input" in item else {})
    )
    return {"type": "response.output_item.added", "output_index": index, "item": begun}


def done(item: dict[str, Any], index: int = 0) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def delta(kind: str, text: str, index: int = 0, **fields: Any) -> dict[str, Any]:
    return {
        "type": f"response.{kind}.delta",
        "output_index": index,
        "item_id": f"i{index}",
        "delta": text,
    } | fields


TEXT = [added(MESSAGE), delta("output_text", "Hel"), delta("output_text", "lo."), done(MESSAGE)]
ARGUMENTS = [delta("function_call_arguments", '{"a"', 1), delta("function_call_arguments", ":1}", 1)]


async def test_text_is_told_as_it_comes(fake: Fake, box: Asker) -> None:
    """Deltas are told, and not again when their item is done or the response is completed."""
    begun = {"type": "response.created", "response": {"id": "r1", "output": []}}
    fake.play(responses(begun, *TEXT, completed(MESSAGE, usage=USAGE)))
    told = await box.ask()
    assert told.text == "Hello."
    assert told.ended.reason == "stop"
    usage = told.ended.usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (7, 2, 9)
    assert usage.input_tokens_details.cached_tokens == 3
    assert usage.output_tokens_details.reasoning_tokens == 1
    assert fake.calls[0].path == "/v1/responses"
    assert fake.calls[0].body["input"] == [{"type": "message", "role": "user", "content": "hello"}]


@pytest.mark.parametrize(
    "events",
    [
        [done(MESSAGE), completed(MESSAGE)],  # no deltas
        [completed(MESSAGE)],  # no items
        [*TEXT[1:3], completed(MESSAGE)],  # only deltas
        [*TEXT, completed()],  # no output at the end
        [*TEXT, completed({"type": "reasoning", "summary": []}, MESSAGE)],  # counted differently at the end
        [delta("reasoning_text", "Hm."), completed(THOUGHT, MESSAGE)],  # only the reasoning in deltas
        [
            added(THOUGHT),
            delta("reasoning_text", "Hm."),
            added(MESSAGE, 1),
            *TEXT[1:3],
            done(THOUGHT),
            done(MESSAGE, 1),
            completed(),
        ],
    ],
)
async def test_nothing_is_told_twice_or_not_at_all(
    fake: Fake, box: Asker, events: list[dict[str, Any]]
) -> None:
    """Whichever of the three places a server uses, the text is told once."""
    fake.play(responses(*events))
    told = await box.ask()
    assert told.text == "Hello."
    assert told.musing in ("", "Hm.")


async def test_reasoning_is_told_once(fake: Fake, box: Asker) -> None:
    """Itself or its summary, whichever comes first; parts of a summary are paragraphs."""
    part = {"type": "response.reasoning_summary_part.added", "summary_index": 1}
    events = [delta("reasoning_summary_text", "One."), part, delta("reasoning_summary_text", "Two.")]
    fake.play(responses(*events, delta("reasoning_text", "Again."), *TEXT, completed()))
    assert (await box.ask()).musing == "One.\n\nTwo."
    fake.play(responses(delta("reasoning_text", "Raw."), *events, *TEXT, completed()))
    assert (await box.ask()).musing == "Raw."
    fake.play(responses(done(THOUGHT), done(MESSAGE), completed(THOUGHT, MESSAGE)))
    told = await box.ask()
    assert told.outcomes[:2] == [ReasoningDelta("Hm."), TextDelta("Hello.")]


@pytest.mark.parametrize(
    "events",
    [
        [added(CALL, 1), *ARGUMENTS, done(CALL, 1), completed(CALL)],
        [added(CALL, 1), done(CALL, 1), completed(CALL)],  # no deltas
        [done(CALL, 1), completed(CALL)],  # not even its beginning
        [completed(CALL)],
        [added(CALL, 1), ARGUMENTS[0], done(CALL, 1), completed(CALL)],  # the last delta is missing
        [added(CALL, 1), *ARGUMENTS, completed(CALL)],  # it is never done
    ],
)
async def test_a_call_in_any_shape_is_a_call(fake: Fake, box: Asker, events: list[dict[str, Any]]) -> None:
    """Its arguments are whole, once, however they come."""
    fake.play(responses(*events))
    told = await box.ask(tools=[FUNCTION])
    assert told.calls == [("f", '{"a":1}')]
    assert CallBegun("f", call_id="c1") in told.outcomes


async def test_arguments_are_told_as_they_come(fake: Fake, box: Asker) -> None:
    """Each delta is one."""

    def script(call: Any) -> None:
        call.head()
        for event in [added(CALL, 1), ARGUMENTS[0]]:
            call.event(event)
        call.hang()

    fake.play(script)
    turn = box.begin(tools=[FUNCTION])
    async for outcome in turn.outcomes():
        if isinstance(outcome, CallDelta):
            break
    assert outcome == CallDelta('{"a"')
    turn.interrupt()


async def test_custom_calls_are_custom_calls(fake: Fake, box: Asker) -> None:
    """Their input is free text; a server that calls them as functions is understood too."""
    deltas = [delta("custom_tool_call_input", "*** Be"), delta("custom_tool_call_input", "gin\n")]
    fake.play(responses(added(CUSTOM), *deltas, done(CUSTOM), completed(CUSTOM)))
    told = await box.ask(tools=[PATCH])
    assert told.calls == [("apply_patch", "*** Begin\n")]
    assert CallBegun("apply_patch", is_custom=True, call_id="c2") in told.outcomes
    wrapped = CALL | {"name": "apply_patch", "arguments": '{"input": "*** Begin\\n"}'}
    fake.play(
        responses(
            added(wrapped), delta("function_call_arguments", '{"input": "**'), done(wrapped), completed()
        )
    )
    assert (await box.ask(tools=[PATCH])).calls == [("apply_patch", "*** Begin\n")]


async def test_parallel_calls_are_kept_apart(fake: Fake, box: Asker) -> None:
    """One after the other, mixed, or all under one index."""
    other = CALL | {"id": "fc_2", "call_id": "c3", "arguments": '{"b":2}'}
    mixed = [
        *(added(CALL, 0), added(other, 1)),
        *(delta("function_call_arguments", '{"b"', 1), delta("function_call_arguments", '{"a":1}', 0)),
        *(done(CALL, 0), done(other, 1)),
    ]
    for events in (mixed, [added(CALL), done(CALL), added(other), done(other)], [done(CALL), done(other)]):
        fake.play(responses(*events, completed(CALL, other)))
        assert (await box.ask(tools=[FUNCTION])).calls == [("f", '{"a":1}'), ("f", '{"b":2}')]


@pytest.mark.parametrize(
    ("given", "reason"), [("max_output_tokens", "length"), ("content_filter", "content_filter")]
)
async def test_an_incomplete_answer_says_why(fake: Fake, box: Asker, given: str, reason: str) -> None:
    """What was said stays; half a call is none."""
    end = completed(status="incomplete", incomplete_details={"reason": given})
    fake.play(responses(*TEXT[:3], added(CALL, 1), ARGUMENTS[0], end))
    told = await box.ask(tools=[FUNCTION])
    assert (told.text, told.calls, told.ended.reason) == ("Hello.", [], reason)


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (completed(status="failed", error={"code": "server_error", "message": "Boom."}), "upstream_error"),
        (
            completed(status="failed", error={"code": "rate_limit_exceeded", "message": "Slow."}),
            "rate_limit_exceeded",
        ),
        (
            completed(status="failed", error={"code": "context_length_exceeded", "message": "x"}),
            "context_length_exceeded",
        ),
        (completed(status="failed"), "upstream_error"),
        (completed(status="cancelled"), "upstream_error"),
        (completed(status="incomplete", incomplete_details={"reason": "tired"}), "upstream_error"),
        ({"type": "error", "code": "server_error", "message": "Boom."}, "upstream_error"),
        ({"type": "error", "error": {"code": "insufficient_quota", "message": "Pay."}}, "insufficient_quota"),
        ({"type": "error", "message": "maximum context length is 10"}, "context_length_exceeded"),
    ],
)
async def test_a_failure_in_the_middle_is_told(
    fake: Fake, box: Asker, event: dict[str, Any], code: str
) -> None:
    """With the code that clients act on; what was said before stays."""
    fake.play(responses(*TEXT[:3], event))
    told = await box.ask()
    assert (told.text, told.broken.code) == ("Hello.", code)
    assert "Upstream box (127.0.0.1:" in told.broken.message


async def test_a_server_that_does_not_stream_is_understood(fake: Fake, box: Asker) -> None:
    """The whole response is told in its order."""
    body = {"id": "r", "status": "completed", "output": [THOUGHT, MESSAGE, CALL, CUSTOM], "usage": USAGE}
    fake.play(lambda call: call.whole(200, body))
    told = await box.ask(tools=[FUNCTION, PATCH])
    assert (told.musing, told.text) == ("Hm.", "Hello.")
    assert told.calls == [("f", '{"a":1}'), ("apply_patch", "*** Begin\n")]
    assert told.ended.usage.total_tokens == 9


async def test_logprobs_are_passed_on(fake: Fake, box: Asker) -> None:
    """Asked for and given back."""
    one = {"token": "x", "logprob": -0.5}
    fake.play(responses(delta("output_text", "x", logprobs=[one]), completed()))
    assert (await box.ask(include=["message.output_text.logprobs"])).outcomes[0] == TextDelta("x", [one])
    assert fake.calls[0].body["include"] == ["message.output_text.logprobs"]


async def test_the_whole_conversation_is_sent(fake: Fake, box: Asker) -> None:
    """A continuation sends what is known of the response it names, then its own input."""
    box.known["resp_0"] = [
        InputItem(role="user", content="one"),
        InputItem(role="assistant", content=[Part("output_text", "par")], status="incomplete", id="msg_9"),
    ]
    fake.play(responses(*TEXT, completed()))
    await box.ask("two", previous_response_id="resp_0")
    said = [(item["role"], item["content"]) for item in fake.calls[0].body["input"]]
    assert said == [("user", "one"), ("assistant", "par"), ("user", "two")]


async def test_a_conversation_that_is_not_known_is_an_error(fake: Fake, box: Asker) -> None:
    """And nothing is sent."""
    told = await box.ask("two", previous_response_id="resp_0")
    assert told.broken.code == "previous_response_not_found"
    assert not fake.calls


async def test_fields_of_wrong_types_are_as_good_as_none(fake: Fake, box: Asker) -> None:
    """What can be understood is told; nothing raises for the rest."""
    odd: list[dict[str, Any]] = [
        {"type": "response.output_text.delta", "delta": None},
        {"type": "response.output_item.added", "item": None, "output_index": "x"},
        {"type": "response.output_item.added", "item": {"type": "function_call", "name": 5}},
        {"type": "response.function_call_arguments.delta", "item_id": ["x"], "delta": "x"},
        {"type": "response.output_item.done", "item": {"type": "message", "content": 7}},
        {"type": "response.something.new", "delta": "x"},
    ]
    fake.play(responses(*odd, *TEXT, completed(usage=[1])))
    assert (await box.ask()).text == "Hello."
