"""Every event, response and list that the server sends is one of the SDK's typed classes, field by field."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.server.serving import LONG, fetch, script, send, sse_events
from tests.server.transport.sdk.sdk_types import problems_of_event, problems_of_items, problems_of_response
from vivace.client.warm import ServerAddress

Json = dict[str, Any]
ENDS = ("response.completed", "response.incomplete", "response.failed", "response.steer.failed", "error")
WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
PATCH = {"type": "custom", "name": "patch", "description": "Changes files."}
TOOLS = [WEATHER, PATCH]
LITE = {
    "type": "additional_tools",
    "role": "developer",
    "tools": [{"type": "namespace", "name": "functions", "description": "All.", "tools": TOOLS}],
}


def call(name: str, **arguments: str) -> str:
    """A call as the scripted model writes it."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


@pytest.fixture
def model(tmp_path: Path) -> str:
    replies = {
        "two cities": f"Let me see.\n{call('weather', city='Oslo')}\n{call('weather', city='Rome')}",
        "talk on": f"{call('weather', city='Oslo')}\n{LONG}",
        "change": call("patch", input="*** Begin Patch"),
        "half": '<tool_call>\n{"name": "weather", "arguments": {"ci',
        "as JSON": '{"answer": 42}',
        "long": "x" * 400,
        "": "Hello there.",
    }
    return script(tmp_path, replies=replies, step_ms=2)


def text_format(**fields: Any) -> Json:
    return {"text": {"format": fields}}


SCHEMA = {"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]}
BODIES: dict[str, Json] = {
    "text": {"input": "hi"},
    "every setting": {
        "input": [{"role": "developer", "content": "Be kind."}, {"role": "user", "content": "hi"}],
        "instructions": "Be brief.",
        "metadata": {"a": "b"},
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 1000,
        "parallel_tool_calls": False,
        "prompt_cache_key": "key",
        "reasoning": {"effort": "low", "summary": "auto"},
        "service_tier": "flex",
        "truncation": "auto",
        "user": "me",
    },
    "not stored": {"input": "hi", "store": False},
    "log-probabilities": {"input": "hi", "top_logprobs": 3, "include": ["message.output_text.logprobs"]},
    "warm-up": {"input": "hi", "generate": False},
    "scores": {"input": "hi", "generate": False, "candidates": ["a", "b"]},
    "prediction": {"input": "hi", "prediction": {"type": "content", "content": "Hello there."}},
    "cut short": {"input": "long", "max_output_tokens": 10},
    "two calls": {"input": "two cities", "tools": TOOLS},
    "a custom call": {"input": "change", "tools": TOOLS},
    "lite tools": {"input": [LITE, {"role": "user", "content": "two cities"}]},
    "no tool": {"input": "hi", "tools": TOOLS, "tool_choice": "none"},
    "one tool": {
        "input": "two cities",
        "tools": TOOLS,
        "tool_choice": {"type": "function", "name": "weather"},
    },
    "some tools": {
        "input": "two cities",
        "tools": TOOLS,
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [WEATHER | {"type": "function"}]},
    },
    "JSON": {"input": "as JSON", **text_format(type="json_object")},
    "a schema": {
        "input": "as JSON",
        **text_format(type="json_schema", name="answer", schema=SCHEMA, strict=True),
    },
}


async def heard(
    address: ServerAddress,
    body: Json,
    answer: Callable[[ClientConnection, list[Json]], Awaitable[None]] | None = None,
    ends: int = 1,
) -> list[Json]:
    """All events on a socket, until so many responses have ended; `answer` may say something in between."""
    headers = {"Authorization": f"Bearer {address.token}"}
    events: list[Json] = []
    async with connect(address.socket_url, additional_headers=headers, proxy=None) as socket:
        await socket.send(json.dumps({"type": "response.create"} | body))
        while sum(event["type"] in ENDS for event in events) < ends:
            events.append(json.loads(await socket.recv()))
            if answer:
                await answer(socket, events)
    return events


def problems_in(events: list[Json], *, is_on_socket: bool = True) -> list[str]:
    return [each for event in events for each in problems_of_event(event, is_on_socket=is_on_socket)]


@pytest.mark.parametrize("name", BODIES)
async def test_every_event_is_one_of_the_sdks(name: str, address: ServerAddress, model: str) -> None:
    """On a socket, in a stream and as JSON: no field is missing, of another type, or unknown."""
    body = BODIES[name] | {"model": model}
    assert problems_in(await heard(address, body | {"stream_id": "lane"})) == []
    streamed = sse_events(send(address, "POST", "/v1/responses", body | {"stream": True}))
    assert problems_in(streamed, is_on_socket=False) == []
    status, response = fetch(address, "POST", "/v1/responses", body)
    assert (status, problems_of_response(response)) == (200, [])


def last(events: list[Json], kind: str) -> bool:
    return bool(events[-1]["type"] == kind)


async def test_every_event_of_a_steer_is_one_of_the_sdks(address: ServerAddress, model: str) -> None:
    """Accepted, then incomplete, then the successor from its creation to its end."""

    async def steer(socket: ClientConnection, events: list[Json]) -> None:
        if len(events) == 1:
            message = {"type": "response.steer", "previous_response_id": events[0]["response"]["id"]}
            await socket.send(json.dumps(message | {"input": "now hi"}))

    events = await heard(address, {"model": model, "input": "long"}, steer, ends=2)
    assert "response.steer.accepted" in [event["type"] for event in events]
    assert problems_in(events) == []


async def test_a_steer_that_waits_for_calls_is_one_of_the_sdks(address: ServerAddress, model: str) -> None:
    """It is pending with a stub for each call, and commits with their outputs."""

    async def steer(socket: ClientConnection, events: list[Json]) -> None:
        parent = events[0]["response"]["id"]
        if last(events, "response.output_item.done") and events[-1]["item"]["type"] == "function_call":
            message = {"type": "response.steer", "previous_response_id": parent, "input": "now hi"}
            await socket.send(json.dumps(message))
        if last(events, "response.steer.pending"):
            outputs = [stub | {"output": "rain"} for stub in events[-1]["required_input"]]
            body = {"model": model, "input": outputs, "previous_response_id": parent}
            await socket.send(json.dumps({"type": "response.create"} | body))

    body = {"model": model, "input": "call and talk on", "tools": TOOLS}
    events = await heard(address, body, steer, ends=2)
    assert "response.steer.pending" in [event["type"] for event in events]
    assert problems_in(events) == []


async def test_every_event_of_a_refused_steer_is_one_of_the_sdks(address: ServerAddress, model: str) -> None:
    """A steer of a response that is over, or of none, gives its input back."""

    async def steer(socket: ClientConnection, events: list[Json]) -> None:
        if last(events, "response.completed"):
            for parent in (events[0]["response"]["id"], "resp_none"):
                message = {"type": "response.steer", "previous_response_id": parent, "input": "more"}
                await socket.send(json.dumps(message))

    events = await heard(address, {"model": model, "input": "hi"}, steer, ends=3)
    failures = [event for event in events if event["type"] == "response.steer.failed"]
    assert [event["error"]["code"] for event in failures] == [
        "response_already_completed",
        "response_not_found",
    ]
    assert problems_in(events) == []


async def test_an_error_frame_is_the_sdks(address: ServerAddress) -> None:
    """What is refused on a socket parses as the SDK's error event, with its lane and status."""
    image = [{"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]}]
    (event,) = await heard(address, {"input": image, "stream_id": "lane"})
    assert (event["status"], event["stream_id"]) == (400, "lane")
    assert problems_in([event]) == []


async def test_a_failed_response_is_the_sdks_but_for_its_code(address: ServerAddress) -> None:
    """`context_length_exceeded` is what OpenAI's server says and Codex needs; the SDK's list lacks it."""
    events = await heard(address, {"input": "x" * 10_000})
    assert last(events, "response.failed")
    (problem,) = problems_in(events)
    assert problem.startswith("response.failed: response.error.code: Input should be 'server_error'")


async def test_a_call_that_never_ended_is_taken_back(address: ServerAddress, model: str) -> None:
    """The one event of a plain request that the SDK does not know: an item that was begun and is none."""
    body = {"model": model, "input": "half", "tools": [WEATHER], "max_output_tokens": 40}
    events = await heard(address, body)
    assert problems_in(events) == ["response.output_item.interrupted: the SDK knows no such event"]
    assert [item["type"] for item in events[-1]["response"]["output"]] == ["message"]


async def test_a_call_that_may_be_none_is_not_told(address: ServerAddress, model: str) -> None:
    """Of a tool that is not strict: nothing is to be taken back, and all events are the SDK's."""
    loose = WEATHER | {"strict": False}
    events = await heard(address, {"model": model, "input": "half", "tools": [loose]})
    assert problems_in(events) == []
    assert events[-1]["type"] == "response.completed"
    assert [item["type"] for item in events[-1]["response"]["output"]] == ["message"]


async def test_only_an_interrupt_of_codex_is_unknown_to_the_sdk(address: ServerAddress, model: str) -> None:
    """Who sends `response.interrupt` hears events and a reason that the SDK does not list."""

    async def interrupt(socket: ClientConnection, events: list[Json]) -> None:
        if last(events, "response.output_text.delta") and len(events) == 5:
            message = {"type": "response.interrupt", "response_id": events[0]["response"]["id"]}
            await socket.send(json.dumps(message | {"mode": "discard_partial_items"}))

    events = await heard(address, {"model": model, "input": "long"}, interrupt)
    named = {problem.partition(":")[0] for problem in problems_in(events)}
    assert named == {
        "response.interrupt.accepted",
        "response.output_item.interrupted",
        "response.incomplete",
    }


def test_a_background_response_is_the_sdks_at_every_time(address: ServerAddress, model: str) -> None:
    """Queued or in progress, over, cancelled, and each event that is told again."""
    body = {"model": model, "input": "long", "background": True}
    _, begun = fetch(address, "POST", "/v1/responses", body)
    _, over = fetch(address, "POST", f"/v1/responses/{begun['id']}/cancel")
    _, found = fetch(address, "GET", f"/v1/responses/{begun['id']}")
    events = sse_events(send(address, "POST", "/v1/responses", body | {"stream": True}))
    path = f"/v1/responses/{events[0]['response']['id']}?stream=true&starting_after=2"
    again = sse_events(send(address, "GET", path))
    for response in (begun, over, found):
        assert problems_of_response(response) == []
    assert problems_in(events + again, is_on_socket=False) == []


def test_input_items_are_the_sdks(address: ServerAddress, model: str) -> None:
    """Messages of every role, calls, outputs, reasoning and tools, as they are listed afterwards."""
    items: list[Json] = [
        LITE,
        {"role": "developer", "content": "Be kind."},
        {"role": "system", "content": [{"type": "input_text", "text": "Be brief."}]},
        {"role": "user", "content": "two cities"},
        {"role": "assistant", "content": "Let me see."},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "rain"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "x"},
        {
            "type": "custom_tool_call_output",
            "call_id": "c2",
            "output": [{"type": "input_text", "text": "done"}],
        },
        {"role": "user", "content": "hi"},
    ]
    _, first = fetch(address, "POST", "/v1/responses", {"model": model, "input": items, "tools": TOOLS})
    more = {"model": model, "input": "two cities", "tools": TOOLS, "previous_response_id": first["id"]}
    _, second = fetch(address, "POST", "/v1/responses", more)
    _, page = fetch(address, "GET", f"/v1/responses/{second['id']}/input_items?limit=100")
    assert len(page["data"]) == len(items) + len(first["output"]) + 1
    assert problems_of_items(page) == []


async def test_the_check_itself_finds_mistakes(address: ServerAddress) -> None:
    """A missing field, a wrong type and an unknown field are each found: the check is no rubber stamp."""
    events = await heard(address, {"input": "hi"})
    created = events[0]
    response = {key: value for key, value in created["response"].items() if key != "tools"}
    for broken in (
        created | {"sequence_number": "0"},
        created | {"response": response},
        created | {"colour": "red"},
        created | {"type": "response.painted"},
    ):
        assert len(problems_in([broken])) == 1
