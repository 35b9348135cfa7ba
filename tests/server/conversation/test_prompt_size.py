"""What makes a request large enough to be made into a prompt beside the event loop."""

from typing import Any

import msgspec
import pytest

from vivace.protocol.shapes.requests import ResponseCreate
from vivace.server.conversation.prompt_writing import LARGE_CHARS, is_large_request
from vivace.server.conversation.token_log import LogContents

LONG = "x" * LARGE_CHARS
TOOL = {"type": "function", "name": "f", "description": LONG}
ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": LONG},
    {"role": "user", "content": [{"type": "input_text", "text": LONG}]},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": LONG},
    {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": LONG},
    {"type": "function_call_output", "call_id": "c", "output": LONG},
    {"type": "reasoning", "content": [{"type": "reasoning_text", "text": LONG}]},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": LONG}]},
    {"type": "additional_tools", "tools": [TOOL]},
]
FIELDS: list[dict[str, Any]] = [
    {"instructions": LONG},
    {"tools": [TOOL]},
    {"candidates": [LONG], "generate": False},
    {"prediction": {"type": "content", "content": LONG}},
    {"text": {"format": {"type": "json_schema", "name": "s", "schema": {"description": LONG}}}},
]


def is_large(log_contents: LogContents | None = None, **fields: Any) -> bool:
    request = msgspec.convert({"input": "hi"} | fields, ResponseCreate)
    return is_large_request(request, log_contents or LogContents(), [])


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: " ".join(item))
def test_any_item_can_be_long(item: dict[str, Any]) -> None:
    assert is_large(input=[{"role": "user", "content": "hi"}, item])


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: " ".join(field))
def test_any_field_can_be_long(field: dict[str, Any]) -> None:
    assert is_large(**field)


def test_many_short_items_are_long() -> None:
    """Ten thousand greetings took the event loop 17 ms."""
    assert is_large(input=[{"role": "user", "content": "hi"}] * 300)


def test_what_the_log_has_already_is_not_counted() -> None:
    """A client repeats its instructions with every turn."""
    assert not is_large(LogContents(instructions=LONG), instructions=LONG)


def test_an_ordinary_request_is_small() -> None:
    assert not is_large(tools=[{"type": "function", "name": "f"}], instructions="Be brief.")
