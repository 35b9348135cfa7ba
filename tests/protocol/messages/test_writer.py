"""A turn as Anthropic's events: their order, and that together they are the answer."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.protocol.messages.answer import Event, Message
from vivace.protocol.messages.said_calls import SaidCalls
from vivace.protocol.messages.writer import MessageWriter
from vivace.protocol.shapes.events import InputTokensDetails, Usage, WaitProgress, Waterfall
from vivace.protocol.shapes.outcomes import (
    CallBegun,
    CallDelta,
    CallDone,
    CallInvalid,
    Ended,
    ModelProgress,
    Outcome,
    ReasoningDelta,
    TextDelta,
)

USAGE = Usage(10, 5, 15, InputTokensDetails(cached_tokens=7))
STOP = Ended("stop", USAGE, Waterfall())
CALL = (CallBegun("look"), CallDelta('{"a":'), CallDelta(" 1}"))


def played(*outcomes: Outcome, is_kept_alive: bool = False) -> tuple[list[Any], Message]:
    """The events as JSON, and the answer."""
    writer = MessageWriter("resp_1", "m", lambda thought: f"signed {thought}", SaidCalls())
    events: list[Event] = [*writer.begin()]
    for outcome in outcomes:
        events += writer.write(outcome)
        if is_kept_alive and not writer.is_over:
            events += writer.keep_alive()
    return [msgspec.to_builtins(event) for event in events], writer.message()


def kinds(events: list[Any]) -> list[str]:
    return [event["type"].removeprefix("content_block_") for event in events]


def put_together(events: list[Any]) -> list[Any]:
    """The content that a client makes of the events, which must be in a right order."""
    content: list[Any] = []
    is_open = False
    for event in events:
        match event:
            case {"type": "content_block_start", "index": index, "content_block": block}:
                assert not is_open
                assert index == len(content)
                content.append(dict(block))
                is_open = True
            case {"type": "content_block_delta", "index": index, "delta": delta}:
                assert is_open
                assert index == len(content) - 1
                for name in ("text", "thinking", "signature"):
                    if name in delta:
                        content[-1][name] += delta[name]
                if "partial_json" in delta:
                    content[-1]["input"] = msgspec.json.decode(delta["partial_json"])
            case {"type": "content_block_stop"}:
                assert is_open
                is_open = False
    assert not is_open
    return content


def test_thought_text_and_call_are_blocks_in_order() -> None:
    """Each is closed before the next begins; a thought is signed as it ends."""
    events, answer = played(
        ReasoningDelta("H"), ReasoningDelta("m."), TextDelta("I look."), *CALL, CallDone(), STOP
    )
    blocks = ["start", "delta", "delta", "delta", "stop", *["start", "delta", "stop"] * 2]
    assert kinds(events) == ["message_start", *blocks, "message_delta", "message_stop"]
    thought, text, used = put_together(events)
    assert (thought["thinking"], thought["signature"], text["text"]) == ("Hm.", "signed Hm.", "I look.")
    assert (used["name"], used["input"]) == ("look", {"a": 1})
    assert used["id"].startswith("toolu_")
    assert (answer.stop_reason, answer.usage.input_tokens, answer.usage.cache_read_input_tokens) == (
        "tool_use",
        3,
        7,
    )
    assert events[-2]["usage"]["output_tokens"] == 5


@pytest.mark.parametrize(
    ("outcomes", "reason"),
    [
        ([TextDelta("a"), STOP], "end_turn"),
        ([*CALL, CallDone(), STOP], "tool_use"),
        ([*CALL, CallDone(), msgspec.structs.replace(STOP, reason="length")], "max_tokens"),
        ([*CALL, msgspec.structs.replace(STOP, reason="length")], "max_tokens"),
        ([*CALL, STOP], "max_tokens"),
        ([*CALL, CallInvalid("x"), STOP], "end_turn"),
        ([TextDelta("a"), msgspec.structs.replace(STOP, stop_text="!")], "stop_sequence"),
        ([TextDelta("a"), msgspec.structs.replace(STOP, reason="interrupted")], "max_tokens"),
    ],
)
def test_why_it_ended(outcomes: list[Outcome], reason: str) -> None:
    """Half a call is none, and what is cut off does not look whole."""
    events, answer = played(*outcomes)
    assert answer.stop_reason == events[-2]["delta"]["stop_reason"] == reason
    assert (answer.stop_sequence == "!") == (reason == "stop_sequence")
    if reason != "tool_use" and "length" not in str(outcomes):
        assert not any(block["type"] == "tool_use" for block in put_together(events))


def test_a_malformed_call_is_text() -> None:
    """Also one that an upstream says is whole."""
    events, _ = played(TextDelta("I look. "), *CALL, CallInvalid("<x>"), STOP)
    assert [block["text"] for block in put_together(events)] == ["I look. <x>"]
    events, _ = played(CallBegun("look"), CallDelta("[1"), CallDone(), STOP)
    assert [block["text"] for block in put_together(events)] == ["[1"]


def test_a_wait_is_kept_alive_by_a_block() -> None:
    """What follows goes on in it, or behind it."""
    progress = ModelProgress(WaitProgress("reading", "m", 1, 2))
    events, _ = played(progress, TextDelta("a"), STOP, is_kept_alive=True)
    assert kinds(events)[:6] == ["message_start", "ping", "start", "delta", "delta", "delta"]
    assert [block["text"] for block in put_together(events)] == ["a"]
    events, _ = played(progress, ReasoningDelta("Hm."), *CALL, CallDone(), STOP, is_kept_alive=True)
    assert [block["type"] for block in put_together(events)] == ["text", "thinking", "tool_use", "text"]


def test_an_empty_answer_has_an_empty_block() -> None:
    """Clients look at the first."""
    assert played(STOP)[1].content == played(TextDelta(""), STOP)[1].content
    assert len(played(STOP)[1].content) == 1


STEPS = st.one_of(
    st.builds(lambda text: [TextDelta(text)], st.text(max_size=4)),
    st.builds(lambda text: [ReasoningDelta(text)], st.text(max_size=4)),
    st.just([*CALL, CallDone()]),
    st.just([*CALL, CallInvalid("<x>")]),
    st.just([*CALL]),
)


@given(st.lists(STEPS, max_size=8), st.booleans())
def test_the_answer_is_its_events(steps: list[list[Outcome]], is_kept_alive: bool) -> None:
    """Whatever a model says, and however long it takes."""
    outcomes = [outcome for step in steps for outcome in step]
    events, answer = played(*outcomes, STOP, is_kept_alive=is_kept_alive)
    assert put_together(events) == msgspec.json.decode(msgspec.json.encode(answer))["content"]
    assert kinds(events)[-2:] == ["message_delta", "message_stop"]
