"""What the server is busy with: the answers under way, and when someone last asked for something.

Owns the counts that idle exit and shutdown wait on. Health and status questions do not count as use.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Activity:
    def __init__(self) -> None:
        self.started = self._last_used = time.monotonic()
        self.answers = 0
        self._none_under_way = asyncio.Event()
        self._none_under_way.set()
        self._some_under_way = asyncio.Event()
        self._some_ended = asyncio.Event()

    def touch(self) -> None:
        self._last_used = time.monotonic()

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Count an answer as under way inside the block."""
        self.touch()
        self.answers += 1
        self._none_under_way.clear()
        self._some_under_way.set()
        try:
            yield
        finally:
            self.touch()
            self.answers -= 1
            self._some_ended.set()
            if not self.answers:
                self._some_under_way.clear()
                self._none_under_way.set()

    async def all_answered(self) -> None:
        await self._none_under_way.wait()

    async def some_answer(self) -> None:
        """Return when an answer has ended since the start."""
        await self._some_ended.wait()

    async def some_answer_under_way(self) -> None:
        """Return when an answer is under way."""
        await self._some_under_way.wait()

    async def unused_for(self, idle_s: float) -> None:
        """Return when nothing was asked for and nothing ran for `idle_s` seconds."""
        while True:
            await self.all_answered()
            left_s = self._last_used + idle_s - time.monotonic()
            if left_s <= 0:
                return
            await asyncio.sleep(left_s)
