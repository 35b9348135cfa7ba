"""Outcomes between a turn and whoever listens to it. Text that the listener has not taken yet is joined.

So a slow listener costs no more memory than the text itself, and catches up in one step.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from vivace.protocol.outcomes import Broken, CallText, Ended, Musing, Outcome, Text


class Outbox:
    def __init__(self) -> None:
        self._waiting: deque[Outcome] = deque()
        self._news = asyncio.Event()

    def put(self, outcome: Outcome) -> None:
        if self._waiting and (joined := _joined(self._waiting[-1], outcome)):
            self._waiting[-1] = joined
        else:
            self._waiting.append(outcome)
            self._news.set()

    async def __aiter__(self) -> AsyncIterator[Outcome]:
        """Outcomes as they come; the last one is `Ended` or `Broken`."""
        while True:
            while self._waiting:
                outcome = self._waiting.popleft()
                yield outcome
                if isinstance(outcome, Ended | Broken):
                    return
            self._news.clear()
            await self._news.wait()


def _joined(last: Outcome, new: Outcome) -> Outcome | None:
    """Joining a string to a growing one is linear in the end: a listener that is behind takes all at once."""
    match last, new:
        case Text(), Text():
            return Text(last.delta + new.delta, last.logprobs + new.logprobs)
        case Musing(), Musing():
            return Musing(last.delta + new.delta)
        case CallText(), CallText():
            return CallText(last.delta + new.delta)
    return None
