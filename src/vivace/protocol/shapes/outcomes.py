"""What comes of a turn, whoever answers it: our own engine or an upstream. `writer` makes events of it.

Owns shapes only. The last outcome is `Ended` or `Broken`, and only that.
"""

from typing import Any

import msgspec

from vivace.protocol.shapes.events import Usage, WaitProgress, Waterfall


class Queued(msgspec.Struct, frozen=True):
    """The turn waits. Comes before anything else, and again when the place changes."""

    position: int  # 1: next
    estimate_s: float


class ModelProgress(msgspec.Struct, frozen=True):
    """The turn waits for its model, or until its prompt is read. `Started` follows the last one."""

    progress: WaitProgress


class Started(msgspec.Struct, frozen=True):
    """The turn waited, and begins now."""


class TextDelta(msgspec.Struct, frozen=True):
    """More of the answer's text."""

    delta: str
    logprobs: list[Any] = []  # one a token, in the shape of OpenAI's `logprobs`


class ReasoningDelta(msgspec.Struct, frozen=True):
    """More reasoning."""

    delta: str


class CallBegun(msgspec.Struct, frozen=True):
    """The model calls a tool of the client's."""

    name: str
    namespace: str = ""
    is_custom: bool = False
    call_id: str = ""  # "": the writer makes one
    is_sure: bool = True  # nothing but a cut makes it none; otherwise it may turn out to be malformed


class CallDelta(msgspec.Struct, frozen=True):
    """More of the open call's arguments, or of a custom tool's input."""

    delta: str


class CallDone(msgspec.Struct, frozen=True):
    """The open call is whole."""


class CallInvalid(msgspec.Struct, frozen=True):
    """The open call is malformed. `text` is all of it as the model wrote it, "" if unknown."""

    text: str


class Ended(msgspec.Struct, frozen=True):
    """The turn is over.

    `reason`: stop, length, interrupted, steered, cancelled, appended or replaced (prefill only), scored.
    """

    reason: str
    usage: Usage
    waterfall: Waterfall
    scores: list[float] | None = None
    stop_text: str = ""  # the stop string that ended it


class Broken(msgspec.Struct, frozen=True):
    """The turn is over because of an error."""

    code: str
    message: str


TextOutcome = TextDelta | ReasoningDelta | CallDelta
Outcome = Queued | ModelProgress | Started | TextOutcome | CallBegun | CallDone | CallInvalid | Ended | Broken
Terminal = Ended | Broken
