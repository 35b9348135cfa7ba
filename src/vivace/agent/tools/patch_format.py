"""The patch format of the Codex CLI: which files are added, removed, updated or moved, and how.

Owns reading it, and the exact place of what is wrong in it. A patch names lines by their text, not by their
number. Does not look at files (`apply_patch`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from vivace.errors import EditRejected

BEGIN, END = "*** Begin Patch", "*** End Patch"
ADD, DELETE, UPDATE, MOVE = "*** Add File: ", "*** Delete File: ", "*** Update File: ", "*** Move to: "
END_OF_FILE = "*** End of File"
HINT = f"A patch stands between {BEGIN!r} and {END!r}; a file begins with {ADD!r}, {UPDATE!r} or {DELETE!r}."


@dataclass(frozen=True)
class Chunk:
    """Lines that stand together in the file, and what they become."""

    headers: tuple[str, ...]  # lines further above, behind `@@`, which lead to the place
    old: tuple[str, ...]
    new: tuple[str, ...]
    is_at_end: bool = False  # the old lines are the file's last


@dataclass(frozen=True)
class AddFile:
    path: str
    text: str


@dataclass(frozen=True)
class DeleteFile:
    path: str


@dataclass(frozen=True)
class UpdateFile:
    path: str
    chunks: tuple[Chunk, ...]
    moved_to: str = ""


FilePatch = AddFile | DeleteFile | UpdateFile


class _Lines:
    """The lines between begin and end, with the number of the one that is read next."""

    def __init__(self, lines: list[str], first: int) -> None:
        self._lines = lines
        self._at = 0
        self._first = first

    def peek(self) -> str | None:
        return self._lines[self._at] if self._at < len(self._lines) else None

    def next(self) -> str:
        self._at += 1
        return self._lines[self._at - 1]

    def wrong(self, what: str) -> EditRejected:
        return EditRejected(f"Line {self._first + self._at} of the patch: {what}", HINT)


def parse_patch(text: str) -> list[FilePatch]:
    """Return what the patch does, file by file. Raise EditRejected with the line that is wrong."""
    lines = _between(text)
    patches: list[FilePatch] = []
    while (line := lines.peek()) is not None:
        if line.startswith(ADD):
            patches.append(_add(lines))
        elif line.startswith(DELETE):
            patches.append(DeleteFile(_path(lines, DELETE)))
        elif line.startswith(UPDATE):
            patches.append(_update(lines))
        elif not line.strip():
            lines.next()
        else:
            raise lines.wrong(f"{line!r:.100} does not begin a file.")
    if not patches:
        raise EditRejected("The patch changes no file.", HINT)
    return patches


def _between(text: str) -> _Lines:
    """Return the lines of the patch, without a heredoc or a fence around it."""
    lines = text.replace("\r\n", "\n").split("\n")
    stripped = [line.strip() for line in lines]
    if BEGIN not in stripped:
        raise EditRejected(f"The patch has no line {BEGIN!r}.", HINT)
    begin = stripped.index(BEGIN)
    if END not in stripped[begin:]:
        raise EditRejected(f"The patch has no line {END!r}: it is cut off.", HINT)
    end = len(stripped) - 1 - stripped[::-1].index(END)
    return _Lines(lines[begin + 1 : end], begin + 2)


def _path(lines: _Lines, prefix: str) -> str:
    path = lines.next()[len(prefix) :].strip()
    if not path:
        raise lines.wrong("there is no path.")
    return path


def _add(lines: _Lines) -> AddFile:
    path = _path(lines, ADD)
    added = []
    while (line := lines.peek()) is not None and line.startswith("+"):
        added.append(lines.next()[1:])
    if line is not None and line.strip() and not line.startswith("*** "):
        raise lines.wrong(f"{line!r:.100} does not begin with '+', as all lines of a new file do.")
    return AddFile(path, "".join(f"{each}\n" for each in added))


def _update(lines: _Lines) -> UpdateFile:
    path = _path(lines, UPDATE)
    moved_to = ""
    if (line := lines.peek()) is not None and line.startswith(MOVE):
        moved_to = _path(lines, MOVE)
    chunks = tuple(_chunks(lines))
    if not chunks and not moved_to:
        raise lines.wrong(f"{path} has no change.")
    return UpdateFile(path, chunks, moved_to)


def _chunks(lines: _Lines) -> Iterator[Chunk]:
    while (line := lines.peek()) is not None and not line.startswith((ADD, DELETE, UPDATE)):
        headers = []
        while (line := lines.peek()) is not None and line.startswith("@@"):
            if header := lines.next()[2:].strip():
                headers.append(header.removesuffix("@@").strip())
        old, new = _changed(lines)
        is_at_end = lines.peek() == END_OF_FILE
        if is_at_end:
            lines.next()
        if old or new:
            yield Chunk(tuple(headers), tuple(old), tuple(new), is_at_end)
        elif not is_at_end and not headers:
            return


def _changed(lines: _Lines) -> tuple[list[str], list[str]]:
    """Return the old and the new lines of a chunk. An empty line stands for an empty line of context."""
    old, new = [], []
    while (line := lines.peek()) is not None and not line.startswith(("@@", "*** ")):
        sign, rest = (line[0], line[1:]) if line else (" ", "")
        if sign not in " +-":
            raise lines.wrong(f"{line!r:.100} begins with neither ' ', '-' nor '+'.")
        lines.next()
        if sign in " -":
            old.append(rest)
        if sign in " +":
            new.append(rest)
    while old and new and not old[-1] and not new[-1] and line is not None and not line.startswith("@@"):
        old.pop()
        new.pop()
    return old, new
