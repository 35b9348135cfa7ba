"""Tools through the whole server: calls come out as items, their outputs go on from the same log."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.server.serving import fetch, script, send, sse_events
from vivace.client.responses import ResponsesClient
from vivace.client.warm import ServerAddress

SHELL = {
    "type": "function",
    "name": "shell",
    "description": "Run a command",
    "parameters": {
        "type": "object",
        "properties": {"command": {"type": "string"}},
        "required": ["command"],
        "additionalProperties": False,
    },
    "strict": False,
}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Change files"}
CALL = '<tool_call>\n{"name": "shell", "arguments": {"command": "ls -l"}}\n</tool_call>'
PATCHED = (
    '<tool_call>\n{"name": "apply_patch", "arguments": {"input": "*** Begin\\n+\\u00e9\\n"}}\n</tool_call>'
)


@pytest.fixture
def caller(tmp_path: Path) -> str:
    """A model that calls a tool until it has seen an output."""
    replies = {"total 0": "Nothing is here.", "patch": PATCHED, "half": CALL[:-20], "": f"I look.{CALL}"}
    return script(tmp_path, replies=replies, step_ms=0.2)


def of_type(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["type"] == kind]


def test_a_call_is_told_as_it_grows(address: ServerAddress, caller: str) -> None:
    """The text before it is a message that is done; the call is an item with its arguments in pieces."""
    body = {"model": caller, "input": "look", "tools": [SHELL], "stream": True}
    events = sse_events(send(address, "POST", "/v1/responses", body))
    message, call = [event["item"] for event in of_type(events, "response.output_item.done")]
    assert message["content"][0]["text"] == "I look."
    assert (call["type"], call["name"]) == ("function_call", "shell")
    assert json.loads(call["arguments"]) == {"command": "ls -l"}
    deltas = of_type(events, "response.function_call_arguments.delta")
    assert "".join(event["delta"] for event in deltas) == call["arguments"]
    assert events[-1]["response"]["output"] == [message, call]
    assert [event["output_index"] for event in of_type(events, "response.output_item.added")] == [0, 1]


def test_a_custom_tool_gets_free_text(address: ServerAddress, caller: str) -> None:
    """Its input is the text itself, not JSON."""
    body = {"model": caller, "input": "patch", "tools": [PATCH]}
    _, answer = fetch(address, "POST", "/v1/responses", body)
    (call,) = answer["output"]
    assert (call["type"], call["input"]) == ("custom_tool_call", "*** Begin\n+é\n")


def test_an_output_goes_on_from_the_log(address: ServerAddress, caller: str) -> None:
    """The call is not sent again, nothing is prefilled twice, and the tools are not told twice."""
    _, first = fetch(address, "POST", "/v1/responses", {"model": caller, "input": "look", "tools": [SHELL]})
    output = {"type": "function_call_output", "call_id": first["output"][1]["call_id"], "output": "total 0"}
    body = {"model": caller, "previous_response_id": first["id"], "input": [output], "tools": [SHELL]}
    _, second = fetch(address, "POST", "/v1/responses", body)
    assert second["output"][0]["content"][0]["text"] == "Nothing is here."
    assert second["vivace"]["waterfall"]["cached_tokens"] >= first["usage"]["total_tokens"] - 1
    assert second["vivace"]["waterfall"]["new_tokens"] < 150, "not the tools again"


async def test_lite_tools_hold_for_the_turns_after(address: ServerAddress, caller: str) -> None:
    """Codex gives its tools once, as an input item; a continuation that names none still has them."""
    tools = {"type": "namespace", "name": "functions", "description": "", "tools": [SHELL]}
    given = {"type": "additional_tools", "role": "developer", "tools": [tools]}
    async with ResponsesClient(address) as client:
        warm = await client.complete({"model": caller, "input": [given], "generate": False, "store": False})
        asked = {"model": caller, "input": "look", "previous_response_id": warm.id, "store": False}
        first = await client.complete(asked)
        assert first.output[1].name == "shell"  # type: ignore[union-attr]
        assert first.output[1].namespace == "functions"  # type: ignore[union-attr]


def test_half_a_call_is_text(address: ServerAddress, caller: str) -> None:
    """The answer is cut off inside a call: nothing is called done that a client would run."""
    body = {"model": caller, "input": "look", "tools": [SHELL], "stream": True, "max_output_tokens": 60}
    events = sse_events(send(address, "POST", "/v1/responses", body))
    assert events[-1]["type"] == "response.incomplete"
    done = [event["item"] for event in of_type(events, "response.output_item.done")]
    assert {item["type"] for item in done} == {"message"}
    text = "".join(part["text"] for item in done for part in item["content"])
    assert text.startswith("I look.<tool_call>")
    assert events[-1]["response"]["output"] == done


def test_malformed_arguments_in_the_history_are_passed_on(address: ServerAddress, caller: str) -> None:
    """A client may send back what some model once wrote; no turn fails for it."""
    history = [
        {"role": "user", "content": "look"},
        {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": '{"command": "ls'},
        {"type": "function_call_output", "call_id": "c1", "output": "total 0"},
    ]
    status, answer = fetch(
        address, "POST", "/v1/responses", {"model": caller, "input": history, "tools": [SHELL]}
    )
    assert (status, answer["output"][0]["content"][0]["text"]) == (200, "Nothing is here.")


def test_a_schema_is_obeyed_by_a_real_model(smol_address: ServerAddress) -> None:
    """`text.format` and a required strict tool: the small model has no choice but to obey."""
    schema = {
        "type": "object",
        "properties": {"colour": {"enum": ["red", "green"]}, "count": {"type": "integer"}},
        "required": ["colour", "count"],
        "additionalProperties": False,
    }
    spec = {"format": {"type": "json_schema", "name": "choice", "schema": schema, "strict": True}}
    body = {"input": "Choose a colour.", "text": spec, "max_output_tokens": 60}
    _, answer = fetch(smol_address, "POST", "/v1/responses", body)
    chosen = json.loads(answer["output"][0]["content"][0]["text"])
    assert chosen["colour"] in ("red", "green")
    assert isinstance(chosen["count"], int)
    tool = {"type": "function", "name": "choose", "parameters": schema, "strict": True}
    body = {"input": "Choose.", "tools": [tool], "tool_choice": "required", "parallel_tool_calls": False}
    _, answer = fetch(smol_address, "POST", "/v1/responses", body | {"max_output_tokens": 80})
    (call,) = answer["output"]
    assert json.loads(call["arguments"])["colour"] in ("red", "green")


@pytest.mark.parametrize("part", [{"type": "input_image", "image_url": "x"}, {"type": "input_file"}])
def test_only_text_is_read(address: ServerAddress, part: dict[str, Any]) -> None:
    """An image or a file is refused by name."""
    status, answer = fetch(address, "POST", "/v1/responses", {"input": [{"role": "user", "content": [part]}]})
    assert (status, answer["error"]["param"]) == (400, "input[0].content[0].type")
    assert part["type"] in answer["error"]["message"]
