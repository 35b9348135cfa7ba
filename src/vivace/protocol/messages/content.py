"""The messages of Anthropic's API: content blocks become input items.

Owns their shapes and what is refused about one. Only text is read: images and documents are refused by name;
in a tool's result, which the user did not write and cannot take back, a note stands for them. A text and one
block with that text are the same, and marks for a cache have no effect. Billing headers, which differ in
every conversation, are left out of the system text.
"""

from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec

from vivace.protocol.messages.said_calls import SaidCalls
from vivace.protocol.shapes.items import InputItem, Part, check_depth, missing
from vivace.protocol.shapes.refusal import Refusal

BILLING = "x-anthropic-billing-header:"
FAILED = "Error: "  # before the result of a tool that failed, unless that says so itself
SAYS_SO = ("error", "<tool_use_error>")

IsOurs = Callable[[str, str], bool]  # a thought, its signature: whether it was thought here


class Block(msgspec.Struct):
    """A content block of any type. Fields that we have no use for are passed over, as in input items."""

    type: str
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None
    tool_use_id: str | None = None
    content: Any = None  # of a result: a string, or blocks
    is_error: bool | None = None
    cache_control: Any = None  # no part of the prompt


class Message(msgspec.Struct):
    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


def system_text(system: str | list[Block] | None) -> str | None:
    """Return the system text; None if there is none."""
    if system is None or isinstance(system, str):
        return system or None
    for index, block in enumerate(system):
        if block.type != "text":
            raise _not_read(block.type, f"system[{index}].type")
    texts = [text for block in system if not (text := block.text or "").startswith(BILLING)]
    return joined_lines(texts) or None


def joined_lines(texts: list[str]) -> str:
    """Join the texts of blocks, each at the beginning of a line."""
    lines = [text if text.endswith("\n") else f"{text}\n" for text in texts[:-1] if text]
    return "".join([*lines, *texts[-1:]])


class Reader:
    """Reads the messages of one request."""

    def __init__(self, said: SaidCalls, is_ours: IsOurs) -> None:
        self._said = said
        self._is_ours = is_ours

    def items(self, messages: list[Message]) -> Iterator[InputItem]:
        for index, message in enumerate(messages):
            where = f"messages[{index}]"
            if message.role == "assistant":
                yield from self._answer(message, where, is_last=index == len(messages) - 1)
            else:
                yield from _told(message, where)

    def _answer(self, message: Message, where: str, *, is_last: bool) -> Iterator[InputItem]:
        """Give what was said before. If it comes last, the answer goes on from there."""
        blocks = _blocks(message)
        for index, block in enumerate(blocks):
            match block.type:
                case "text" if block.text:
                    is_open = is_last and index == len(blocks) - 1
                    status = "in_progress" if is_open else None
                    yield InputItem(role="assistant", content=block.text, status=status)
                case "thinking" if block.thinking and self._is_ours(block.thinking, block.signature or ""):
                    yield InputItem(type="reasoning", content=[Part("reasoning_text", block.thinking)])
                case "tool_use":
                    yield self._call(block, f"{where}.content[{index}]")

    def _call(self, block: Block, where: str) -> InputItem:
        if not block.name or not block.id:
            raise missing("A tool_use block needs its id and name.", where)
        check_depth(block.input, f"{where}.input")
        arguments = self._said.arguments(block.id, {} if block.input is None else block.input)
        return InputItem(type="function_call", call_id=block.id, name=block.name, arguments=arguments)


def _blocks(message: Message) -> list[Block]:
    if isinstance(message.content, str):
        return [Block("text", text=message.content)]
    return message.content


def _told(message: Message, where: str) -> Iterator[InputItem]:
    """Give what the user or the system says, and results of tools, in their order."""
    texts: list[str] = []
    role = message.role
    for index, block in enumerate(_blocks(message)):
        at = f"{where}.content[{index}]"
        match block.type:
            case "text":
                texts.append(block.text or "")
            case "tool_result":
                if texts:
                    yield InputItem(role=role, content=joined_lines(texts))
                    texts = []
                yield _result(block, at)
            case _:
                raise _not_read(block.type, f"{at}.type")
    if texts:
        yield InputItem(role=role, content=joined_lines(texts))


def _result(block: Block, where: str) -> InputItem:
    if not block.tool_use_id:
        raise missing("A tool_result block needs the tool_use_id of its call.", f"{where}.tool_use_id")
    text = _result_text(block.content, where)
    if block.is_error and not text.lstrip().lower().startswith(SAYS_SO):
        text = FAILED + text
    return InputItem(type="function_call_output", call_id=block.tool_use_id, output=text)


def _result_text(content: Any, where: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    try:
        blocks = msgspec.convert(content, list[Block])
    except msgspec.ValidationError as error:
        raise Refusal(f"{error}.", code="invalid_value", param=f"{where}.content") from error
    return joined_lines([block.text or "" if block.type == "text" else _note(block.type) for block in blocks])


def _note(kind: str) -> str:
    """Return what the model reads in place of a result that is no text."""
    return f"[Content of type {kind[:40]} was left out: only text can be read here.]"


def _not_read(kind: str, param: str) -> Refusal:
    message = f"Content of type {kind[:40]!r} is not supported: this server reads text only."
    return Refusal(message, code="unsupported_parameter", param=param)
