"""The response object and its events, as OpenAI's SDK types have them, plus our `vivace` and `scores`.

Owns shapes only. `writer` decides which event comes when.
"""

from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType


class OutputText(msgspec.Struct, frozen=True, tag_field="type", tag="output_text"):
    text: str
    annotations: list[Any] = []
    logprobs: list[Any] = []


class OutputMessage(msgspec.Struct, frozen=True, tag_field="type", tag="message"):
    id: str
    status: str  # in_progress, completed, incomplete
    content: list[OutputText] = []
    role: str = "assistant"


class InputTokensDetails(msgspec.Struct, frozen=True):
    cached_tokens: int = 0
    cache_write_tokens: int = 0


class OutputTokensDetails(msgspec.Struct, frozen=True):
    reasoning_tokens: int = 0
    accepted_prediction_tokens: int = 0  # drafted, from the prediction or the session's own text, and right
    rejected_prediction_tokens: int = 0


class Usage(msgspec.Struct, frozen=True):
    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputTokensDetails = InputTokensDetails()
    output_tokens_details: OutputTokensDetails = OutputTokensDetails()


class Waterfall(msgspec.Struct, frozen=True):
    """Where a turn's time went: first as the server saw it, then as the engine did."""

    total_ms: float = 0.0  # request read → terminal event
    queue_ms: float = 0.0  # waiting: for the engine to start or switch, then for its first step on this turn
    tokenize_ms: float = 0.0
    first_token_ms: float = 0.0  # request read → first token back at the server
    server_ms: float = 0.0  # what is left of the total: frames, events, text
    restore_ms: float = 0.0  # KV read back from disk
    prefill_ms: float = 0.0  # forward passes over the prompt
    decode_ms: float = 0.0  # first token → last token
    draft_ms: float = 0.0  # finding drafts
    grammar_ms: float = 0.0  # compiling the grammar and computing its masks
    overhead_ms: float = 0.0  # the engine's own work outside the model, drafts and grammar included
    cached_tokens: int = 0  # prompt tokens whose KV was already there, in memory or on disk
    restored_tokens: int = 0  # those of them that came from disk
    new_tokens: int = 0  # prompt tokens prefilled by this turn
    output_tokens: int = 0
    steps: int = 0  # forward passes of the model
    draft_accepted: int = 0  # drafted tokens that the model said too
    draft_rejected: int = 0
    restarts: int = 0  # times the engine died under this turn


class IncompleteDetails(msgspec.Struct, frozen=True):
    reason: str  # max_output_tokens, interrupted


class ResponseError(msgspec.Struct, frozen=True):
    code: str
    message: str


class Extension(msgspec.Struct, frozen=True):
    waterfall: Waterfall


class Response(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: str = "response"
    created_at: int
    status: str  # in_progress, completed, incomplete, failed
    model: str
    output: list[OutputMessage] = []
    usage: Usage | None = None
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    previous_response_id: str | None = None
    instructions: str | None = None
    metadata: dict[str, str] = {}
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    store: bool = True
    parallel_tool_calls: bool = False
    tool_choice: str = "auto"
    tools: list[Any] = []
    scores: list[float] | UnsetType = UNSET
    vivace: Extension | UnsetType = UNSET

    @property
    def text(self) -> str:
        return "".join(part.text for message in self.output for part in message.content)


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Every event has its place in the turn; the last one, and only that, is terminal."""

    is_terminal: ClassVar[bool] = False
    sequence_number: int


class _Whole(Event, frozen=True, kw_only=True):
    response: Response


class ResponseCreated(_Whole, frozen=True, tag="response.created"):
    pass


class ResponseInProgress(_Whole, frozen=True, tag="response.in_progress"):
    pass


class ResponseCompleted(_Whole, frozen=True, tag="response.completed"):
    is_terminal: ClassVar[bool] = True


class ResponseIncomplete(_Whole, frozen=True, tag="response.incomplete"):
    is_terminal: ClassVar[bool] = True


class ResponseFailed(_Whole, frozen=True, tag="response.failed"):
    is_terminal: ClassVar[bool] = True


class OutputItemAdded(Event, frozen=True, kw_only=True, tag="response.output_item.added"):
    item: OutputMessage
    output_index: int = 0


class OutputItemDone(Event, frozen=True, kw_only=True, tag="response.output_item.done"):
    item: OutputMessage
    output_index: int = 0


class _InPart(Event, frozen=True, kw_only=True):
    item_id: str
    output_index: int = 0
    content_index: int = 0


class ContentPartAdded(_InPart, frozen=True, kw_only=True, tag="response.content_part.added"):
    part: OutputText


class ContentPartDone(_InPart, frozen=True, kw_only=True, tag="response.content_part.done"):
    part: OutputText


class OutputTextDelta(_InPart, frozen=True, kw_only=True, tag="response.output_text.delta"):
    delta: str
    logprobs: list[Any] = []


class OutputTextDone(_InPart, frozen=True, kw_only=True, tag="response.output_text.done"):
    text: str
    logprobs: list[Any] = []


AnyEvent = (
    ResponseCreated
    | ResponseInProgress
    | OutputItemAdded
    | ContentPartAdded
    | OutputTextDelta
    | OutputTextDone
    | ContentPartDone
    | OutputItemDone
    | ResponseCompleted
    | ResponseIncomplete
    | ResponseFailed
)
Terminal = ResponseCompleted | ResponseIncomplete | ResponseFailed
