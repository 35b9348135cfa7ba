"""What a search has found, confirmed: each line is read again in the place that was judged.

A child that searches a folder opens files by their paths, and follows what became a link a moment ago. So a
match is told only if the very line is in a file that is reached without any link (`agent.door`). Owns
the form of a match and that comparison. Does not own the search (`search`).
"""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

from vivace.agent.door import open_file
from vivace.agent.permissions.paths import Place

MAX_CHARS = 500  # of a line
MAX_LINE_BYTES = 4 * MAX_CHARS
MAX_UTF16_BYTES = 5_000_000
OMITTED = b"[Omitted long "  # a line of ripgrep's in place of one that is too long
_RECORD = re.compile(rb"(?m)^([^\0\n]+)\0([0-9]{1,18}):([^\n]*)")
_BOMS_16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class Record:
    """A match as a child tells it."""

    path: str
    number: int
    said: bytes

    @property
    def text(self) -> str:
        return _text(self.said)


def records_in(output: bytes) -> Iterator[Record]:
    """Yield the matches in the output of a search: path, NUL, number, colon, line."""
    for found in _RECORD.finditer(output):
        yield Record(os.fsdecode(found[1]), int(found[2]), found[3])


def confirmed(records: Iterator[Record], place: Place, root: Path, most: int) -> list[str]:
    """Return the first matches that are in files below the judged place, as `path:line:text`."""
    lines: list[str] = []
    for path, group in groupby(records, key=lambda record: record.path):
        wanted = [record for record, _ in zip(group, range(most - len(lines)), strict=False)]
        for record in _confirmed(wanted, root / path, place):
            lines.append(f"{path}:{record.number}:{record.text}")
        if len(lines) >= most:
            break
    return lines


def _confirmed(records: Sequence[Record], path: Path, place: Place) -> Iterator[Record]:
    target = Path(os.path.normpath(path))
    if ".." in path.parts or not target.is_relative_to(place.path):
        return
    try:
        opened = open_file(target)
    except OSError:
        return
    with os.fdopen(opened, "rb") as file:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            return
        lines = _lines_of(file, {record.number for record in records})
    for record in records:
        line = lines.get(record.number, b"")
        if record.text == _text(line) or (record.said.startswith(OMITTED) and len(line) > MAX_CHARS):
            yield record


def _lines_of(file: BinaryIO, numbers: set[int]) -> dict[int, bytes]:
    """Return the beginnings of these lines."""
    begin = file.read(2)
    file.seek(0)
    if begin in _BOMS_16:  # ripgrep reads them, and gives UTF-8
        text = file.read(MAX_UTF16_BYTES).decode("utf-16", "replace")
        return {number: line.encode() for number, line in enumerate(text.split("\n"), 1) if number in numbers}
    found, number, last, is_begun = {}, 1, max(numbers, default=0), False
    while number <= last and (part := file.readline(MAX_LINE_BYTES)):
        if number in numbers and not is_begun:
            found[number] = part.removesuffix(b"\n")
        is_begun = not part.endswith(b"\n")
        number += not is_begun
    return found


def _text(line: bytes) -> str:
    text = line.decode("utf-8", "replace").removeprefix("\ufeff").rstrip("\r")
    return text[:MAX_CHARS]
