"""The response object and its events, as OpenAI's SDK types have them, plus our `vivace` and `scores`.

Owns shapes only. `writer` decides which event comes when.
"""

from typing import Any, ClassVar, Literal

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


class FunctionCall(msgspec.Struct, frozen=True, tag_field="type", tag="function_call"):
    id: str
    call_id: str
    name: str
    arguments: str
    status: str
    namespace: str | UnsetType = UNSET


class CustomToolCall(msgspec.Struct, frozen=True, tag_field="type", tag="custom_tool_call"):
    id: str
    call_id: str
    name: str
    input: str
    status: str
    namespace: str | UnsetType = UNSET


class ReasoningText(msgspec.Struct, frozen=True, tag_field="type", tag="reasoning_text"):
    text: str


class ReasoningItem(msgspec.Struct, frozen=True, tag_field="type", tag="reasoning"):
    id: str
    status: str
    content: list[ReasoningText] = []
    summary: list[Any] = []
    encrypted_content: str | None = None


OutputItem = OutputMessage | FunctionCall | CustomToolCall | ReasoningItem


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
    tokenize_ms: float = 0.0  # text to tokens
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
    reread_tokens: int = 0  # those of them that were read before, but no saved state could go on from there
    output_tokens: int = 0  # generated tokens
    steps: int = 0  # forward passes of the model
    draft_accepted: int = 0  # drafted tokens that the model chose too
    draft_rejected: int = 0  # drafted tokens that the model did not choose
    restarts: int = 0  # times the engine died under this turn


class IncompleteDetails(msgspec.Struct, frozen=True):
    reason: str  # max_output_tokens, interrupted, steered


class ResponseError(msgspec.Struct, frozen=True):
    code: str
    message: str


class Place(msgspec.Struct, frozen=True):
    """A turn's place in the queue."""

    position: int  # 1: next
    estimate_s: float  # until it begins, in seconds


class WaitProgress(msgspec.Struct, frozen=True):
    """How far that is which a response waits for before it says anything."""

    stage: Literal["loading", "reading"]  # the model's files, in bytes; or the prompt, in tokens
    model: str
    done: int
    total: int

    @property
    def amount(self) -> str:
        """Return how much of how much."""
        if self.stage == "reading":
            return f"{self.done:,} of {self.total:,} tokens"
        unit, name = (1e9, "GB") if self.total >= 1e9 else (1e6, "MB")
        digits = 1 if self.total < 10 * unit else 0
        return f"{self.done / unit:.{digits}f} of {self.total / unit:.{digits}f} {name}"


class Extension(msgspec.Struct, frozen=True, omit_defaults=True):
    """What OpenAI's response has no field for."""

    waterfall: Waterfall | None = None  # of a response that is over
    queue: Place | None = None  # of a response that waits
    progress: WaitProgress | None = None  # of a response whose model is loaded first, or whose prompt is long


class Response(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: str = "response"
    created_at: int
    status: str  # queued, in_progress, completed, incomplete, failed, cancelled
    model: str
    output: list[OutputItem] = []
    usage: Usage | None = None
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    previous_response_id: str | None = None
    instructions: str | None = None
    metadata: dict[str, str] = {}
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int = 0
    store: bool = True
    background: bool = False
    parallel_tool_calls: bool = True
    tool_choice: Any = "auto"
    tools: list[Any] = []
    text: Any = msgspec.field(default_factory=lambda: {"format": {"type": "text"}})
    reasoning: Any = msgspec.field(default_factory=lambda: {"effort": None, "summary": None})
    truncation: str = "disabled"
    service_tier: str = "default"
    prompt_cache_key: str | None = None
    # Ours: log-probabilities of the request's `candidates`, in their order.
    scores: list[float] | UnsetType = UNSET
    vivace: Extension | UnsetType = UNSET  # Ours: what OpenAI's response has no field for.

    @property
    def output_text(self) -> str:
        """Return all text of all messages."""
        messages = [item for item in self.output if isinstance(item, OutputMessage)]
        return "".join(part.text for message in messages for part in message.content)


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Every event has its place in the turn; the last one, and only that, is terminal."""

    is_terminal: ClassVar[bool] = False
    sequence_number: int
    stream_id: str | UnsetType = UNSET  # the lane, on a WebSocket, if it has a name


class _Whole(Event, frozen=True, kw_only=True):
    response: Response


class ResponseCreated(_Whole, frozen=True, tag="response.created"):
    pass


class ResponseQueued(_Whole, frozen=True, tag="response.queued"):
    """It waits; `response.vivace.queue` says how long. Only the first one has all that was asked."""


class ResponseInProgress(_Whole, frozen=True, tag="response.in_progress"):
    """It is made now. `response.vivace.progress`, if it is there, says what it waits for before it speaks.

    One with `progress` leaves out what was asked; one without it follows when the wait is over.
    """


class ResponseCompleted(_Whole, frozen=True, tag="response.completed"):
    is_terminal: ClassVar[bool] = True


class ResponseIncomplete(_Whole, frozen=True, tag="response.incomplete"):
    is_terminal: ClassVar[bool] = True


class ResponseFailed(_Whole, frozen=True, tag="response.failed"):
    is_terminal: ClassVar[bool] = True


class _Item(Event, frozen=True, kw_only=True):
    item: OutputItem
    output_index: int = 0


class OutputItemAdded(_Item, frozen=True, tag="response.output_item.added"):
    pass


class OutputItemDone(_Item, frozen=True, tag="response.output_item.done"):
    pass


class OutputItemInterrupted(Event, frozen=True, kw_only=True, tag="response.output_item.interrupted"):
    """The item never became whole, and is not part of the response: a client drops what it has of it."""

    response_id: str  # the response that the item was part of
    item_id: str  # the item to drop
    output_index: int  # its place in the output


class _InPart(Event, frozen=True, kw_only=True):
    item_id: str
    output_index: int = 0
    content_index: int = 0


class ContentPartAdded(_InPart, frozen=True, kw_only=True, tag="response.content_part.added"):
    part: OutputText | ReasoningText


class ContentPartDone(_InPart, frozen=True, kw_only=True, tag="response.content_part.done"):
    part: OutputText | ReasoningText


class OutputTextDelta(_InPart, frozen=True, kw_only=True, tag="response.output_text.delta"):
    delta: str
    logprobs: list[Any] = []


class OutputTextDone(_InPart, frozen=True, kw_only=True, tag="response.output_text.done"):
    text: str
    logprobs: list[Any] = []


class _InItem(Event, frozen=True, kw_only=True):
    item_id: str
    output_index: int = 0


class ArgumentsDelta(_InItem, frozen=True, kw_only=True, tag="response.function_call_arguments.delta"):
    delta: str


class ArgumentsDone(_InItem, frozen=True, kw_only=True, tag="response.function_call_arguments.done"):
    arguments: str
    name: str


class CustomInputDelta(_InItem, frozen=True, kw_only=True, tag="response.custom_tool_call_input.delta"):
    delta: str


class CustomInputDone(_InItem, frozen=True, kw_only=True, tag="response.custom_tool_call_input.done"):
    input: str


class ReasoningTextDelta(_InPart, frozen=True, kw_only=True, tag="response.reasoning_text.delta"):
    delta: str


class ReasoningTextDone(_InPart, frozen=True, kw_only=True, tag="response.reasoning_text.done"):
    text: str


# ---- steering and interrupts: only on a WebSocket ---------------------------------------------------


class Steer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A steering submission; `input` where it is given back."""

    previous_response_id: str  # the response that is steered
    id: str | None = None  # of an accepted steer
    input: Any = None  # what was sent, where it is given back


class SteerProblem(msgspec.Struct, frozen=True):
    code: str
    message: str
    type: str = "invalid_request_error"


class SteerAccepted(Event, frozen=True, kw_only=True, tag="response.steer.accepted"):
    """The steer will be carried by the response that follows, or given back in `response.steer.failed`."""

    steer: Steer  # with its new id


class SteerPending(Event, frozen=True, kw_only=True, tag="response.steer.pending"):
    """The response ended in tool calls: the steer waits for a `response.create` with their outputs."""

    steer: Steer  # as it was accepted
    required_input: list[Any]  # stubs of the tool outputs that are waited for
    reason: str = "waiting_for_required_input"  # always this


class SteerFailed(Event, frozen=True, kw_only=True, tag="response.steer.failed"):
    """The steer was refused, or was accepted and no response will carry it."""

    steer: Steer  # with its input, which is given back
    error: SteerProblem  # code and message


class InterruptAccepted(Event, frozen=True, kw_only=True, tag="response.interrupt.accepted"):
    """The response will end; its end comes as an event of its own."""

    response_id: str  # the response that ends


class AnswerNowAccepted(Event, frozen=True, kw_only=True, tag="response.answer_now.accepted"):
    """The response thinks no more from now on; its answer follows."""

    response_id: str  # the response that thought


AnyEvent = (
    ResponseCreated
    | ResponseQueued
    | ResponseInProgress
    | OutputItemAdded
    | ContentPartAdded
    | OutputTextDelta
    | OutputTextDone
    | ContentPartDone
    | ArgumentsDelta
    | ArgumentsDone
    | CustomInputDelta
    | CustomInputDone
    | ReasoningTextDelta
    | ReasoningTextDone
    | OutputItemDone
    | OutputItemInterrupted
    | ResponseCompleted
    | ResponseIncomplete
    | ResponseFailed
    | SteerAccepted
    | SteerPending
    | SteerFailed
    | InterruptAccepted
    | AnswerNowAccepted
)
Terminal = ResponseCompleted | ResponseIncomplete | ResponseFailed
