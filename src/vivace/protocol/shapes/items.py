"""Input items: messages, calls, outputs and reasoning, as clients send them.

Owns their shapes and what is refused about one. One lenient struct for all kinds: clients send back what they
were given, with fields that we have no use for, and old history must never fail a turn for a detail.
"""

from typing import Any, Literal

import msgspec

from vivace.protocol.shapes.refusal import Refusal

TEXT_PARTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text", "refusal")
CALLS = ("function_call", "custom_tool_call")
OUTPUTS = ("function_call_output", "custom_tool_call_output")
KINDS = ("message", *CALLS, *OUTPUTS, "reasoning", "additional_tools")
MAX_DEPTH = 100  # of what may be anything
MAX_VALUES = 100_000  # in it: looking at more would hold up everyone else


class Part(msgspec.Struct, omit_defaults=True):
    type: str
    text: str | None = None
    refusal: str | None = None

    @property
    def words(self) -> str:
        return self.text or self.refusal or ""


def joined(content: str | list[Part] | None) -> str:
    """Return the text of content, in whichever shape it came."""
    if isinstance(content, str):
        return content
    return "".join(part.words for part in content or ())


class InputItem(msgspec.Struct, omit_defaults=True):
    type: str = "message"
    id: str | None = None
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[Part] | None = None
    status: str | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: Any = None  # of a function call: JSON as a string, but whatever came is passed on
    input: str | None = None  # of a custom tool's call
    output: Any = None  # of a call: a string, or text parts
    summary: list[Part] | None = None
    encrypted_content: str | None = None
    tools: list[Any] | None = None  # of `additional_tools`

    @property
    def text(self) -> str:
        return joined(self.content)

    @property
    def call_text(self) -> str:
        """Return the arguments or input of a call as a string."""
        given = self.input if self.type == "custom_tool_call" else self.arguments
        if given is None or isinstance(given, str):
            return given or ""
        return msgspec.json.encode(given).decode()

    @property
    def output_text(self) -> str:
        if isinstance(self.output, list):
            return joined(msgspec.convert(self.output, list[Part]))  # as they came, or from the store
        if self.output is None or isinstance(self.output, str):
            return self.output or ""
        return msgspec.json.encode(self.output).decode()


def check_item(item: InputItem, where: str) -> None:
    """Refuse what cannot be obeyed. Only text is read: images, files and sounds are refused by name."""
    if item.arguments or item.output or item.tools:
        for name in ("arguments", "output", "tools"):
            check_depth(getattr(item, name), f"{where}.{name}")
    if item.type not in KINDS:
        raise _unsupported(
            f"Input items of type {item.type!r} are not supported; text and tool calls are.", f"{where}.type"
        )
    if item.type == "message" and item.role is None:
        raise missing("A message needs a role.", f"{where}.role")
    if item.type in CALLS and not item.name:
        raise missing("A call needs the tool's name.", f"{where}.name")
    if item.type in OUTPUTS and not item.call_id:
        raise missing("An output needs the call_id of its call.", f"{where}.call_id")
    if item.type in OUTPUTS and isinstance(item.output, list):
        item.output = _parts(item.output, f"{where}.output")
    if item.type == "message" and isinstance(item.content, list):
        _check_parts(item.content, f"{where}.content")


def check_depth(given: Any, where: str) -> None:
    """Refuse JSON that is nested too deeply to be written again."""
    level = [given] if isinstance(given, dict | list) else []
    count = 0
    for _ in range(MAX_DEPTH):
        if not level:
            return
        count += sum(map(len, level))
        if count > MAX_VALUES:
            raise Refusal(f"This has more than {MAX_VALUES} values.", code="invalid_value", param=where)
        inner = [one for each in level for one in (each.values() if isinstance(each, dict) else each)]
        level = [one for one in inner if isinstance(one, dict | list)]
    raise Refusal(f"This is nested more than {MAX_DEPTH} deep.", code="invalid_value", param=where)


def _parts(given: list[Any], where: str) -> list[Part]:
    try:
        parts = msgspec.convert(given, list[Part])
    except msgspec.ValidationError as error:
        raise Refusal(f"{error}.", code="invalid_value", param=where) from error
    _check_parts(parts, where)
    return parts


def _check_parts(parts: list[Part], where: str) -> None:
    for index, part in enumerate(parts):
        if part.type not in TEXT_PARTS:
            message = f"Content of type {part.type!r} is not supported: this server reads text only."
            raise _unsupported(message, f"{where}[{index}].type")
        if part.text is None and part.refusal is None:
            raise missing("A text part needs its text.", f"{where}[{index}].text")


def missing(message: str, param: str) -> Refusal:
    return Refusal(message, code="missing_required_parameter", param=param)


def _unsupported(message: str, param: str) -> Refusal:
    return Refusal(message, code="unsupported_parameter", param=param)
