"""Anthropic's Messages API, for clients that speak it: what they may ask for.

A request becomes the `ResponseCreate` that asks for the same, so that there is one way through the server;
bounds and rules are checked there, once. Fields and betas that we do not know are passed over.

Owns the request's shapes and its translation, and back again of the names in a refusal. Does not own its
messages (`content`) nor the answer (`writer`).
"""

from typing import Any, Literal

import msgspec

from vivace.protocol.messages.content import Block, Message, Reader, system_text
from vivace.protocol.shapes.items import InputItem, missing
from vivace.protocol.shapes.parsing import MAX_ITEMS, check_sizes, decode, parse_create
from vivace.protocol.shapes.refusal import Refusal, in_words
from vivace.protocol.shapes.requests import THINKING_TOKENS, Effort, ResponseCreate
from vivace.protocol.shapes.tools import Name
from vivace.protocol.side_requests import TITLE_TOKENS, is_title_schema

# The same name and meaning on both sides.
SAME = ("model", "stream", "temperature", "top_p", "service_tier")
# How a client of this API calls what a refusal is about.
NAMES = {
    "input": "messages",
    "instructions": "system",
    "max_output_tokens": "max_tokens",
    "stop": "stop_sequences",
    "text.format.schema": "output_config.format.schema",
    "text": "output_config.format",
    "reasoning": "thinking",
}
CHOICES = {"auto": "auto", "any": "required", "none": "none"}
THINKING_EFFORTS: tuple[Effort, ...] = ("medium", "high")  # up to a budget; above it, as much as is wanted


class MessageTool(msgspec.Struct):
    name: Name
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None
    cache_control: Any = None


class ToolChoice(msgspec.Struct):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(msgspec.Struct):
    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: int | None = None


class OutputFormat(msgspec.Struct):
    type: Literal["json_schema"]
    schema: dict[str, Any] | None = None


class OutputConfig(msgspec.Struct):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


class MessageCreate(msgspec.Struct, kw_only=True):
    """The body. Fields of any type here are checked as fields of `ResponseCreate`."""

    messages: list[Message] | None = None
    system: str | list[Block] | None = None
    model: Any = None
    max_tokens: Any = None
    stream: bool | None = None
    temperature: Any = None
    top_p: Any = None
    top_k: Any = None
    stop_sequences: Any = None
    tools: list[MessageTool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    service_tier: Any = None
    cache_control: Any = None  # of the newest block

    @property
    def is_marked(self) -> bool:
        """Return whether its client asks for something to be cached."""
        messages = [message.content for message in self.messages or () if isinstance(message.content, list)]
        system = [self.system] if isinstance(self.system, list) else []
        marks = [block.cache_control for blocks in (*system, *messages) for block in blocks]
        marks += [tool.cache_control for tool in self.tools or ()]
        return any(mark is not None for mark in (*marks, self.cache_control))


class MessageRequest(msgspec.Struct, frozen=True):
    create: ResponseCreate
    is_marked: bool = False  # its client counts what is put into a cache


class _Sized(msgspec.Struct):
    """The fields that may hold anything, kept as raw JSON."""

    tools: msgspec.Raw = msgspec.Raw()
    tool_choice: msgspec.Raw = msgspec.Raw()
    output_config: msgspec.Raw = msgspec.Raw()
    stop_sequences: msgspec.Raw = msgspec.Raw()
    metadata: msgspec.Raw = msgspec.Raw()
    context_management: msgspec.Raw = msgspec.Raw()


def parse_message(data: bytes | str, reader: Reader) -> MessageRequest:
    """Return a checked request; raise a `Refusal` that names the field that is wrong."""
    check_sizes(data, _Sized)
    asked = decode(data, MessageCreate)
    items = _items(asked.messages, reader)
    try:
        create = parse_create(msgspec.json.encode(_settings(asked)))
    except Refusal as refusal:
        raise in_message_words(refusal) from refusal.__cause__
    create.input = items
    if create.text and is_title_schema(create.text.format.schema) and not create.tools:
        create.max_output_tokens = min(create.max_output_tokens or TITLE_TOKENS, TITLE_TOKENS)
    return MessageRequest(create, asked.is_marked)


def in_message_words(refusal: Refusal) -> Refusal:
    """Return the same refusal about the field of the message request."""
    return in_words(refusal, NAMES)


def _items(messages: list[Message] | None, reader: Reader) -> list[InputItem]:
    if not messages:
        raise missing("There are no messages to answer.", "messages")
    if len(messages) > MAX_ITEMS or len(items := list(reader.items(messages))) > MAX_ITEMS:
        raise Refusal(
            f"There are at most {MAX_ITEMS} messages and calls.", code="invalid_value", param="messages"
        )
    return items


# ---- everything but the messages -------------------------------------------------------------------


def _settings(asked: MessageCreate) -> dict[str, Any]:
    """Return the settings as the body of a Responses request. Nothing is stored: nobody could ask for it."""
    settings = {name: getattr(asked, name) for name in SAME}
    choice = asked.tool_choice
    settings |= {
        "input": "-",  # the messages take its place
        "store": False,
        "instructions": system_text(asked.system),
        "max_output_tokens": asked.max_tokens,
        "top_k": 0 if asked.top_k == -1 else asked.top_k,
        "stop": asked.stop_sequences or None,
        "tools": [_tool(tool, f"tools[{index}]") for index, tool in enumerate(asked.tools or ())],
        "tool_choice": _choice(choice) if choice else None,
        "parallel_tool_calls": not (choice and choice.disable_parallel_tool_use),
        "text": _text(asked.output_config),
        "reasoning": {"effort": effort_of(asked), "is_implied": asked.thinking is None},
    }
    return {name: value for name, value in settings.items() if value is not None}


def _tool(tool: MessageTool, where: str) -> dict[str, Any]:
    if tool.type not in (None, "custom"):
        raise Refusal(
            f"Tools of type {tool.type[:60]!r} are not run here: this server offers your own.",
            code="unsupported_parameter",
            param=f"{where}.type",
        )
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.input_schema,
        "strict": tool.strict is True,
    }


def _choice(choice: ToolChoice) -> Any:
    if choice.type != "tool":
        return CHOICES[choice.type]
    if not choice.name:
        raise missing("tool_choice of type 'tool' needs the tool's name.", "tool_choice.name")
    return {"type": "function", "name": choice.name}


def _text(config: OutputConfig | None) -> dict[str, Any] | None:
    if config is None or config.format is None:
        return None
    return {"format": {"type": "json_schema", "name": "answer", "schema": config.format.schema}}


def effort_of(asked: MessageCreate) -> Effort:
    """Return how hard the model is to think. Without `thinking`, it does not."""
    thinking = asked.thinking
    if thinking is None or thinking.type == "disabled":
        return "none"
    if thinking.type == "enabled" and thinking.budget_tokens is not None:
        budget = thinking.budget_tokens
        return next((e for e in THINKING_EFFORTS if budget <= (THINKING_TOKENS[e] or 0)), "xhigh")
    given = asked.output_config.effort if asked.output_config else None
    return "xhigh" if given == "max" else given or "high"
