"""Progress of long work, reported to whoever shows it.

Owns the `Progress` contract, its silent form and the one in words. Does not draw: `cli.show` does.
"""

from collections.abc import Callable
from typing import Protocol


class Progress(Protocol):
    """One step at a time: `begin`, any number of `advance`, `end`. A `total_bytes` of 0 means not known."""

    def begin(self, label: str, total_bytes: int) -> None: ...

    def advance(self, size_bytes: int) -> None: ...

    def end(self) -> None: ...


class Silent:
    """Progress that nobody watches."""

    def begin(self, label: str, total_bytes: int) -> None:
        pass

    def advance(self, size_bytes: int) -> None:
        pass

    def end(self) -> None:
        pass


class InWords:
    """Progress of a download, for a status line: at most one word for each percent."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._label, self._total, self._done, self._percent = "", 0, 0, -1

    def begin(self, label: str, total_bytes: int) -> None:
        self._label, self._total, self._done, self._percent = label, total_bytes, 0, -1
        self._say(label)

    def advance(self, size_bytes: int) -> None:
        self._done += size_bytes
        percent = 100 * self._done // self._total if self._total else 0
        if percent != self._percent:
            self._percent = percent
            self._say(f"{self._label} {percent}%")

    def end(self) -> None:
        self._say("starting")
