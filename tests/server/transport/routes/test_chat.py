"""Chat completions with OpenAI's own SDK, unchanged, against scripted turns."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from openai import (
    AsyncOpenAI,
    BadRequestError,
    LengthFinishReasonError,
    OpenAI,
    RateLimitError,
    pydantic_function_tool,
)
from pydantic import BaseModel

from tests.server.transport.routes.chat_stage import CALL, LENGTH, STOP, Stage, staged
from vivace.client.warm import ServerAddress
from vivace.protocol.shapes.outcomes import (
    CallBegun,
    CallDelta,
    CallDone,
    CallInvalid,
    Queued,
    ReasoningDelta,
    Started,
    TextDelta,
)
from vivace.protocol.shapes.refusal import Refusal

HI: Any = [{"role": "user", "content": "hi"}]


class Weather(BaseModel):
    city: str


WEATHER = pydantic_function_tool(Weather, name="weather")
PATCH: Any = {"type": "custom", "custom": {"name": "patch"}}


@pytest.fixture(scope="module")
def served_stage() -> Iterator[tuple[Stage, ServerAddress]]:
    with staged() as pair:
        yield pair


@pytest.fixture
def stage(served_stage: tuple[Stage, ServerAddress]) -> Stage:
    return served_stage[0]


@pytest.fixture
def sdk(served_stage: tuple[Stage, ServerAddress]) -> Iterator[OpenAI]:
    address = served_stage[1]
    with OpenAI(base_url=address.url, api_key=address.token, max_retries=0) as client:
        yield client


@pytest.fixture
async def async_sdk(served_stage: tuple[Stage, ServerAddress]) -> AsyncIterator[AsyncOpenAI]:
    address = served_stage[1]
    async with AsyncOpenAI(base_url=address.url, api_key=address.token, max_retries=0) as client:
        yield client


def test_a_plain_answer(stage: Stage, sdk: OpenAI) -> None:
    """Text, finish and usage, in the SDK's own types."""
    stage.play(TextDelta("Hello "), TextDelta("there."), STOP)
    completion = sdk.chat.completions.create(model="m", messages=HI, temperature=0.5, user="me")
    choice = completion.choices[0]
    assert (choice.message.content, choice.finish_reason) == ("Hello there.", "stop")
    assert completion.usage
    assert (completion.usage.prompt_tokens, completion.usage.total_tokens) == (7, 12)
    assert completion.id == "chatcmpl-1"
    assert stage.turn.request.temperature == 0.5
    assert stage.turn.request.items[0].text == "hi"


def test_a_stream_says_the_same(stage: Stage, sdk: OpenAI) -> None:
    """Deltas add up to the answer; usage comes last, if it is asked for."""
    stage.play(TextDelta("Hello "), TextDelta("there."), STOP)
    options: Any = {"include_usage": True}
    stream = sdk.chat.completions.create(model="m", messages=HI, stream=True, stream_options=options)
    chunks = list(stream)
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == "Hello there."
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage
    assert chunks[-1].usage.total_tokens == 12
    assert stream.response.headers["x-accel-buffering"] == "no"


async def test_async(stage: Stage, async_sdk: AsyncOpenAI) -> None:
    """Both ways with the async client."""
    stage.play(TextDelta("Hello."), STOP)
    completion = await async_sdk.chat.completions.create(model="m", messages=HI)
    stream = await async_sdk.chat.completions.create(model="m", messages=HI, stream=True)
    text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert text == completion.choices[0].message.content == "Hello."


def test_limits_are_in_the_headers(stage: Stage, sdk: OpenAI) -> None:
    """Of an answer and of a stream, as the desk gives them."""
    stage.play(TextDelta("Hello."), STOP)
    completions = sdk.chat.completions.with_raw_response
    for answer in (
        completions.create(model="m", messages=HI),
        completions.create(model="m", messages=HI, stream=True),
    ):
        assert answer.headers["x-ratelimit-limit-requests"] == "9"
        answer.http_response.read()


def test_a_round_of_tools(stage: Stage, sdk: OpenAI) -> None:
    """A call, its output sent back beside the message as the SDK gave it, and an answer."""
    stage.play(TextDelta("Let me look."), *CALL, CallDone(), STOP)
    completion = sdk.chat.completions.create(model="m", messages=HI, tools=[WEATHER], tool_choice="required")
    choice = completion.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls
    call = choice.message.tool_calls[0]
    assert (call.type, call.id, call.function.name) == ("function", "call_1", "weather")
    assert json.loads(call.function.arguments) == {"city": "Rome"}

    stage.play(TextDelta("Sunny."), STOP)
    output = {"role": "tool", "tool_call_id": call.id, "content": "sun"}
    sdk.chat.completions.create(model="m", messages=[*HI, choice.message, output], tools=[WEATHER])  # type: ignore[list-item]
    kinds = [item.type for item in stage.turn.request.items]
    assert kinds == ["message", "message", "function_call", "function_call_output"]


def test_the_stream_helper_collects_calls(stage: Stage, sdk: OpenAI) -> None:
    """Its events carry each call once, whole and parsed."""
    call = CallBegun("weather", call_id="call_2")
    stage.play(*CALL, CallDone(), call, CallDelta('{"city":"Oslo"}'), CallDone(), STOP)
    with sdk.chat.completions.stream(model="m", messages=HI, tools=[WEATHER]) as stream:
        events = list(stream)
        final = stream.get_final_completion()
    done = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    assert [event.parsed_arguments for event in done] == [Weather(city="Rome"), Weather(city="Oslo")]
    assert final.choices[0].message.content is None
    assert [call.id for call in final.choices[0].message.tool_calls or []] == ["call_1", "call_2"]


def test_custom_calls(stage: Stage, sdk: OpenAI) -> None:
    """The SDK has a type for whole ones; in a stream it passes on what it is given."""
    stage.play(CallBegun("patch", is_custom=True, call_id="c"), CallDelta("*** Begin"), CallDone(), STOP)
    completion = sdk.chat.completions.create(model="m", messages=HI, tools=[PATCH])
    assert completion.choices[0].message.tool_calls
    call = completion.choices[0].message.tool_calls[0]
    assert call.type == "custom"
    assert (call.custom.name, call.custom.input) == ("patch", "*** Begin")
    with sdk.chat.completions.stream(model="m", messages=HI, tools=[PATCH]) as stream:
        final: Any = stream.until_done().current_completion_snapshot
    assert final.choices[0].message.tool_calls[0].custom == {"name": "patch", "input": "*** Begin"}


async def test_structured_output(stage: Stage, async_sdk: AsyncOpenAI) -> None:
    """`parse` and the stream helper: the schema arrives, the text comes back as an object."""
    stage.play(TextDelta('{"city":'), TextDelta('"Rome"}'), STOP)
    parsed = await async_sdk.chat.completions.parse(model="m", messages=HI, response_format=Weather)
    assert parsed.choices[0].message.parsed == Weather(city="Rome")
    assert json.loads(stage.turn.request.schema)["required"] == ["city"]
    async with async_sdk.chat.completions.stream(model="m", messages=HI, response_format=Weather) as stream:
        final = await stream.get_final_completion()
    assert final.choices[0].message.parsed == Weather(city="Rome")


@pytest.mark.parametrize("is_lost", [True, False])
def test_half_a_call_never_arrives(stage: Stage, sdk: OpenAI, is_lost: bool) -> None:
    """Cut off by the limit it is text or nothing, in both ways, and the SDK is told that it is not whole."""
    stage.play(*CALL[:2], *([CallInvalid("<tool_call>{")] if is_lost else []), LENGTH)
    completion = sdk.chat.completions.create(model="m", messages=HI, tools=[WEATHER])
    assert completion.choices[0].finish_reason == "length"
    assert completion.choices[0].message.tool_calls is None
    assert completion.choices[0].message.content == ("<tool_call>{" if is_lost else "")
    chunks = list(sdk.chat.completions.create(model="m", messages=HI, tools=[WEATHER], stream=True))
    assert not any(chunk.choices[0].delta.tool_calls for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "length"
    with (
        sdk.chat.completions.stream(model="m", messages=HI, tools=[WEATHER]) as stream,
        pytest.raises(LengthFinishReasonError),
    ):
        stream.until_done()


def test_reasoning_and_logprobs(stage: Stage, sdk: OpenAI) -> None:
    """Reasoning in the field that other servers use; log-probabilities in the SDK's types."""
    entry = {"token": "4", "logprob": -0.5, "bytes": [52], "top_logprobs": []}
    stage.play(ReasoningDelta("two and two"), TextDelta("4", [entry]), STOP)
    completion = sdk.chat.completions.create(model="m", messages=HI, logprobs=True, top_logprobs=2)
    choice: Any = completion.choices[0]
    assert choice.message.reasoning_content == "two and two"
    assert choice.logprobs.content[0].logprob == -0.5
    assert stage.turn.request.top_logprobs == 2
    with sdk.chat.completions.stream(model="m", messages=HI, logprobs=True) as stream:
        final: Any = stream.get_final_completion().choices[0]
    assert final.message.reasoning_content == "two and two"
    assert final.logprobs.content[0].token == "4"


def test_a_bad_request_names_its_field(stage: Stage, sdk: OpenAI) -> None:
    """The SDK's typed error has code and param; nothing was begun."""
    stage.play(STOP)
    before = len(stage.turns)
    with pytest.raises(BadRequestError) as caught:
        sdk.chat.completions.create(model="m", messages=HI, n=2)
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "n")
    image: Any = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]
    with pytest.raises(BadRequestError, match="text only") as caught:
        sdk.chat.completions.create(model="m", messages=image, stream=True)
    assert caught.value.param == "messages[0].content[0].type"
    assert len(stage.turns) == before


def test_a_refusal_of_the_desk_is_about_the_chats_fields(stage: Stage, sdk: OpenAI) -> None:
    """What is wrong with a field of the response is told of the field that the client sent."""
    stage.play(STOP)
    stage.refusal = Refusal("Too many.", code="invalid_value", param="max_output_tokens")
    with pytest.raises(BadRequestError) as caught:
        sdk.chat.completions.create(model="m", messages=HI, max_completion_tokens=9)
    assert caught.value.param == "max_completion_tokens"
    stage.refusal = Refusal("Later.", code="rate_limit_exceeded", status=429)
    with pytest.raises(RateLimitError):
        sdk.chat.completions.create(model="m", messages=HI, stream=True)


def test_only_what_is_to_be_stored_is_written_down(stage: Stage, sdk: OpenAI) -> None:
    """With `store: true`, as the response that it is, once."""
    stage.play(TextDelta("Hello."), STOP)
    for is_streamed in (False, True):
        sdk.chat.completions.with_raw_response.create(model="m", messages=HI, stream=is_streamed)
    assert stage.committed == []
    sdk.chat.completions.create(model="m", messages=HI, store=True)
    list(sdk.chat.completions.create(model="m", messages=HI, store=True, stream=True))
    assert [event.response.output_text for event in stage.committed] == ["Hello.", "Hello."]


def test_what_has_started_is_told_of_its_model(stage: Stage, sdk: OpenAI) -> None:
    """A turn that waited learns late who answers it."""
    stage.play(Started(), TextDelta("Hello."), STOP, place=Queued(1, 0.5))
    assert sdk.chat.completions.create(model="m", messages=HI).model == "m"
    assert list(sdk.chat.completions.create(model="m", messages=HI, stream=True))[-1].model == "m"
