"""What a client may ask for: the body of `POST /v1/responses`, and of `response.create` on a WebSocket.

Fields of OpenAI's API that we do not use are passed over; a field we would have to obey and cannot is
refused by name. The comment of a field that OpenAI's Responses API does not have begins with "Ours:", and
docs/reference/wire.md shows it. A last input message of the assistant's with `status: "in_progress"` is
continued, not closed.

Owns the shapes, and what follows from their fields. Does not own reading and checking (`parsing`).
"""

from typing import Annotated, Any, Literal

import msgspec

from vivace.protocol.shapes.items import InputItem, Part, joined
from vivace.protocol.shapes.tools import Choice, Tool, parse_choice, parse_tools, tools_in_items
from vivace.protocol.side_requests import is_side_request

MAX_BODY_BYTES = 16 * 1024 * 1024

Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 30)]
Seed = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
StopText = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
MetadataKey = Annotated[str, msgspec.Meta(max_length=64)]
MetadataValue = Annotated[str, msgspec.Meta(max_length=512)]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
Tier = Literal["realtime", "background"]


class Prediction(msgspec.Struct):
    type: Literal["content"] = "content"
    content: str | list[Part] = ""

    @property
    def text(self) -> str:
        return joined(self.content)


# The most tokens of thinking for each effort; None: as many as the model wants. Without an effort, too.
THINKING_TOKENS: dict[Effort, int | None] = {
    "none": 0,
    "minimal": 128,
    "low": 1024,
    "medium": 4096,
    "high": 16384,
    "xhigh": None,
}


class Reasoning(msgspec.Struct, omit_defaults=True):
    effort: Effort | None = None
    summary: str | None = None
    context: str | None = None
    is_implied: bool = False  # by an API, not asked for: upstreams, some of which refuse it, are not told


class TextFormat(msgspec.Struct, omit_defaults=True):
    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None


class TextConfig(msgspec.Struct, omit_defaults=True):
    format: TextFormat = msgspec.field(default_factory=TextFormat)
    verbosity: str | None = None


class CacheOptions(msgspec.Struct):
    prewarm: bool = False


class Infill(msgspec.Struct, frozen=True):
    """Text around a gap that is to be filled."""

    prefix: str
    suffix: str | None = None  # None: there is no gap, the text goes on


class ResponseCreate(msgspec.Struct, kw_only=True):
    model: str | None = None
    input: str | list[InputItem] | None = ""
    instructions: str | None = None
    previous_response_id: str | None = None
    stream: bool | None = None
    stream_id: str | None = None  # on a WebSocket: the lane
    background: bool | None = None
    generate: bool | None = None  # false: prefill the input and generate nothing
    max_output_tokens: Count | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    # Ours: choose among the `top_k` likeliest tokens; 0: among all.
    top_k: Annotated[int, msgspec.Meta(ge=0, le=1 << 30)] = 0
    # Ours: leave out tokens less likely than this share of the likeliest one.
    min_p: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    # Ours: divides the logits of tokens that are in the log already; 1: no change.
    repetition_penalty: Annotated[float, msgspec.Meta(gt=0, le=10)] = 1.0
    # Ours: taken off the logits of tokens that this answer has, as in chat completions.
    presence_penalty: Annotated[float, msgspec.Meta(ge=-2, le=2)] = 0.0
    # Ours: the same, for each time that it has them.
    frequency_penalty: Annotated[float, msgspec.Meta(ge=-2, le=2)] = 0.0
    # Ours: added to the logits of these token ids, as in chat completions.
    logit_bias: dict[int, Annotated[float, msgspec.Meta(ge=-100, le=100)]] = {}
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=20)] | None = None
    # Ours: `{"type": "content", "content": TEXT}`, text that the answer will resemble, as in chat
    # completions. It never changes the answer, only how soon it is there.
    prediction: Prediction | None = None
    store: bool | None = None
    metadata: dict[MetadataKey, MetadataValue] | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    include: list[str] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    service_tier: str | None = None
    prompt_cache_key: Annotated[str, msgspec.Meta(max_length=1024)] | None = None
    prompt_cache_options: CacheOptions | None = None  # `prewarm: true` is `generate: false`
    client_metadata: dict[str, Any] | None = None
    conversation: Any = None  # refused
    prompt: Any = None  # refused
    # Ours: one text or up to 16. The answer ends before the first of them, and no part of it is ever sent.
    stop: StopText | Annotated[list[StopText], msgspec.Meta(max_length=16)] | None = None
    seed: Seed | None = None  # Ours: the same seed after the same input gives the same answer.
    # Ours: with `generate: false`. The log-probability of each text as what the assistant would say next
    # comes as `scores` of the completed response. The candidates leave no trace in the conversation.
    candidates: Annotated[list[str], msgspec.Meta(min_length=1, max_length=256)] | None = None
    # Ours: with `generate: false`. The input is text that is still being typed. It gives way to realtime
    # turns and is no part of the response: go on from the same `previous_response_id` with what was typed.
    is_provisional: bool = False
    infill: Infill | None = None  # refused in a body: completions set it in place of `input`

    @property
    def items(self) -> list[InputItem]:
        if isinstance(self.input, str):
            return [InputItem(role="user", content=self.input)] if self.input else []
        return self.input or []

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    @property
    def is_generating(self) -> bool:
        """Return whether an answer is wanted, and not only the prefill."""
        is_prewarming = self.prompt_cache_options is not None and self.prompt_cache_options.prewarm
        return self.generate is not False and not is_prewarming

    @property
    def is_stored(self) -> bool:
        return self.store is not False

    @property
    def tier(self) -> Tier:
        """Return `background` for work that nobody waits for: OpenAI's cheaper tiers, side requests."""
        is_waited_for = not self.background and self.service_tier not in ("flex", "batch")
        return "realtime" if is_waited_for and not self._is_side_request() else "background"

    def _is_side_request(self) -> bool:
        first = self.input[0] if isinstance(self.input, list) and self.input else None
        is_told = first is not None and first.role in ("system", "developer")
        return is_side_request(
            self.client_metadata,
            self.instructions or (first.text if first and is_told else ""),
            self.text.format.schema if self.text else None,
            has_tools=bool(self.tools),
        )

    @property
    def effort(self) -> Effort | None:
        return self.reasoning.effort if self.reasoning else None

    @property
    def asked_effort(self) -> Effort | None:
        return None if self.reasoning and self.reasoning.is_implied else self.effort

    @property
    def thinking_tokens(self) -> int | None:
        """Return the most tokens that the model may think; None if there is no limit."""
        return THINKING_TOKENS[self.effort] if self.effort else None

    @property
    def schema(self) -> str:
        """Return the JSON schema that the text must obey; "" for any text."""
        format = self.text.format if self.text else TextFormat()
        if format.type == "json_object":
            return '{"type":"object"}'
        return msgspec.json.encode(format.schema).decode() if format.type == "json_schema" else ""

    @property
    def wants_logprobs(self) -> bool:
        return self.top_logprobs is not None or "message.output_text.logprobs" in (self.include or ())

    def all_tools(self) -> list[Tool]:
        """Return the tools of `tools` and of input items."""
        return parse_tools(self.tools or []) + tools_in_items(self.items)

    def choice(self) -> Choice:
        return parse_choice(self.tool_choice, self.all_tools())
