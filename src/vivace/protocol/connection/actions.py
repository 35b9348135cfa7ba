"""What the machine of a connection asks its shell to do, in the order in which it is to be done.

Owns shapes only.
"""

from typing import Literal

import msgspec

from vivace.protocol.shapes.events import AnyEvent, Terminal
from vivace.protocol.shapes.refusal import ErrorFrame
from vivace.protocol.shapes.requests import ResponseCreate


class Start(msgspec.Struct, frozen=True):
    """Begin this turn; then report `begun` or `refused`, and after `begun` each outcome."""

    response_id: str
    request: ResponseCreate


class Cancel(msgspec.Struct, frozen=True):
    """Interrupt this turn; its end is reported as an outcome like any other."""

    response_id: str
    reason: Literal["interrupted", "steered"] = "interrupted"
    is_discarding: bool = False  # the item that is not whole is no part of the response


class AnswerNow(msgspec.Struct, frozen=True):
    """Let this turn think no more."""

    response_id: str


class Send(msgspec.Struct, frozen=True):
    message: AnyEvent | ErrorFrame


class Commit(msgspec.Struct, frozen=True):
    """Store this end of a turn and send nothing: the client has gone."""

    message: Terminal


class Forget(msgspec.Struct, frozen=True):
    """Forget this response on this connection. If it was stored, it stays stored."""

    response_id: str


class Close(msgspec.Struct, frozen=True):
    """Close the socket once everything before this is sent. Nothing is sent after it."""

    code: int
    reason: str


Action = Start | Cancel | AnswerNow | Send | Commit | Forget | Close
