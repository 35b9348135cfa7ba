"""Chat completions on the whole server: the engine behind them, and what else the server knows of them."""

import http.client
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError, OpenAI

from tests.server.serving import HANG_S, LONG, fetch, send, status_of, until
from vivace.client.warm import ServerAddress
from vivace.config import Settings

PATH = "/v1/chat/completions"
QUESTION: Any = [{"role": "user", "content": "Name three colours."}]


def said(*words: str) -> Any:
    """A conversation: user and assistant in turn."""
    return [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(words)]


@pytest.fixture
async def sdk(smol_address: ServerAddress) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=smol_address.url, api_key=smol_address.token, max_retries=0) as client:
        yield client


@pytest.fixture
def model(smol_address: ServerAddress) -> str:
    with OpenAI(base_url=smol_address.url, api_key=smol_address.token) as client:
        return client.models.list().data[0].id


def test_an_answer_and_a_stream(address: ServerAddress) -> None:
    """The same text both ways; a stream ends with [DONE]."""
    status, answer = fetch(address, "POST", PATH, {"messages": said("long")})
    assert status == 200
    assert answer["choices"][0]["message"]["content"] == LONG
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["total_tokens"] > answer["usage"]["completion_tokens"] > 0
    stream = send(address, "POST", PATH, {"messages": said("long"), "stream": True})
    *frames, done = stream.read().decode().removesuffix("\n\n").split("\n\n")
    stream.vivace_connection.close()  # type: ignore[attr-defined]
    chunks = [json.loads(frame.removeprefix("data: ")) for frame in frames if frame.startswith("data: ")]
    text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
    assert text == LONG
    assert done == "data: [DONE]"


def test_stop_strings_and_limits(address: ServerAddress) -> None:
    """Nothing of a stop string is sent; a limit is a limit."""
    body = {"messages": said("long"), "stop": [" beer"]}
    _, stopped = fetch(address, "POST", PATH, body)
    assert stopped["choices"][0]["message"]["content"] == "0 bottles of"
    assert stopped["choices"][0]["finish_reason"] == "stop"
    _, cut = fetch(address, "POST", PATH, {"messages": said("long"), "max_tokens": 3})
    assert cut["usage"]["completion_tokens"] == 3
    assert cut["choices"][0]["finish_reason"] == "length"


def test_a_limit_beyond_the_context_is_no_error(address: ServerAddress) -> None:
    """Clients that do not know the model ask for much."""
    body = {"messages": said("hi"), "max_tokens": 64_000}
    status, answer = fetch(address, "POST", PATH, body)
    assert (status, answer["choices"][0]["finish_reason"]) == (200, "stop")


def test_the_next_round_of_a_chat_prefills_only_what_is_new(address: ServerAddress) -> None:
    """The client sends its whole history again; what the engine has of it is used."""
    question = "Tell me something. " * 20
    _, first = fetch(address, "POST", PATH, {"messages": said(question)})
    answer = first["choices"][0]["message"]["content"]
    _, second = fetch(address, "POST", PATH, {"messages": said(question, answer, "And more?")})
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached >= first["usage"]["prompt_tokens"]


def test_a_chat_is_not_stored_unless_asked(address: ServerAddress) -> None:
    """Nothing is left behind by default."""
    _, answer = fetch(address, "POST", PATH, {"messages": said("hi")})
    name = answer["id"].replace("chatcmpl-", "resp_")
    assert fetch(address, "GET", f"/v1/responses/{name}")[0] == 404


def test_a_prompt_that_does_not_fit_has_a_status(address: ServerAddress) -> None:
    """Also for a stream."""
    for is_streamed in (False, True):
        body = {"messages": said("word " * 20_000), "stream": is_streamed}
        status, answer = fetch(address, "POST", PATH, body)
        assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")


def test_a_client_that_leaves_frees_the_engine(served: Settings, address: ServerAddress) -> None:
    """Its turn ends, whether it streams or not."""
    for is_streamed in (False, True):
        connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=HANG_S)
        headers = {"Authorization": f"Bearer {address.token}", "Content-Type": "application/json"}
        body = json.dumps({"messages": said("long"), "stream": is_streamed})
        connection.request("POST", PATH, body, headers)
        until(lambda: status_of(served).answers)
        connection.close()
        until(lambda: not status_of(served).answers)


def test_no_token_no_chat(address: ServerAddress) -> None:
    """The gate stands in front of this route too."""
    status, answer = fetch(address, "POST", PATH, {"messages": said("hi")}, Authorization="")
    assert (status, answer["error"]["code"]) == (401, "invalid_api_key")


async def test_the_sdk_with_a_real_model(sdk: AsyncOpenAI, model: str) -> None:
    """A plain answer and a stream of a real model are the same text, with usage."""
    whole = await sdk.chat.completions.create(model=model, messages=QUESTION, max_tokens=3, temperature=0)
    options: Any = {"include_usage": True}
    stream = await sdk.chat.completions.create(
        model=model, messages=QUESTION, max_tokens=3, temperature=0, stream=True, stream_options=options
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == whole.choices[0].message.content
    assert whole.choices[0].finish_reason == "length"
    assert chunks[-1].usage
    assert whole.usage
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens == 3


async def test_chat_and_responses_say_the_same(sdk: AsyncOpenAI, model: str) -> None:
    """One model, one prompt: the API that is asked makes no difference."""
    chat = await sdk.chat.completions.create(model=model, messages=QUESTION, max_tokens=12, temperature=0)
    response = await sdk.responses.create(model=model, input=QUESTION, max_output_tokens=12, temperature=0)
    assert chat.choices[0].message.content == response.output_text


async def test_json_of_a_real_model(sdk: AsyncOpenAI, model: str) -> None:
    """The answer obeys a schema, however small the model."""
    schema = {
        "type": "object",
        "properties": {"n": {"enum": [1, 2, 3]}},
        "required": ["n"],
        "additionalProperties": False,
    }
    form: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
    answer = await sdk.chat.completions.create(model=model, messages=QUESTION, response_format=form)
    assert json.loads(answer.choices[0].message.content or "")["n"] in (1, 2, 3)


PAINT: Any = {
    "type": "function",
    "function": {
        "name": "paint",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"colour": {"enum": ["red", "blue"]}},
            "required": ["colour"],
            "additionalProperties": False,
        },
    },
}


async def test_a_round_of_tools_with_a_real_model(sdk: AsyncOpenAI, model: str) -> None:
    """A required call obeys its schema, and an answer to its output begins with what is in the KV."""
    answer = await sdk.chat.completions.create(
        model=model, messages=QUESTION, tools=[PAINT], tool_choice="required", parallel_tool_calls=False
    )
    message = answer.choices[0].message
    (call,) = message.tool_calls or []
    assert answer.choices[0].finish_reason == "tool_calls"
    assert call.type == "function"
    assert json.loads(call.function.arguments)["colour"] in ("red", "blue")
    output = {"role": "tool", "tool_call_id": call.id, "content": "painted"}
    after = await sdk.chat.completions.create(  # type: ignore[call-overload]
        model=model, messages=[*QUESTION, message, output], tools=[PAINT], tool_choice="none", max_tokens=4
    )
    assert after.choices[0].message.content
    assert after.usage
    assert answer.usage
    assert after.usage.prompt_tokens_details
    assert (after.usage.prompt_tokens_details.cached_tokens or 0) >= answer.usage.prompt_tokens


async def test_a_call_that_the_limit_cuts_off_is_none(sdk: AsyncOpenAI, model: str) -> None:
    """Nothing that could be run arrives, at once or streamed."""
    asked: Any = {"model": model, "messages": QUESTION, "tools": [PAINT], "tool_choice": "required"}
    whole = await sdk.chat.completions.create(**asked, max_tokens=8)
    assert (whole.choices[0].finish_reason, whole.choices[0].message.tool_calls) == ("length", None)
    stream = await sdk.chat.completions.create(**asked, max_tokens=8, stream=True)
    chunks = [chunk async for chunk in stream]
    assert not any(chunk.choices[0].delta.tool_calls for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "length"


async def test_errors_are_the_sdks(sdk: AsyncOpenAI, model: str) -> None:
    """Unknown models and bad fields become the SDK's typed errors."""
    with pytest.raises(NotFoundError) as missing:
        await sdk.chat.completions.create(model="gpt-none", messages=QUESTION)
    assert missing.value.code == "model_not_found"
    with pytest.raises(BadRequestError) as bad:
        await sdk.chat.completions.create(model=model, messages=QUESTION, temperature=9)
    assert bad.value.param == "temperature"
