"""The answer to a chat completion, whole and in chunks, as OpenAI's SDK types have them.

Beyond them: `reasoning_content`, as many servers and clients know it, and our `vivace`. Owns shapes only.
"""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from vivace.protocol.shapes.events import Extension, Usage


class Function(msgspec.Struct, frozen=True):
    arguments: str
    name: str | UnsetType = UNSET


class Custom(msgspec.Struct, frozen=True):
    input: str
    name: str | UnsetType = UNSET


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A whole call, or (with an index) a part of one: first its id and name, then its arguments."""

    index: int | UnsetType = UNSET
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    function: Function | UnsetType = UNSET
    custom: Custom | UnsetType = UNSET


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    role: str | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET


class Logprobs(msgspec.Struct, frozen=True):
    content: list[Any]
    refusal: None = None


class ChunkChoice(msgspec.Struct, frozen=True):
    delta: Delta
    finish_reason: str | None = None
    logprobs: Logprobs | None = None
    index: int = 0


class PromptTokensDetails(msgspec.Struct, frozen=True):
    cached_tokens: int
    audio_tokens: int = 0


class CompletionTokensDetails(msgspec.Struct, frozen=True):
    reasoning_tokens: int
    accepted_prediction_tokens: int
    rejected_prediction_tokens: int
    audio_tokens: int = 0


class ChatUsage(msgspec.Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: str = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: ChatUsage | UnsetType | None = UNSET  # if it was asked for; null in all but the last
    vivace: Extension | UnsetType = UNSET


class ChatMessage(msgspec.Struct, frozen=True):
    content: str | None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET
    refusal: None = None
    role: str = "assistant"


class ChatChoice(msgspec.Struct, frozen=True):
    message: ChatMessage
    finish_reason: str
    logprobs: Logprobs | None = None
    index: int = 0


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: str = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: ChatUsage
    service_tier: str = "default"
    vivace: Extension


def usage_of(usage: Usage) -> ChatUsage:
    output = usage.output_tokens_details
    return ChatUsage(
        usage.input_tokens,
        usage.output_tokens,
        usage.total_tokens,
        PromptTokensDetails(usage.input_tokens_details.cached_tokens),
        CompletionTokensDetails(
            output.reasoning_tokens, output.accepted_prediction_tokens, output.rejected_prediction_tokens
        ),
    )
