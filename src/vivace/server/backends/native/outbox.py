"""Outcomes between a turn and whoever listens to it. Text that the listener has not taken yet is joined.

So a slow listener costs no more memory than the text itself, and catches up in one step. Before the listener
is woken, which is a switch of tasks, a taker may have them in the turn's own callback.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from vivace.protocol.shapes.outcomes import (
    Broken,
    CallDelta,
    Ended,
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
        self.add(outcome)
        self.deliver()

    def add(self, outcome: Outcome) -> None:
        """Put it in, and tell later."""
        if not self._waiting or not self._try_join(self._waiting[-1], outcome):
            self._join()
            self._waiting.append(outcome)

    def deliver(self, taker: Taker | None = None) -> None:
        """Wake the listener for what waits, unless the taker takes all of it."""
        while self._waiting and taker:
            if not taker(self._first()):
                break
            self._waiting.popleft()
        if self._waiting and self._wakeup and not self._wakeup.done():
            self._wakeup.set_result(None)

    async def __aiter__(self) -> AsyncIterator[Outcome]:
        """Outcomes as they come, to one listener; the last one is `Ended` or `Broken`."""
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
        """Whether it could be put to what waits last."""
        if type(last) is not type(outcome):
            return False
        match outcome:
            case Queued():
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
        """Put the text that waits last together."""
        if self._more:
            last = self._waiting[-1]
            assert isinstance(last, TextDelta | ReasoningDelta | CallDelta)
            whole = last.delta + "".join(self._more)
            if isinstance(last, TextDelta):
                self._waiting[-1] = TextDelta(whole, last.logprobs + self._logprobs)
            else:
                self._waiting[-1] = type(last)(whole)
            self._more, self._logprobs = [], []
