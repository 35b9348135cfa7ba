"""Show on stderr which part runs, and an estimate of the remaining time.

Owns the text and the estimate. A terminal has one line that is redrawn; elsewhere each part has a line.
"""

import sys
import time
from collections.abc import Sequence
from typing import Protocol, TextIO

from vivace.bench.engine.effort import PARTS

CLEAR_LINE = "\r\x1b[K"


class Plan(Protocol):
    @property
    def seconds(self) -> tuple[int, ...]:
        """Return the planned seconds of each part."""
        ...


class Progress:
    def __init__(self, effort: Plan, stream: TextIO | None = None, parts: Sequence[str] = PARTS) -> None:
        self._parts = parts
        self._stream = stream or sys.stderr
        self._is_terminal = self._stream.isatty()
        self._planned_s = dict(zip(parts, effort.seconds, strict=True))
        self._began = time.monotonic()
        self._title = ""

    def begin(self, part: str) -> None:
        """Begin the next part. Parts come in the plan's order."""
        number = self._parts.index(part) + 1
        self._title = f"[{number}/{len(self._parts)}] {part}, {_clock(self._left_s(number))} left"
        self._draw(self._title, end="" if self._is_terminal else "\n")

    def note(self, text: str) -> None:
        """Show where inside the part we are, if the line can be redrawn."""
        if self._is_terminal:
            self._draw(f"{self._title}: {text}", end="")

    def end(self) -> None:
        if self._is_terminal:
            self._draw("", end="")

    def _draw(self, text: str, end: str) -> None:
        start = CLEAR_LINE if self._is_terminal else ""
        print(f"{start}{text}", file=self._stream, end=end, flush=True)

    def _left_s(self, number: int) -> float:
        """Return the planned time of the remaining parts, scaled by the time used so far."""
        names = list(self._parts)
        done = sum(self._planned_s[name] for name in names[: number - 1])
        pace = (time.monotonic() - self._began) / done if done else 1.0
        return pace * sum(self._planned_s[name] for name in names[number - 1 :])


def _clock(seconds: float) -> str:
    if seconds < 90:
        return f"about {max(5, round(seconds / 5) * 5)} s"
    return f"about {round(seconds / 60)} min"
