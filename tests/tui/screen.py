"""The terminal face under test: press keys, wait for words on the screen, read the screen as text."""

import asyncio
from collections.abc import Callable

from textual import events
from textual.keys import _character_to_key, key_to_character

from vivace.tui.app import VivaceApp

HANG_S = 30.0


class Screen:
    def __init__(self, app: VivaceApp) -> None:
        self.app = app

    @property
    def rows(self) -> list[str]:
        """All rows as they are drawn, without spaces at their ends."""
        return [strip.text.rstrip() for strip in self.app.screen._compositor.render_strips()]

    @property
    def text(self) -> str:
        return "\n".join(self.rows)

    @property
    def status(self) -> str:
        return self.rows[-1].strip()

    async def press(self, *keys: str) -> None:
        """Press keys and wait until they were taken; unlike the pilot's, also while the model writes."""
        for key in keys:
            is_letter = len(key) == 1
            name, letter = (_character_to_key(key), key) if is_letter else (key, key_to_character(key))
            self.app.post_message(events.Key(name, letter))
        done = asyncio.Event()
        self.app.call_later(lambda: self.app.editor.call_later(done.set))
        async with asyncio.timeout(HANG_S):
            await done.wait()

    async def type(self, text: str) -> None:
        """Type letters, each as a key of its own."""
        await self.press(*("ctrl+j" if letter == "\n" else letter for letter in text))

    async def say(self, text: str) -> None:
        await self.type(text)
        await self.press("enter")

    async def until(self, is_so: Callable[[], object], what: str = "") -> None:
        """Wait for a state. The screen is in the failure's message."""
        try:
            async with asyncio.timeout(HANG_S):
                while not is_so():  # noqa: ASYNC110 - any state of the screen
                    await asyncio.sleep(0.005)
        except TimeoutError:
            raise AssertionError(f"waited in vain for {what or is_so}; the screen:\n{self.text}") from None

    async def sees(self, *words: str) -> None:
        await self.until(lambda: all(word in self.text for word in words), f"{words!r}")

    async def is_gone(self, word: str) -> None:
        await self.until(lambda: word not in self.text, f"{word!r} to go")

    async def ready(self) -> None:
        await self.until(lambda: self.app.session is not None and self.app.session.is_ready, "a session")

    async def idle(self) -> None:
        """Wait until no turn runs."""
        await self.until(lambda: not self.app.is_turn_running, "the end of the turn")

    async def decides(self) -> None:
        """Wait until keys decide about the proposal."""
        await self.until(lambda: self.app.controls.takes_decisions, "a question")
