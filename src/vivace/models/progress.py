"""Progress of long work, reported to whoever shows it.

Owns the `Progress` contract and its silent form. Does not draw: `cli.show` does.
"""

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
