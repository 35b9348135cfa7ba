"""What waits to be sent to one face.

Owns the order, and that text which grows faster than a face takes it is joined: ten thousand tokens a second
are about a hundred frames. A face for which too much waits all the same is given up. Does not own the socket.
"""

import asyncio
from collections import deque

import msgspec

from vivace.agent.events.talk import SideGrew
from vivace.agent.events.turn import AnswerGrew, ReasoningGrew
from vivace.web.messages.events import AnyEvent, EventFrame, LiveDiff

REST_S = 0.008  # between two sendings: at most 125 a second
MAX_WAITING = 20_000  # frames

_encode = msgspec.json.Encoder().encode


class TooSlow(Exception):
    """More waits for the face than we keep."""


class Outbox:
    def __init__(self) -> None:
        self._waiting: deque[EventFrame | bytes] = deque()
        self._pieces: list[str] = []  # of the text of the last frame that waits
        self._has_some = asyncio.Event()

    def put(self, frame: EventFrame | bytes) -> None:
        """Let a frame wait. Raise `TooSlow` if too many do."""
        last = self._waiting[-1] if self._waiting else None
        if isinstance(frame, EventFrame) and isinstance(last, EventFrame) and _can_join(last, frame):
            self._pieces.append(_text_of(frame.event))
            self._waiting[-1] = msgspec.structs.replace(last, seq=frame.seq)
            return
        if len(self._waiting) >= MAX_WAITING:
            raise TooSlow
        self._join_last()
        self._waiting.append(frame)
        self._has_some.set()

    async def take(self) -> list[bytes]:
        """Return what waits, encoded, as soon as there is something."""
        await self._has_some.wait()
        return self.taken()

    def taken(self) -> list[bytes]:
        """Return what waits now."""
        self._has_some.clear()
        self._join_last()
        frames = [each if isinstance(each, bytes) else _encode(each) for each in self._waiting]
        self._waiting.clear()
        return frames

    def _join_last(self) -> None:
        """Put the pieces that came behind the last frame into it."""
        if not self._pieces:
            return
        frame = self._waiting[-1]
        assert isinstance(frame, EventFrame)
        text = "".join([_text_of(frame.event), *self._pieces])
        self._waiting[-1] = msgspec.structs.replace(frame, event=_with_text(frame.event, text))
        self._pieces = []


def _can_join(one: EventFrame, other: EventFrame) -> bool:
    """Return whether the second only goes on with the text of the first."""
    if (one.conversation, one.edit) != (other.conversation, other.edit) or type(one.event) is not type(
        other.event
    ):
        return False
    match one.event, other.event:
        case LiveDiff() as first, LiveDiff() as second:
            return not second.is_first and (first.path, first.unit) == (second.path, second.unit)
        case ((AnswerGrew() | ReasoningGrew() | SideGrew()), _):
            return True
    return False


def _text_of(event: AnyEvent) -> str:
    assert isinstance(event, AnswerGrew | ReasoningGrew | SideGrew | LiveDiff)
    return event.delta if isinstance(event, LiveDiff) else event.text


def _with_text(event: AnyEvent, text: str) -> AnyEvent:
    name = "delta" if isinstance(event, LiveDiff) else "text"
    return msgspec.structs.replace(event, **{name: text})
