"""Answers of upstreams that speak chat completions, well and in their own ways, over real sockets."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.server.backends.upstream.fake import Asker, Call, Fake, Script, chat, chunk, says, tool_call, until
from vivace.protocol.shapes.events import OutputMessage, ReasoningItem
from vivace.protocol.shapes.outcomes import CallBegun, CallDelta, TextDelta

FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object"}}
PATCH = {"type": "custom", "name": "apply_patch"}
ONE_CALL = [tool_call(0, "", "f", "c1"), tool_call(0, '{"a"'), tool_call(0, ":1}")]


@pytest.fixture
async def box(fake: Fake) -> AsyncIterator[Asker]:
    async with Asker(fake, api="chat") as asker:
        yield asker


async def test_text_is_told_as_it_comes(fake: Fake, box: Asker) -> None:
    """The answer, its end, its usage and its times."""
    usage = {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}}
    fake.play(says("Hel", "lo.", usage=usage))
    told = await box.ask()
    assert told.text == "Hello."
    assert told.ended.reason == "stop"
    assert (told.ended.usage.input_tokens, told.ended.usage.output_tokens, told.ended.usage.total_tokens) == (
        7,
        2,
        9,
    )
    assert told.ended.usage.input_tokens_details.cached_tokens == 3
    times = told.ended.waterfall
    assert 0 < times.first_token_ms <= times.total_ms
    assert (times.cached_tokens, times.new_tokens, times.output_tokens) == (3, 4, 2)
    assert fake.calls[0].path == "/v1/chat/completions"
    assert fake.calls[0].body["messages"] == [{"role": "user", "content": "hello"}]


async def test_a_delta_does_not_wait_for_the_next(fake: Fake, box: Asker) -> None:
    """What was sent is told while the upstream is silent."""

    def script(call: Call) -> None:
        call.head()
        call.event(chunk({"content": "now"}))
        call.hang()

    fake.play(script)
    turn = box.begin()
    async for outcome in turn.outcomes():
        assert outcome == TextDelta("now")
        break
    turn.interrupt()


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_reasoning_is_told_as_such(fake: Fake, box: Asker, name: str) -> None:
    """Under either of its names, before the text."""
    fake.play(
        chat(chunk({name: "Hm"}), chunk({name: "m."}), chunk({"content": "Yes."}), chunk(finish="stop"))
    )
    told = await box.ask()
    assert (told.musing, told.text) == ("Hmm.", "Yes.")
    assert [type(item) for item in told.response.output] == [ReasoningItem, OutputMessage]


async def test_parts_are_text_and_reasoning(fake: Fake, box: Asker) -> None:
    """Some send content as a list."""
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
        {"type": "text", "text": "Yes."},
    ]
    fake.play(chat(chunk({"content": parts}), chunk(finish="stop")))
    told = await box.ask()
    assert (told.musing, told.text) == ("Hm.", "Yes.")


@pytest.mark.parametrize(
    "deltas",
    [
        ONE_CALL,
        [tool_call(0, '{"a":1}', "f", "c1")],  # whole
        [tool_call(None, '{"a":1}', "f", "c1")],  # without an index
        [tool_call(0, '{"a"', "f", "c1"), tool_call(0, ":1}", "f", "c1")],  # name and id each time
        [tool_call(0, "", None, "c1"), tool_call(0, "", "f"), tool_call(0, '{"a":1}')],  # the name later
        [tool_call(0, '{"a"', None, "c1"), tool_call(0, ":1}", "f")],  # the name last
        [{"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "f", "arguments": {"a": 1}}}]}],
        [{"content": ""}, *ONE_CALL, {"content": None}, {"content": ""}],
    ],
)
async def test_a_call_in_any_shape_is_a_call(fake: Fake, box: Asker, deltas: list[dict[str, Any]]) -> None:
    """In pieces, whole, with more or fewer fields: the same call."""
    fake.play(chat(*map(chunk, deltas), chunk(finish="tool_calls")))
    told = await box.ask(tools=[FUNCTION])
    assert told.calls == [("f", '{"a":1}')]
    assert CallBegun("f", call_id="c1") in told.outcomes
    assert told.ended.reason == "stop"


@pytest.mark.parametrize(
    "deltas",
    [
        [tool_call(0, '{"n":1}', "f", "a"), tool_call(1, '{"n":2}', "f", "b")],
        [
            tool_call(0, "", "f", "a"),
            tool_call(1, "", "f", "b"),
            tool_call(0, '{"n":1}'),
            tool_call(1, '{"n":2}'),
        ],
        [tool_call(0, '{"n":1}', "f", "a"), tool_call(0, '{"n":2}', "f", "b")],  # one index for all
        [tool_call(0, '{"n":1}', "f"), tool_call(0, '{"n":2}', "f")],  # and no ids
        [
            tool_call(0, '{"n":', "f", "a"),
            tool_call(0, "1}"),
            tool_call(0, '{"n":2', "f", "b"),
            tool_call(0, "}"),
        ],
        [tool_call(None, '{"n":1}', "f", "a"), tool_call(None, '{"n":2}', "f", "b")],
        [
            {
                "tool_calls": tool_call(0, '{"n":1}', "f")["tool_calls"]
                + tool_call(1, '{"n":2}', "f")["tool_calls"]
            }
        ],
        [
            {
                "tool_calls": tool_call(None, '{"n":1}', "f")["tool_calls"]
                + tool_call(None, '{"n":2}', "f")["tool_calls"]
            }
        ],
    ],
)
async def test_parallel_calls_are_kept_apart(fake: Fake, box: Asker, deltas: list[dict[str, Any]]) -> None:
    """By index where there are indices, and else by what shows that another begins."""
    fake.play(chat(*map(chunk, deltas), chunk(finish="tool_calls")))
    told = await box.ask(tools=[FUNCTION])
    assert told.calls == [("f", '{"n":1}'), ("f", '{"n":2}')]


async def test_arguments_are_told_as_they_come(fake: Fake, box: Asker) -> None:
    """A call grows; it is not held back until it is whole."""

    def script(call: Call) -> None:
        call.head()
        call.event(chunk(tool_call(0, '{"a', "f", "c1")))
        call.hang()

    fake.play(script)
    turn = box.begin(tools=[FUNCTION])
    seen = []
    async for outcome in turn.outcomes():
        seen.append(outcome)
        if isinstance(outcome, CallDelta):
            break
    assert seen == [CallBegun("f", call_id="c1"), CallDelta('{"a')]
    turn.interrupt()


async def test_a_call_without_arguments_has_an_empty_object(fake: Fake, box: Asker) -> None:
    """Nobody can parse nothing."""
    fake.play(chat(chunk(tool_call(0, "", "f", "c1")), chunk(finish="tool_calls")))
    assert (await box.ask(tools=[FUNCTION])).calls == [("f", "{}")]


async def test_custom_tools_come_back_as_such(fake: Fake, box: Asker) -> None:
    """They were offered as functions; the client gets the free text, under the kind of tool that it knows."""
    pieces = ['{"input"', ': "*** Begin\\n', '+x\\u00e9"', "}"]
    deltas = [tool_call(0, "", "apply_patch", "c1"), *(tool_call(0, piece) for piece in pieces)]
    fake.play(chat(*map(chunk, deltas), chunk(finish="tool_calls")))
    told = await box.ask(tools=[PATCH])
    assert told.calls == [("apply_patch", "*** Begin\n+xé")]
    assert CallBegun("apply_patch", is_custom=True, call_id="c1") in told.outcomes


async def test_a_call_that_was_cut_off_is_none(fake: Fake, box: Asker) -> None:
    """At the limit of tokens the whole calls are calls, and the half one is not."""
    deltas = [tool_call(0, '{"a":1}', "f", "c1"), tool_call(1, '{"b', "f", "c2")]
    fake.play(chat(*map(chunk, deltas), chunk(finish="length")))
    told = await box.ask(tools=[FUNCTION])
    assert told.calls == [("f", '{"a":1}')]
    assert told.ended.reason == "length"
    assert told.response.incomplete_details is not None


async def test_text_after_a_call_is_told_after_it(fake: Fake, box: Asker) -> None:
    """Text closes a call that is whole, and waits for one that is not."""
    deltas = [*ONE_CALL, {"content": "Done"}, {"content": "."}]
    fake.play(chat(*map(chunk, deltas), chunk(finish="stop")))
    told = await box.ask(tools=[FUNCTION])
    assert (told.calls, told.text) == ([("f", '{"a":1}')], "Done.")
    fake.play(
        chat(
            chunk(tool_call(0, '{"a"', "f")),
            chunk({"content": "hm"}),
            chunk(tool_call(0, ":1}")),
            chunk(finish="stop"),
        )
    )
    told = await box.ask(tools=[FUNCTION])
    assert (told.calls, told.text) == ([("f", '{"a":1}')], "hm")


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("tool_calls", "stop"),
        ("content_filter", "content_filter"),
        ("eos", "stop"),
    ],
)
async def test_every_finish_has_its_reason(fake: Fake, box: Asker, finish: str, reason: str) -> None:
    """As our own turns give it."""
    fake.play(chat(chunk({"content": "x"}), chunk(finish=finish)))
    assert (await box.ask()).ended.reason == reason


async def test_a_server_that_does_not_stream_is_understood(fake: Fake, box: Asker) -> None:
    """Its one answer is told as if it had come in one piece."""
    message = {
        "role": "assistant",
        "content": "Hi.",
        "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": "{}"}}],
    }
    body = {
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 5},
    }
    fake.play(lambda call: call.whole(200, body))
    told = await box.ask(tools=[FUNCTION])
    assert (told.text, told.calls, told.ended.usage.input_tokens) == ("Hi.", [("f", "{}")], 5)


async def test_a_missing_done_is_no_error(fake: Fake, box: Asker) -> None:
    """After a finish reason the stream may just end."""
    fake.play(chat(chunk({"content": "x"}), chunk(finish="stop"), is_done=False))
    assert (await box.ask()).ended.reason == "stop"


async def test_a_server_that_never_gives_reasons_is_believed(fake: Fake, box: Asker) -> None:
    """[DONE] is an end, too; also after an answer that had to be asked for whole."""
    message = {"role": "assistant", "content": "x"}
    whole = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    streams: list[Script] = [chat(), chat(chunk({"content": "x"}))]
    fake.play(streams[0], lambda call: call.whole(200, whole), streams[1])
    for _ in range(3):
        assert (await box.ask()).ended.reason == "stop"
    assert [call.body["stream"] for call in fake.calls] == [True, False, True, True]


async def test_usage_that_never_comes_is_estimated(fake: Fake, box: Asker) -> None:
    """About one token a piece."""
    fake.play(says("a", "b", "c"))
    told = await box.ask()
    assert told.ended.usage.output_tokens == 3
    assert told.ended.usage.input_tokens > 0


async def test_a_connection_that_stays_open_after_the_end_does_not_keep_the_turn(
    fake: Fake, box: Asker
) -> None:
    """The end is told at [DONE], whatever the server does with its connection."""

    def script(call: Call) -> None:
        call.head()
        call.event(chunk({"content": "x"}, "stop"))
        call.event("[DONE]")
        call.hang()

    fake.play(script)
    assert (await box.ask()).ended.reason == "stop"


async def test_stop_strings_are_obeyed_whoever_answers(fake: Fake, box: Asker) -> None:
    """Nothing of one is told, even if the server goes on; its connection is closed."""

    def script(call: Call) -> None:
        call.head()
        for text in ["one E", "N", "D two"]:
            call.event(chunk({"content": text}))
        call.hang()

    fake.play(script)
    told = await box.ask(stop=["END"])
    assert (told.text, told.ended.reason) == ("one ", "stop")
    assert fake.calls[0].body["stop"] == ["END"]
    await until(fake.calls[0].gone.is_set)


async def test_what_might_have_been_a_stop_string_is_told(fake: Fake, box: Asker) -> None:
    """At the end, and before a call."""
    fake.play(
        chat(chunk({"content": "EN"}), *map(chunk, ONE_CALL), chunk({"content": "E"}), chunk(finish="stop"))
    )
    told = await box.ask(stop=["END"], tools=[FUNCTION])
    assert [outcome.delta for outcome in told.outcomes if isinstance(outcome, TextDelta)] == ["EN", "E"]


async def test_logprobs_are_passed_on(fake: Fake, box: Asker) -> None:
    """In the shape in which they come."""
    one = {"token": "x", "logprob": -0.5, "bytes": [120], "top_logprobs": []}
    event = chunk({"content": "x"})
    event["choices"][0]["logprobs"] = {"content": [one]}
    fake.play(chat(event, chunk(finish="stop")))
    told = await box.ask(top_logprobs=2)
    assert told.outcomes[0] == TextDelta("x", [one])
    assert (fake.calls[0].body["logprobs"], fake.calls[0].body["top_logprobs"]) == (True, 2)


async def test_fields_of_wrong_types_are_as_good_as_none(fake: Fake, box: Asker) -> None:
    """What can be understood is told; nothing raises for the rest."""
    odd: list[Any] = [
        {"choices": None, "usage": "many"},
        {"choices": [None, 5, {"delta": "x"}, {"delta": {"content": 7, "tool_calls": "no"}}]},
        {"choices": [{"index": 1, "delta": {"content": "another choice"}}]},
        [1, 2],
        {"choices": [{"delta": {"tool_calls": [None, {"index": {}, "function": []}]}}]},
        {
            "usage": {
                "prompt_tokens": -1,
                "completion_tokens": 1.5,
                "prompt_tokens_details": {"cached_tokens": True},
            }
        },
    ]
    fake.play(chat(*odd, chunk({"content": "Hi."}), chunk(finish="stop")))
    told = await box.ask()
    assert (told.text, told.ended.usage.input_tokens) == ("Hi.", 0)
