"""Tools through OpenAI's SDK: calls come typed, outputs go back, and the model goes on from them."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import openai
import pydantic
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import ResponseCustomToolCall, ResponseFunctionToolCall

from tests.server.serving import LONG, script
from vivace.client.warm import ServerAddress

PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-x = 1\n+x = 2\n*** End Patch"
MALFORMED = '<tool_call>\n{"name": "Weather", "arguments": {\'city\': \'Oslo\'}}\n</tool_call>'
CHANGE: Any = {"type": "custom", "name": "change", "description": "Changes files."}


class Weather(pydantic.BaseModel):
    """The weather in a city."""

    city: str
    days: int


FORECAST: Any = {
    "type": "function",
    "name": "Weather",
    "parameters": Weather.model_json_schema() | {"additionalProperties": False},
    "strict": True,
}
LOOSE: Any = FORECAST | {"strict": False}


def call(name: str, **arguments: Any) -> str:
    """A call as the scripted model writes it."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


@pytest.fixture
def model(tmp_path: Path) -> str:
    replies = {
        "snow in Oslo": "It snows in Oslo.",
        "changed a.py": "x is 2 now.",
        "two cities": f"{call('Weather', city='Oslo', days=1)}\n{call('Weather', city='Rome', days=2)}",
        "Oslo": f"I will look.\n{call('Weather', city='Oslo', days=3)}",
        "change": call("change", input=PATCH),
        "malformed": f"I look.\n{MALFORMED}",
        "": LONG,
    }
    return script(tmp_path, replies=replies, step_ms=1)


@pytest.fixture
def sdk(address: ServerAddress) -> Iterator[OpenAI]:
    with OpenAI(base_url=address.url, api_key=address.token, max_retries=0) as client:
        yield client


@pytest.fixture
async def async_sdk(address: ServerAddress) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=address.url, api_key=address.token, max_retries=0) as client:
        yield client


def test_a_function_is_called_and_answered(sdk: OpenAI, model: str) -> None:
    """The call has its id, name and arguments; with its output the model says what it had to say."""
    asked = sdk.responses.create(model=model, input="How is Oslo?", tools=[FORECAST])
    said, called = asked.output
    assert said.type == "message"
    assert asked.output_text == "I will look."
    assert isinstance(called, ResponseFunctionToolCall)
    assert (called.name, json.loads(called.arguments)) == ("Weather", {"city": "Oslo", "days": 3})
    output: Any = {"type": "function_call_output", "call_id": called.call_id, "output": "snow in Oslo"}
    done = sdk.responses.create(model=model, input=[output], tools=[FORECAST], previous_response_id=asked.id)
    assert done.output_text == "It snows in Oslo."
    assert asked.usage
    assert done.usage
    assert done.usage.input_tokens_details.cached_tokens >= asked.usage.total_tokens - 1


def test_the_whole_conversation_may_be_sent_again(sdk: OpenAI, model: str) -> None:
    """Output items go back as they came, into a request that names no earlier response."""
    items: list[Any] = [{"role": "user", "content": "How is Oslo?"}]
    asked = sdk.responses.create(model=model, input=items, tools=[FORECAST], store=False)
    items += asked.output
    called = asked.output[-1]
    assert isinstance(called, ResponseFunctionToolCall)
    items.append({"type": "function_call_output", "call_id": called.call_id, "output": "snow in Oslo"})
    done = sdk.responses.create(model=model, input=items, tools=[FORECAST], store=False)
    assert done.output_text == "It snows in Oslo."


def test_arguments_stream_and_parse(sdk: OpenAI, model: str) -> None:
    """The SDK's stream helper adds the deltas up and makes the tool's own type of them."""
    deltas = ""
    tool = openai.pydantic_function_tool(Weather)
    with sdk.responses.stream(model=model, input="How is Oslo?", tools=[tool]) as stream:
        for event in stream:
            if event.type == "response.function_call_arguments.delta":
                deltas += event.delta
        called = stream.get_final_response().output[-1]
    assert called.type == "function_call"
    assert called.arguments == deltas
    assert called.parsed_arguments == Weather(city="Oslo", days=3)


def test_two_calls_in_one_answer(sdk: OpenAI, model: str) -> None:
    """Each has an id of its own, and both are answered at once."""
    asked = sdk.responses.parse(
        model=model, input="two cities", tools=[openai.pydantic_function_tool(Weather)]
    )
    calls = [item for item in asked.output if item.type == "function_call"]
    assert [called.parsed_arguments for called in calls] == [
        Weather(city="Oslo", days=1),
        Weather(city="Rome", days=2),
    ]
    assert calls[0].call_id != calls[1].call_id
    outputs: list[Any] = [
        {"type": "function_call_output", "call_id": called.call_id, "output": output}
        for called, output in zip(calls, ("snow in Oslo", "sun"), strict=True)
    ]
    done = sdk.responses.create(model=model, input=outputs, previous_response_id=asked.id)
    assert done.output_text == "It snows in Oslo."


def test_one_call_where_only_one_is_wanted(sdk: OpenAI, model: str) -> None:
    """`parallel_tool_calls: false` ends the answer after its first call."""
    asked = sdk.responses.create(model=model, input="two cities", tools=[FORECAST], parallel_tool_calls=False)
    assert [item.type for item in asked.output] == ["function_call"]


async def test_a_custom_tool_on_a_socket(async_sdk: AsyncOpenAI, model: str) -> None:
    """Free text comes in deltas, and the item is whole before the response is."""
    deltas = ""
    async with async_sdk.responses.connect() as connection:
        await connection.response.create(model=model, input="change it", tools=[CHANGE], store=False)
        async for event in connection:
            if event.type == "response.custom_tool_call_input.delta":
                deltas += event.delta
            if event.type == "response.output_item.done":
                called = event.item
            if event.type == "response.completed":
                break
        assert isinstance(called, ResponseCustomToolCall)
        assert deltas == called.input == PATCH
        output: Any = {
            "type": "custom_tool_call_output",
            "call_id": called.call_id,
            "output": "changed a.py",
        }
        await connection.response.create(
            model=model, input=[output], tools=[CHANGE], previous_response_id=event.response.id, store=False
        )
        async for event in connection:
            if event.type == "response.completed":
                break
    assert event.response.output_text == "x is 2 now."


def test_a_malformed_call_is_text(sdk: OpenAI, model: str) -> None:
    """The model finished and what it wrote is no call: the stream helper has a response, with all of it."""
    with sdk.responses.stream(model=model, input="malformed", tools=[LOOSE]) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_response()
    assert final.status == "completed"
    assert [item.type for item in final.output] == ["message", "message"]
    assert final.output_text == f"I look.\n{MALFORMED}"
    assert "response.function_call_arguments.delta" not in kinds
    again = sdk.responses.create(
        model=model, input="long", previous_response_id=final.id, max_output_tokens=1
    )
    assert again.status == "incomplete"


async def test_a_malformed_call_is_text_on_every_way(async_sdk: AsyncOpenAI, model: str) -> None:
    """Events of HTTP, one JSON answer, a socket: the same output, and a socket that goes on."""
    asked: Any = {"model": model, "input": "malformed", "tools": [LOOSE]}
    async with async_sdk.responses.stream(**asked) as stream:
        streamed = await stream.get_final_response()
    whole = await async_sdk.responses.create(**asked)
    async with async_sdk.responses.connect() as connection:
        for _ in range(2):
            await connection.response.create(**asked)
            async for event in connection:
                if event.type == "response.completed":
                    break
    for response in (streamed, whole, event.response):
        assert response.output_text == f"I look.\n{MALFORMED}"
        assert [item.type for item in response.output] == ["message", "message"]


@pytest.mark.parametrize("is_strict", [True, False])
async def test_a_call_that_was_cut_off_is_text(async_sdk: AsyncOpenAI, model: str, is_strict: bool) -> None:
    """Whether it was told as it grew or not: the stream helper ends well, as incomplete."""
    tool = FORECAST if is_strict else LOOSE
    async with async_sdk.responses.stream(
        model=model, input="two cities", tools=[tool], max_output_tokens=60
    ) as stream:
        events = [event async for event in stream]
    kinds = {event.type for event in events}
    assert ("response.function_call_arguments.delta" in kinds) == is_strict
    assert events[-1].type == "response.incomplete"
    assert [item.type for item in events[-1].response.output] == ["message"]
    assert call("Weather", city="Oslo", days=1).startswith(events[-1].response.output_text)


def test_a_stop_string_in_a_call_ends_it_as_text(sdk: OpenAI, model: str) -> None:
    """The answer is over where its client wanted it, in the middle of a call of a strict tool."""
    stop = {"stop": "Oslo"}
    with sdk.responses.stream(model=model, input="two cities", tools=[FORECAST], extra_body=stop) as stream:
        final = stream.get_final_response()
    assert [item.type for item in final.output] == ["message"]
    assert final.output_text == call("Weather", city="Oslo", days=1).partition("Oslo")[0]


async def test_a_real_model_calls_under_its_schema(smol_address: ServerAddress) -> None:
    """A call that must be made by a small model has arguments that are the tool's own type."""
    async with AsyncOpenAI(base_url=smol_address.url, api_key=smol_address.token) as client:
        model = (await client.models.list()).data[0].id
        asked = await client.responses.parse(
            model=model,
            input="How will the weather be in Oslo in the next 3 days?",
            tools=[openai.pydantic_function_tool(Weather)],
            tool_choice="required",
            parallel_tool_calls=False,
            max_output_tokens=200,
        )
    (called,) = [item for item in asked.output if item.type == "function_call"]
    assert isinstance(called.parsed_arguments, Weather)


@pytest.mark.parametrize("choice", ["none", {"type": "allowed_tools", "mode": "auto", "tools": []}])
def test_no_tool_may_be_called(sdk: OpenAI, model: str, choice: Any) -> None:
    """Text that looks like a call stays text where none is allowed."""
    asked = sdk.responses.create(model=model, input="two cities", tools=[FORECAST], tool_choice=choice)
    assert [item.type for item in asked.output] == ["message"]
    assert "<tool_call>" in asked.output_text
