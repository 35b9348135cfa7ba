"""Outcomes between a turn and whoever listens to it. Text that the listener has not taken yet is joined.

So a slow listener costs no more memory than the text itself, and catches up in one step.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from vivace.protocol.outcomes import Broken, CallText, Ended, Musing, Outcome, Queued, Text


class Outbox:
    def __init__(self) -> None:
        self._waiting: deque[Outcome] = deque()
        self._more: list[str] = []  # what belongs to the text that waits last; joined when it is taken
        self._news = asyncio.Event()

    def put(self, outcome: Outcome) -> None:
        last = self._waiting[-1] if self._waiting else None
        if isinstance(outcome, Queued) and isinstance(last, Queued):
            self._waiting[-1] = outcome  # where it stood in between is of no use
            return
        if isinstance(outcome, Text | Musing | CallText) and type(last) is type(outcome):
            self._more.append(outcome.delta)
            if isinstance(last, Text) and isinstance(outcome, Text):
                last.logprobs.extend(outcome.logprobs)
            return
        self._settle()
        if isinstance(outcome, Text):
            outcome = Text(outcome.delta, list(outcome.logprobs))  # ours to add to
        self._waiting.append(outcome)
        self._news.set()

    async def __aiter__(self) -> AsyncIterator[Outcome]:
        """Outcomes as they come; the last one is `Ended` or `Broken`."""
        while True:
            while self._waiting:
                if len(self._waiting) == 1:
                    self._settle()
                outcome = self._waiting.popleft()
                yield outcome
                if isinstance(outcome, Ended | Broken):
                    return
            self._news.clear()
            await self._news.wait()

    def _settle(self) -> None:
        """Put the text that waits last together."""
        if self._more:
            last = self._waiting[-1]
            assert isinstance(last, Text | Musing | CallText)
            whole = last.delta + "".join(self._more)
            self._waiting[-1] = Text(whole, last.logprobs) if isinstance(last, Text) else type(last)(whole)
            self._more = []
