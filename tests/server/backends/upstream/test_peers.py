"""Ways of real servers that were seen with them running: each is played here as it was on the wire.

Seen: llama-cpp-python's server 0.3.36 ("llama") and the LiteLLM proxy 1.106.2 ("lite") in front of it.
"""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.test_warm import Start
from tests.server.backends.upstream.fake import (
    Asker,
    Call,
    Fake,
    Script,
    chat,
    chunk,
    completed,
    responses,
    says,
    tool_call,
    until,
)
from tests.server.serving import fetch, script
from vivace.client.warm import ensure_server
from vivace.protocol.shapes.outcomes import TextDelta
from vivace.server.backends.upstream import client
from vivace.server.backends.upstream.dialects.items import NO_OUTPUT

FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object"}}
PATCH = {"type": "custom", "name": "apply_patch"}
TOO_LONG = {
    "error": {
        "message": "This model's maximum context length is 2048 tokens. However, you requested 6031 tokens "
        "(6031 in the messages, None in the completion). Please reduce the length of the messages.",
        "type": "invalid_request_error",
        "param": "messages",
        "code": "context_length_exceeded",
    }
}
NO_API = {
    "error": {
        "message": 'litellm.NotFoundError: NotFoundError: OpenAIException - {"detail":"Not Found"}\n'
        "LiteLLM: model group 'm' failed with the error above. No fallback was attempted.",
        "type": "None",
        "param": "None",
        "code": "404",
    }
}
COOLING = {
    "error": {
        "message": "No deployments available for selected model, Try again in 5 seconds.",
        "type": "None",
        "param": "None",
        "code": "429",
    }
}
NO_MODEL = {"error": {"message": "Invalid model name passed in model=m. Call `/v1/models`.", "code": "400"}}


@pytest.fixture
async def llama(fake: Fake) -> AsyncIterator[Asker]:
    async with Asker(fake, api="chat") as asker:
        yield asker


@pytest.fixture
async def lite(fake: Fake) -> AsyncIterator[Asker]:
    async with Asker(fake) as asker:
        yield asker


def only_whole(whole: Script) -> Script:
    """What llama does with a prompt that is too long: a stream of it is 200, and empty."""

    def script(call: Call) -> None:
        if call.body["stream"]:
            call.head()
            call.end()
        else:
            whole(call)

    return script


def refuses(status: int, body: Any, **headers: str) -> Script:
    return lambda call: call.whole(status, body, **headers)


def paths(fake: Fake) -> list[str]:
    return [call.path.removeprefix("/v1/") for call in fake.calls]


# ---- llama ------------------------------------------------------------------------------------------


async def test_an_empty_stream_is_asked_why(fake: Fake, llama: Asker) -> None:
    """The reason is given to who does not stream; clients need its code to make the conversation shorter."""
    fake.play(only_whole(lambda call: call.whole(400, TOO_LONG)))
    assert (await llama.ask()).broken.code == "context_length_exceeded"
    streamed, whole = (call.body for call in fake.calls)
    assert (streamed["stream"], whole["stream"]) == (True, False)
    assert "stream_options" not in whole
    assert whole["messages"] == streamed["messages"]


async def test_an_answer_instead_of_the_reason_is_an_answer(fake: Fake, llama: Asker) -> None:
    """A server whose streams do not work can be used all the same."""
    message = {"role": "assistant", "content": "Hi."}
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}
    fake.play(only_whole(lambda call: call.whole(200, body)))
    told = await llama.ask()
    assert (told.text, told.ended.reason, told.ended.usage.output_tokens) == ("Hi.", "stop", 2)


async def test_calls_in_the_history_have_a_text(fake: Fake, llama: Asker) -> None:
    """An assistant's `content: null` is refused there, and none at all breaks its template."""
    fake.play(says("x"))
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    await llama.ask([{"role": "user", "content": "go"}, call, {"role": "user", "content": "well?"}])
    messages = fake.calls[0].body["messages"]
    assert [message["content"] for message in messages] == ["go", "", NO_OUTPUT, "well?"]


async def test_a_name_with_every_piece_is_one_call(fake: Fake, llama: Asker) -> None:
    """Each piece has index, id and name again, beside the old `function_call`."""
    pieces = ["{", ' "city":', ' "Rome"', " }", ""]
    deltas: list[dict[str, Any]] = [
        {"role": None, "content": None, "function_call": {"name": "f", "arguments": piece}}
        | tool_call(0, piece, "f", "call__0_f_cmpl-1")
        for piece in pieces
    ]
    fake.play(chat(*map(chunk, deltas), chunk({"tool_calls": None}, "tool_calls")))
    assert (await llama.ask(tools=[FUNCTION])).calls == [("f", "".join(pieces))]


async def test_an_answer_that_another_request_broke_off_has_failed(fake: Fake, llama: Asker) -> None:
    """It says [DONE] when another request comes in between, without a reason, which it else always gives."""
    fake.play(says("x"))
    assert (await llama.ask()).ended.reason == "stop"
    fake.play(chat(chunk({"content": "Hel"})))
    told = await llama.ask()
    assert (told.text, told.broken.code) == ("Hel", "upstream_error")


async def test_an_answer_in_one_piece_needs_no_reason(fake: Fake, llama: Asker) -> None:
    """It cannot be broken off."""
    fake.play(says("x"))
    await llama.ask()
    call = {"id": "c1", "function": {"name": "f", "arguments": ""}}
    body = {"choices": [{"message": {"content": "Hi.", "tool_calls": [call]}}]}
    fake.play(lambda call: call.whole(200, body))
    told = await llama.ask(tools=[FUNCTION])
    assert (told.text, told.calls, told.ended.reason) == ("Hi.", [("f", "{}")], "stop")


@pytest.mark.parametrize("tool", [FUNCTION, PATCH], ids=["function", "custom"])
async def test_a_call_that_was_broken_off_is_never_done(fake: Fake, llama: Asker, tool: Any) -> None:
    """Not even if nobody knows yet that this server gives reasons."""
    fake.play(chat(chunk(tool_call(0, '{"input": "*** Begin', tool["name"], "c1"))))
    assert (await llama.ask(tools=[tool])).calls == []


async def test_half_a_text_is_never_done(fake: Fake, llama: Asker) -> None:
    """Whatever the server says of it: half a patch would be carried out."""
    half = tool_call(0, '{"input": "*** Begin Patch\\n*** Delete File: a', "apply_patch", "c1")
    fake.play(chat(chunk(half), chunk(finish="tool_calls")))
    assert (await llama.ask(tools=[PATCH])).calls == []


async def test_models_are_not_asked_for_while_it_answers(fake: Fake) -> None:
    """That, too, is a request that would break the answer off."""

    def answers(call: Call) -> None:
        if call.path == "/v1/models":
            return call.whole(200, {"data": [{"id": "m"}]})
        call.head()
        call.event(chunk({"content": "x"}))
        return call.hang()

    fake.play(answers)
    async with Asker(fake, api="chat") as box:
        turn = box.begin()
        await until(lambda: fake.calls)
        assert box.backend.models() == []
        turn.interrupt()
        await until(fake.calls[0].gone.is_set)
        await box.rested()
        assert paths(fake) == ["chat/completions"]
        box.backend.models()
        await until(box.backend.models)
    assert paths(fake) == ["chat/completions", "models"]


async def test_an_answer_waits_for_a_list_that_is_on_its_way(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two must not meet there."""
    monkeypatch.setattr(client, "LIST_S", 30.0)
    is_to_list = threading.Event()

    def answers(call: Call) -> None:
        if call.path == "/v1/models":
            assert is_to_list.wait(30)
            call.whole(200, {"data": [{"id": "m"}]})
        else:
            says("x")(call)

    fake.play(answers)
    async with Asker(fake, api="chat") as box:
        box.backend.start()
        turn = box.begin()
        for _ in range(50):  # a question that does not wait is there long before
            await asyncio.sleep(0.002)
        assert paths(fake) == ["models"]
        is_to_list.set()
        assert TextDelta("x") in [outcome async for outcome in turn.outcomes()]


async def test_a_list_that_does_not_come_holds_up_nobody(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """For long."""
    monkeypatch.setattr(client, "LIST_S", 0.01)
    fake.play(lambda call: call.hang() if call.path == "/v1/models" else says("x")(call))
    async with Asker(fake, api="chat") as box:
        box.backend.start()
        await until(lambda: fake.calls)
        assert (await box.ask()).text == "x"


# ---- lite -------------------------------------------------------------------------------------------


def front(**apis: Script) -> Script:
    """A front that has both APIs, before servers that have one of them."""
    return lambda call: apis["responses" if call.path.endswith("/responses") else "completions"](call)


async def test_an_empty_answer_is_asked_why(fake: Fake) -> None:
    """An empty stream of the server behind becomes an answer without a word and without a count."""
    empty = chat(chunk(finish="stop"), chunk())
    fake.play(lambda call: empty(call) if call.body["stream"] else call.whole(400, TOO_LONG))
    async with Asker(fake, api="chat") as lite:
        assert (await lite.ask()).broken.code == "context_length_exceeded"
    bridged = responses(completed(usage={"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}))
    fake.play(lambda call: bridged(call) if call.body["stream"] else call.whole(400, TOO_LONG))
    async with Asker(fake, api="responses") as lite:
        assert (await lite.ask()).broken.code == "context_length_exceeded"


async def test_a_model_that_has_nothing_to_say_is_believed(fake: Fake, llama: Asker) -> None:
    """Where its tokens were counted, or when it says so again."""
    usage = {"prompt_tokens": 5, "completion_tokens": 1}
    fake.play(says(usage=usage))
    assert (await llama.ask()).ended.reason == "stop"
    assert len(fake.calls) == 1
    message = {"role": "assistant", "content": ""}
    whole = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    fake.play(lambda call: says()(call) if call.body["stream"] else call.whole(200, whole))
    assert (await llama.ask()).ended.reason == "stop"
    assert len(fake.calls) == 3


async def test_an_api_that_the_server_behind_lacks_is_not_there(fake: Fake, lite: Asker) -> None:
    """The 404 of the server behind names the model, but is about the path."""
    fake.play(front(responses=refuses(404, NO_API), completions=says("x")))
    for _ in range(2):
        assert (await lite.ask()).text == "x"
    assert paths(fake) == ["responses", "chat/completions", "chat/completions"]


async def test_each_model_of_a_front_has_its_own_api(fake: Fake, lite: Asker) -> None:
    """Behind one URL there may be several servers."""

    def over_responses(call: Call) -> None:
        if call.body["model"] == "new":
            responses(completed())(call)
        else:
            call.whole(404, NO_API)

    fake.play(front(responses=over_responses, completions=says("x")))
    for model in ("box/new", "box/m", "box/new", "box/m"):
        assert (await lite.ask(model=model)).ended.reason == "stop"
    assert paths(fake) == ["responses", "responses", "chat/completions", "responses", "chat/completions"]


async def test_who_cools_down_after_the_first_try_is_asked_right_the_next_time(
    fake: Fake, lite: Asker
) -> None:
    """After the 404 it refuses the model for five seconds; what was learned stays learned."""
    cooling = refuses(429, COOLING, retry_after="5")
    fake.play(front(responses=refuses(404, NO_API), completions=cooling))
    broken = (await lite.ask()).broken
    assert (broken.code, broken.message.endswith("Please try again in 5s.")) == ("rate_limit_exceeded", True)
    fake.play(front(responses=refuses(404, NO_API), completions=says("x")))
    assert (await lite.ask()).text == "x"
    assert paths(fake)[2:] == ["chat/completions"]


async def test_an_api_that_is_no_longer_there_is_looked_for_again(fake: Fake, lite: Asker) -> None:
    """Another server may be behind the same URL tomorrow."""
    fake.play(front(responses=responses(completed()), completions=says("x")))
    assert (await lite.ask()).ended.reason == "stop"
    fake.play(front(responses=refuses(404, NO_API), completions=says("x")))
    assert (await lite.ask()).broken.code == "model_not_found"
    assert (await lite.ask()).text == "x"


async def test_an_invalid_model_name_is_a_model_that_is_not_there(fake: Fake, lite: Asker) -> None:
    """It is told with a 400."""
    fake.play(refuses(400, NO_MODEL))
    assert (await lite.ask()).broken.code == "model_not_found"


STATUSES: list[tuple[int, Any, tuple[int, str]]] = [
    (400, {"error": {"message": "bad tools"}}, (400, "upstream_refused")),
    (400, TOO_LONG, (400, "context_length_exceeded")),
    (429, COOLING, (429, "rate_limit_exceeded")),
    (500, {"error": {"message": "boom"}}, (502, "upstream_error")),
]


def test_a_status_says_whether_trying_again_helps(
    start: Start, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SDKs try again by themselves after a 5xx or a 429, and not after a 400."""
    (tmp_path / "vivace").mkdir()
    (tmp_path / "vivace" / "config.toml").write_text(f'[upstreams.box]\nurl = "{fake.url}"\napi = "chat"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    address = ensure_server(start(model=script(tmp_path, replies={"": "Near."})))
    over_responses = {"input": "hi", "store": False}
    over_chat = {"messages": [{"role": "user", "content": "hi"}]}
    for status, body, expected in STATUSES:
        fake.play(refuses(status, body))
        for path, asked in (("/v1/responses", over_responses), ("/v1/chat/completions", over_chat)):
            answered, answer = fetch(address, "POST", path, asked | {"model": "box/m"})
            assert (answered, answer["error"]["code"]) == expected
