"""A turn told as a chat completion: chunks that add up to the answer, and no half call in either."""

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vivace.protocol.chat.writer import ChatWriter
from vivace.protocol.shapes.events import InputTokensDetails, OutputTokensDetails, Usage, Waterfall
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

USAGE = Usage(7, 5, 12, InputTokensDetails(3), OutputTokensDetails(1, 2, 4))
STOP = Ended("stop", USAGE, Waterfall())
LENGTH = Ended("length", USAGE, Waterfall())
INTERRUPTED = Ended("interrupted", USAGE, Waterfall())
CALL = CallBegun("weather", call_id="call_1")
ARGUMENTS = (CallDelta('{"city":'), CallDelta('"Rome"}'))


def tell(*outcomes: Outcome, has_usage_chunk: bool = False) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The chunks, and the answer that the same turn gives at once."""
    writer = ChatWriter(ResponseCreate(), "resp_1", "m", has_usage_chunk=has_usage_chunk)
    chunks = writer.begin()
    for outcome in outcomes:
        chunks += writer.write(outcome)
    return as_json(chunks), as_json(writer.completion())


def as_json(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def deltas(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [choice["delta"] for chunk in chunks for choice in chunk["choices"]]


def put_together(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """What a client makes of the chunks: a choice of a completion."""
    message: dict[str, Any] = {"role": "", "content": None, "refusal": None}
    logprobs: list[Any] = []
    finish_reason = None
    for chunk in chunks:
        for choice in chunk["choices"]:
            assert finish_reason is None, "nothing follows the finish"
            _add(message, choice["delta"])
            logprobs += (choice["logprobs"] or {"content": []})["content"]
            finish_reason = choice["finish_reason"]
    kept = {"content": logprobs, "refusal": None} if logprobs else None
    return {"index": 0, "message": message, "logprobs": kept, "finish_reason": finish_reason}


def _add(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for name in ("role", "content", "reasoning_content"):
        if delta.get(name) is not None:
            message[name] = (message.get(name) or "") + delta[name]
    for piece in delta.get("tool_calls", ()):
        piece = dict(piece)
        calls = message.setdefault("tool_calls", [])
        index = piece.pop("index")
        if index == len(calls):
            assert piece["id"], "the first piece of a call names it"
            calls.append(piece)
        else:
            assert index == len(calls) - 1, "calls come one after the other"
            (kind,) = piece
            for name, words in piece[kind].items():
                calls[index][kind][name] += words


# ---- one behaviour each ----------------------------------------------------------------------------


def test_text_is_streamed_after_the_role() -> None:
    """Role, deltas, finish; every chunk is of the same completion."""
    chunks, answer = tell(TextDelta("Hel"), TextDelta("lo"), STOP)
    assert deltas(chunks) == [
        {"role": "assistant", "content": None},
        {"content": "Hel"},
        {"content": "lo"},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, None, "stop"]
    assert {(chunk["id"], chunk["object"], chunk["model"]) for chunk in chunks} == {
        ("chatcmpl-1", "chat.completion.chunk", "m")
    }
    assert (answer["id"], answer["object"]) == ("chatcmpl-1", "chat.completion")
    assert answer["choices"][0]["message"]["content"] == "Hello"


def test_a_call_comes_whole_in_two_pieces() -> None:
    """Id and name first, then the arguments; the finish says that tools are called."""
    chunks, answer = tell(TextDelta("Let me look."), CALL, *ARGUMENTS, CallDone(), STOP)
    first, rest = [delta["tool_calls"][0] for delta in deltas(chunks) if "tool_calls" in delta]
    function = {"name": "weather", "arguments": ""}
    assert first == {"index": 0, "id": "call_1", "type": "function", "function": function}
    assert rest == {"index": 0, "function": {"arguments": '{"city":"Rome"}'}}
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert call == {
        "id": "call_1",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city":"Rome"}'},
    }


def test_calls_only_have_no_content() -> None:
    """Null, as clients expect beside tool calls."""
    _, answer = tell(CALL, *ARGUMENTS, CallDone(), STOP)
    assert answer["choices"][0]["message"]["content"] is None


def test_parallel_calls_have_indices_and_ids_of_their_own() -> None:
    """A call without an id of the backend's gets one."""
    call = CallBegun("weather")
    chunks, answer = tell(call, *ARGUMENTS, CallDone(), call, *ARGUMENTS, CallDone(), STOP)
    pieces = [delta["tool_calls"][0] for delta in deltas(chunks) if "tool_calls" in delta]
    assert [piece["index"] for piece in pieces] == [0, 0, 1, 1]
    ids = [call["id"] for call in answer["choices"][0]["message"]["tool_calls"]]
    assert ids == [pieces[0]["id"], pieces[2]["id"]]
    assert len(set(ids)) == 2


def test_a_custom_call_has_an_input() -> None:
    """Free text, under a name of its own."""
    chunks, answer = tell(CallBegun("patch", is_custom=True), CallDelta("*** Begin"), CallDone(), STOP)
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert (call["type"], call["custom"]) == ("custom", {"name": "patch", "input": "*** Begin"})
    assert put_together(chunks)["message"]["tool_calls"] == [call]


def test_a_call_without_arguments_can_be_parsed() -> None:
    """Clients read the arguments as JSON, also where the model gave none."""
    _, answer = tell(CALL, CallDone(), STOP)
    assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == "{}"


@pytest.mark.parametrize("end", [LENGTH, INTERRUPTED, STOP])
def test_of_a_call_that_never_became_whole_nothing_is_sent(end: Ended) -> None:
    """No piece of it, and the finish says that something is missing."""
    chunks, answer = tell(CALL, *ARGUMENTS, end)
    assert not any("tool_calls" in delta for delta in deltas(chunks))
    assert "tool_calls" not in answer["choices"][0]["message"]
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(("end", "finish"), [(LENGTH, "length"), (INTERRUPTED, "length"), (STOP, "stop")])
def test_a_lost_call_is_text(end: Ended, finish: str) -> None:
    """As the model wrote it; cut off it is no whole answer, malformed it is."""
    chunks, answer = tell(CALL, *ARGUMENTS, CallInvalid("<tool_call>{"), end)
    assert not any("tool_calls" in delta for delta in deltas(chunks))
    assert answer["choices"][0]["message"]["content"] == "<tool_call>{"
    assert answer["choices"][0]["finish_reason"] == finish


def test_a_whole_call_before_a_cut_off_one_stays() -> None:
    """But the answer is not called whole."""
    _, answer = tell(CALL, *ARGUMENTS, CallDone(), CALL, CallDelta("{"), CallInvalid("<tool_call>{"), LENGTH)
    assert len(answer["choices"][0]["message"]["tool_calls"]) == 1
    assert answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(("end", "finish"), [(LENGTH, "length"), (INTERRUPTED, "length"), (STOP, "stop")])
def test_finish_reasons_of_text(end: Ended, finish: str) -> None:
    """Length where it was cut off, by the limit or an interrupt; stop where it is whole."""
    assert tell(TextDelta("a"), end)[1]["choices"][0]["finish_reason"] == finish


def test_reasoning_has_a_field_of_its_own() -> None:
    """The one that clients of other servers know."""
    chunks, answer = tell(ReasoningDelta("Hm"), ReasoningDelta("m."), TextDelta("4"), STOP)
    assert deltas(chunks)[1:3] == [{"reasoning_content": "Hm"}, {"reasoning_content": "m."}]
    message = answer["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hmm.", "4")


def test_logprobs_come_with_their_text() -> None:
    """One entry a token, in the chunk and in the answer; null where there are none."""
    entry = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}
    chunks, answer = tell(TextDelta("a", [entry]), TextDelta("b", [entry]), STOP)
    assert chunks[1]["choices"][0]["logprobs"] == {"content": [entry], "refusal": None}
    assert chunks[-1]["choices"][0]["logprobs"] is None
    assert answer["choices"][0]["logprobs"] == {"content": [entry, entry], "refusal": None}


def test_an_empty_answer_is_an_answer() -> None:
    """Its content is empty, not null."""
    chunks, answer = tell(STOP)
    assert answer["choices"][0]["message"]["content"] == ""
    assert put_together(chunks)["message"]["content"] == ""


def test_usage_is_the_last_chunk_if_asked() -> None:
    """It has no choices; all chunks before it say null."""
    chunks, answer = tell(TextDelta("a"), STOP, has_usage_chunk=True)
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == answer["usage"]
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert answer["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 5,
        "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 3, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 1,
            "accepted_prediction_tokens": 2,
            "rejected_prediction_tokens": 4,
            "audio_tokens": 0,
        },
    }
    assert all("usage" not in chunk for chunk in tell(TextDelta("a"), STOP)[0])


def test_waiting_is_not_told_in_chunks() -> None:
    """Chat has no word for it."""
    assert len(tell(Queued(1, 2.0), Started(), TextDelta("a"), STOP)[0]) == len(tell(TextDelta("a"), STOP)[0])


def test_a_broken_turn_has_no_finish() -> None:
    """What was sent stays; there is no answer to give at once."""
    writer = ChatWriter(ResponseCreate(), "resp_1", "m")
    writer.write(TextDelta("a"))
    assert writer.write(Broken("engine_died", "It died.")) == []
    assert writer.is_over
    with pytest.raises(AssertionError):
        writer.completion()


def test_nothing_follows_the_end() -> None:
    """A second end is our own mistake, and is caught."""
    with pytest.raises(AssertionError):
        tell(STOP, STOP)


# ---- any turn --------------------------------------------------------------------------------------

WORDS = st.text(max_size=4)
ENTRIES = st.lists(st.just({"token": "a", "logprob": -1.0, "bytes": None, "top_logprobs": []}), max_size=2)
CALLS = st.builds(
    lambda begun, texts, ends: [begun, *texts, *ends],
    st.builds(CallBegun, st.sampled_from(["a", "b"]), is_custom=st.booleans(), call_id=st.just("") | WORDS),
    st.lists(st.builds(CallDelta, WORDS), max_size=3),
    st.sampled_from([[CallDone()], [CallInvalid("")], [CallInvalid("<call>")], []]),
)
SOME = st.one_of(
    st.builds(lambda delta, logprobs: [TextDelta(delta, logprobs)], WORDS, ENTRIES),
    st.builds(lambda delta: [ReasoningDelta(delta)], WORDS),
    CALLS,
)
ENDS = st.sampled_from([STOP, LENGTH, INTERRUPTED])


@given(st.lists(SOME, max_size=6), ENDS, st.booleans())
@example([[TextDelta("", [{"token": "a"}])], [CALL, CallDone()]], STOP, False)
def test_chunks_add_up_to_the_answer(parts: list[list[Outcome]], end: Ended, has_usage_chunk: bool) -> None:
    """Whatever comes of a turn, whoever streams it has the same as who waits for it."""
    outcomes = [outcome for part in parts for outcome in part]
    chunks, answer = tell(*outcomes, end, has_usage_chunk=has_usage_chunk)
    assert put_together(chunks) == answer["choices"][0]


@given(st.lists(SOME, max_size=6), ENDS)
def test_only_whole_calls_are_told(parts: list[list[Outcome]], end: Ended) -> None:
    """As many calls as ended well, each with all of its words."""
    outcomes = [outcome for part in parts for outcome in part]
    _, answer = tell(*outcomes, end)
    whole = [part for part in parts if isinstance(part[-1], CallDone)]
    told = answer["choices"][0]["message"].get("tool_calls", [])
    words = [call["custom"]["input"] if "custom" in call else call["function"]["arguments"] for call in told]
    expected = ["".join(text.delta for text in part[1:-1]) for part in whole]
    customs = [part[0].is_custom for part in whole]
    assert words == [
        text if is_custom else text or "{}" for text, is_custom in zip(expected, customs, strict=True)
    ]
