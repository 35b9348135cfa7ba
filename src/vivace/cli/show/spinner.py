"""A line that says what is being waited for, and for how long; gone when the waiting is over.

Owns one line of the terminal while it turns. On a pipe it says nothing.
"""

import asyncio
import contextlib
import time

from vivace.cli.show.screen import Screen, cut

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
TURN_S = 0.1
QUIET_S = 0.3  # what is over sooner needs no line


class Spinner:
    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._task: asyncio.Task[None] | None = None
        self.reason = ""  # why it takes long, shown in place of what is waited for

    def wait_for(self, what: str) -> None:
        """Show what is waited for, in place of what was shown before."""
        self.stop()
        if self._screen.is_terminal:
            self._task = asyncio.create_task(self._turn(what, time.monotonic()))

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
            self._screen.erase_line()

    async def _turn(self, what: str, began: float) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(QUIET_S)
            for turn in range(1_000_000):
                passed = time.monotonic() - began
                line = f"{FRAMES[turn % len(FRAMES)]} {self.reason or what} … {passed:.1f} s"
                self._screen.write_line(cut(line, self._screen.columns - 1))
                await asyncio.sleep(TURN_S)
