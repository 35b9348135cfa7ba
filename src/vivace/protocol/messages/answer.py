"""The answer to a message, whole and as a stream of events, as Anthropic's SDK types have them.

Owns shapes only. `writer` decides which event comes when.
"""

from typing import Any

import msgspec

from vivace.protocol.shapes.events import Usage


class MessageUsage(msgspec.Struct, frozen=True):
    """What was read and written. The three counts of the input add up to the whole prompt.

    The KV of all that is read is kept. Whoever marks anything with `cache_control` counts what is put into a
    cache: that is all that was read for this answer. For others the same are `input_tokens`.
    """

    input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0


class TextBlock(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    text: str = ""


class ThinkingBlock(msgspec.Struct, frozen=True, tag_field="type", tag="thinking"):
    thinking: str = ""
    signature: str = ""


class ToolUseBlock(msgspec.Struct, frozen=True, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: Any


Block = TextBlock | ThinkingBlock | ToolUseBlock


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    id: str
    role: str = "assistant"
    model: str
    content: list[Block] = []
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: MessageUsage = MessageUsage()


class TextPiece(msgspec.Struct, frozen=True, tag_field="type", tag="text_delta"):
    text: str


class ThinkingPiece(msgspec.Struct, frozen=True, tag_field="type", tag="thinking_delta"):
    thinking: str


class SignaturePiece(msgspec.Struct, frozen=True, tag_field="type", tag="signature_delta"):
    signature: str


class InputPiece(msgspec.Struct, frozen=True, tag_field="type", tag="input_json_delta"):
    partial_json: str


Piece = TextPiece | ThinkingPiece | SignaturePiece | InputPiece


class MessageStart(msgspec.Struct, frozen=True, tag_field="type", tag="message_start"):
    message: Message


class BlockStart(msgspec.Struct, frozen=True, tag_field="type", tag="content_block_start"):
    index: int
    content_block: Block


class BlockDelta(msgspec.Struct, frozen=True, tag_field="type", tag="content_block_delta"):
    index: int
    delta: Piece


class BlockStop(msgspec.Struct, frozen=True, tag_field="type", tag="content_block_stop"):
    index: int


class StopDelta(msgspec.Struct, frozen=True):
    stop_reason: str
    stop_sequence: str | None = None


class MessageDelta(msgspec.Struct, frozen=True, tag_field="type", tag="message_delta"):
    delta: StopDelta
    usage: MessageUsage


class MessageStop(msgspec.Struct, frozen=True, tag_field="type", tag="message_stop"):
    """The answer is whole."""


class Ping(msgspec.Struct, frozen=True, tag_field="type", tag="ping"):
    """The turn waits, and lives."""


Event = MessageStart | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop | Ping


def usage_of(usage: Usage, *, is_marked: bool) -> MessageUsage:
    cached = usage.input_tokens_details.cached_tokens
    read = usage.input_tokens - cached
    return MessageUsage(
        input_tokens=0 if is_marked else read,
        cache_creation_input_tokens=read if is_marked else 0,
        cache_read_input_tokens=cached,
        output_tokens=usage.output_tokens,
    )
