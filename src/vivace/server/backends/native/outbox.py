"""Outcomes between a turn and its listener. Text that the listener has not read yet is joined.

So a slow listener costs no more memory than the text itself, and catches up in one step. Waking the listener
is a switch of tasks; before that, a taker may take outcomes in the turn's own callback.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from vivace.protocol.shapes.outcomes import (
    Broken,
    CallDelta,
    Ended,
    ModelProgress,
    Outcome,
    Queued,
    ReasoningDelta,
    TextDelta,
)
from vivace.server.backends.base import Taker


class Outbox:
    def __init__(self) -> None:
        self._waiting: deque[Outcome] = deque()
        self._more: list[str] = []  # what belongs to the text that waits last; joined when it is taken
        self._logprobs: list[Any] = []  # of that
        self._wakeup: asyncio.Future[None] | None = None  # the listener waits for it

    def put(self, outcome: Outcome) -> None:
        """Add an outcome and wake the listener."""
        self.add(outcome)
        self.deliver()

    def add(self, outcome: Outcome) -> None:
        """Add an outcome without waking the listener: `deliver` follows."""
        if not self._waiting or not self._try_join(self._waiting[-1], outcome):
            self._join()
            self._waiting.append(outcome)

    def offer(self, outcome: Outcome, taker: Taker | None) -> None:
        """Give the outcome to `taker`; if it must wait, or `taker` does not take it, deliver what waits."""
        if self._waiting or taker is None or not taker(outcome):
            self.add(outcome)
            self.deliver(taker)

    def deliver(self, taker: Taker | None = None) -> None:
        """Offer what waits to `taker`; wake the listener if something is left."""
        while self._waiting and taker:
            if not taker(self._first()):
                break
            self._waiting.popleft()
        if self._waiting and self._wakeup and not self._wakeup.done():
            self._wakeup.set_result(None)

    async def __aiter__(self) -> AsyncIterator[Outcome]:
        """Give outcomes to one listener as they come; the last one is `Ended` or `Broken`."""
        while True:
            while self._waiting:
                outcome = self._first()
                self._waiting.popleft()
                yield outcome
                if isinstance(outcome, Ended | Broken):
                    return
            self._wakeup = asyncio.get_running_loop().create_future()
            await self._wakeup

    def _first(self) -> Outcome:
        if len(self._waiting) == 1:
            self._join()
        return self._waiting[0]

    def _try_join(self, last: Outcome, outcome: Outcome) -> bool:
        """Join the outcome to the one that waits last, if both are text of one kind. Return whether."""
        if type(last) is not type(outcome):
            return False
        match outcome:
            case Queued() | ModelProgress():
                self._waiting[-1] = outcome  # where it stood in between is of no use
            case TextDelta(delta=delta, logprobs=logprobs):
                self._more.append(delta)
                self._logprobs += logprobs
            case ReasoningDelta(delta=delta) | CallDelta(delta=delta):
                self._more.append(delta)
            case _:
                return False
        return True

    def _join(self) -> None:
        """Put the text of the last outcome together."""
        if self._more:
            last = self._waiting[-1]
            assert isinstance(last, TextDelta | ReasoningDelta | CallDelta)
            whole = last.delta + "".join(self._more)
            if isinstance(last, TextDelta):
                self._waiting[-1] = TextDelta(whole, last.logprobs + self._logprobs)
            else:
                self._waiting[-1] = type(last)(whole)
            self._more, self._logprobs = [], []
