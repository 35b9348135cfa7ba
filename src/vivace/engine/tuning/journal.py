"""Measurements of an unfinished tuning, saved after each stage so that the next one continues from there.

A background tuning is killed as soon as a turn begins. Owns the file. A journal that cannot be used
only costs time. Does not measure (`measure`).
"""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from vivace.engine.tuning.search.choose import Measured, Variant

VERSION = 2  # of the file's shape; another one is not read


class _Contents(msgspec.Struct):
    version: int = VERSION
    is_screened: bool = False  # every variant was timed briefly
    is_compared: bool = False  # every variant that is left was compared on the sample text
    entries: list[Measured] = []


class Journal:
    def __init__(self, file: Path, contents: _Contents) -> None:
        self._file = file
        self._contents = contents

    @classmethod
    def open(cls, file: Path, *, is_fresh: bool) -> "Journal":
        """Return the journal in `file`; an empty one if it has none that holds, or is to be fresh."""
        contents = _Contents()
        if not is_fresh:
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                read = msgspec.json.decode(file.read_bytes(), type=_Contents)
                contents = read if read.version == VERSION else contents
        return cls(file, contents)

    @property
    def is_screened(self) -> bool:
        return self._contents.is_screened

    @property
    def is_compared(self) -> bool:
        return self._contents.is_compared

    def entry(self, variant: Variant) -> Measured:
        """Return what is known of `variant`."""
        known = (entry for entry in self._contents.entries if entry.variant == variant)
        return next(known, None) or Measured(variant)

    def note_screened(self, entries: Iterable[Measured]) -> None:
        """Keep these entries. Later measurements of them are saved too."""
        self._contents.entries = list(entries)
        self._contents.is_screened = True
        self.save()

    def note_compared(self) -> None:
        self._contents.is_compared = True
        self.save()

    def save(self) -> None:
        fresh = self._file.with_name(f"{self._file.name}.{os.getpid()}.part")
        with contextlib.suppress(OSError):
            fresh.write_bytes(msgspec.json.encode(self._contents))
            fresh.replace(self._file)

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self._file.unlink(missing_ok=True)
