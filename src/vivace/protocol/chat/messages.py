"""The messages of a chat completion: from every shape in which clients send them to input items.

Owns their shapes and what is refused about one. Lenient, as `items` is: old history must never fail a turn
for a detail. Malformed arguments pass as they are.
"""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from vivace.protocol.shapes.items import InputItem, Part, check_item, joined, missing
from vivace.protocol.shapes.refusal import Refusal


class Called(msgspec.Struct):
    """What a tool call calls: a function with arguments, or a custom tool with its input."""

    name: str | None = None
    arguments: Any = None  # of old history: no JSON perhaps, and passed on as it is
    input: str | None = None


class ToolCall(msgspec.Struct):
    id: str | None = None
    type: str | None = None
    function: Called | None = None
    custom: Called | None = None


class Message(msgspec.Struct):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    function_call: Any = None
    audio: Any = None
    reasoning_content: Any = None
    reasoning: Any = None


def items_of(messages: list[Message]) -> Iterator[InputItem]:
    custom_ids: set[str] = set()  # of calls whose outputs are those of custom tools
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        _check_content(message, where)
        match message.role:
            case "function":
                hint = "Send it as role 'tool', with the tool_call_id."
                raise unsupported("The role 'function' is no longer supported.", f"{where}.role", hint)
            case "tool":
                yield _output(message, where, custom_ids)
            case "assistant":
                yield from _said(message)
                for number, call in enumerate(message.tool_calls or ()):
                    yield _call(call, f"{where}.tool_calls[{number}]", custom_ids)
            case role:
                if message.content is None:
                    raise missing("A message needs its content.", f"{where}.content")
                yield InputItem(role=role, content=message.content)


def _check_content(message: Message, where: str) -> None:
    check_item(InputItem(role="user", content=message.content), where)
    if message.audio is not None:
        raise unsupported("This server reads text only.", f"{where}.audio")
    if message.function_call is not None:
        hint = "Use tool_calls."
        raise unsupported("function_call is no longer supported.", f"{where}.function_call", hint)


def _output(message: Message, where: str, custom_ids: set[str]) -> InputItem:
    call_id = message.tool_call_id
    if not call_id:
        raise missing("A tool's answer needs the tool_call_id of its call.", f"{where}.tool_call_id")
    kind = "custom_tool_call_output" if call_id in custom_ids else "function_call_output"
    return InputItem(type=kind, call_id=call_id, output=joined(message.content))


def _said(message: Message) -> Iterator[InputItem]:
    """Return an assistant's reasoning and message. An empty text before a call is no message."""
    thought = message.reasoning_content or message.reasoning
    if isinstance(thought, str) and thought:
        yield InputItem(type="reasoning", content=[Part("reasoning_text", thought)])
    content = message.content or message.refusal or ""
    if content or not message.tool_calls:
        yield InputItem(role="assistant", content=content)


def _call(call: ToolCall, where: str, custom_ids: set[str]) -> InputItem:
    is_custom = call.type == "custom"
    called = (call.custom if is_custom else call.function) or Called()
    if is_custom and call.id:
        custom_ids.add(call.id)
    item = InputItem(
        type="custom_tool_call" if is_custom else "function_call",
        call_id=call.id,
        name=called.name,
        arguments=called.arguments,
        input=called.input,
    )
    check_item(item, f"{where}.{'custom' if is_custom else 'function'}")
    return item


def unsupported(message: str, param: str, hint: str = "") -> Refusal:
    return Refusal(message, hint, code="unsupported_parameter", param=param)
