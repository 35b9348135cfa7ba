"""What a session tells its client, in order, and not more often than an editor can draw.

Owns the rhythm: text that comes in small pieces is joined. `drain` sends at once all that waits. Does not own
what is told (`presenter`).
"""

import asyncio
import logging
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from acp import update_agent_message_text, update_agent_thought_text

from vivace.acp.link import FAULTS, SessionLink

JOIN_S = 0.03  # pieces of text that come within it are one update
log = logging.getLogger("vivace.acp")


@dataclass
class _Text:
    is_thought: bool
    pieces: list[str] = field(default_factory=list)

    @property
    def update(self) -> Any:
        text = "".join(self.pieces)
        return update_agent_thought_text(text) if self.is_thought else update_agent_message_text(text)


class Updates:
    def __init__(self, link: SessionLink) -> None:
        self._link = link
        self._waiting: deque[Any] = deque()
        self._has_more = asyncio.Event()
        self._sending = asyncio.Lock()
        self._is_gone = False
        self._is_mid_line = False
        self._pump: asyncio.Task[None] | None = None

    def say(self, text: str) -> None:
        """Add to the model's message."""
        if text:
            self._is_mid_line = not text.endswith("\n")
            self._grow(text, is_thought=False)

    def say_line(self, text: str) -> None:
        """Add a paragraph of our own to the message."""
        self.say(f"{chr(10) * 2 if self._is_mid_line else ''}{text}\n")

    def think(self, text: str) -> None:
        """Add to what editors show folded: the model's thoughts, and what is done for the message."""
        if text:
            self._grow(text, is_thought=True)

    def send(self, update: Any) -> None:
        """Send this after all that was said before."""
        self._waiting.append(update)
        self._wake()

    def begin_message(self) -> None:
        """Forget where the last message ended."""
        self._is_mid_line = False

    async def drain(self) -> None:
        """Return when all of it is sent, or the client is gone."""
        async with self._sending:
            while self._waiting:
                item = self._waiting.popleft()
                if self._is_gone:
                    continue
                try:
                    await self._link.update(item.update if isinstance(item, _Text) else item)
                except FAULTS as error:
                    log.warning("the client is gone: %s", error)
                    self._is_gone = True

    async def close(self) -> None:
        if self._pump is not None:
            self._pump.cancel()
            with suppress(asyncio.CancelledError):
                await self._pump

    def _grow(self, text: str, *, is_thought: bool) -> None:
        last = self._waiting[-1] if self._waiting else None
        if not isinstance(last, _Text) or last.is_thought != is_thought:
            last = _Text(is_thought)
            self._waiting.append(last)
        last.pieces.append(text)
        self._wake()

    def _wake(self) -> None:
        self._has_more.set()
        if self._pump is None:
            self._pump = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            await self._has_more.wait()
            self._has_more.clear()
            await self.drain()
            await asyncio.sleep(JOIN_S)
