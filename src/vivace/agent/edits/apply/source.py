"""A text file as bytes and as lines, and the exact way back from lines to bytes.

Owns line ends, byte order mark and final newline: what an edit does not touch keeps its bytes. A line ends
at "\\r\\n", "\\n" or "\\r", each remembered. Does not own structure (`units`) or durability (`replacing`).
"""

import difflib
import errno
import os
import re
import stat
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from vivace.agent.door import open_file, real_path, status_of
from vivace.agent.edits.apply.replacing import (
    check_creatable,
    check_replaceable,
    replace_file,
    sha256_of,
)
from vivace.errors import EditRejected, FileProblem, UsageError

MAX_BYTES = 2_000_000
BOM = b"\xef\xbb\xbf"
_LINE = re.compile(r"([^\r\n]*)(\r\n|\n|\r|\Z)")


@dataclass(frozen=True)
class SourceFile:
    """A file as it was read. `lines[i]` ended in `ends[i]`; only the last end may be empty."""

    path: Path  # as the user named it
    target: Path  # with symbolic links followed: the file that is written
    raw: bytes
    lines: tuple[str, ...]
    ends: tuple[str, ...]
    newline: str  # the dominant line end, which new lines take
    bom: bool
    sha256: str
    exists: bool = True  # False: the file is yet to be made

    @property
    def final_newline(self) -> bool:
        """Return whether the text ends with a newline. An empty file counts as one that does."""
        return not self.ends or self.ends[-1] != ""

    @property
    def text(self) -> str:
        """Return the whole text without byte order mark, every line end as "\\n"."""
        return "\n".join(self.lines) + ("\n" if self.lines and self.final_newline else "")

    def with_bytes(self, raw: bytes) -> "SourceFile":
        """Return the same file with other bytes: it is written where it was read."""
        return source_from_bytes(self.path, raw, self.target)

    def text_of(self, first_line: int, last_line: int) -> str:
        """Return lines `first_line` to `last_line` (from 1, inclusive), each closed by "\\n"."""
        return "".join(f"{line}\n" for line in self.lines[first_line - 1 : last_line])


def read_source(path: Path, target: Path | None = None) -> SourceFile:
    """Read the file to edit, or raise a FileProblem that says what is wrong with it and what to do.

    `target`: where the path was judged to lead. If it leads elsewhere by now, the file is not read.
    """
    try:
        target = real_path(path) if target is None else target
        raw = _read_bytes(path, target)
    except FileNotFoundError as error:
        raise FileProblem(f"{path} does not exist.", _nearest_file(path)) from error
    except OSError as error:
        raise FileProblem(f"{path} cannot be read: {error.strerror}.", _reading_hint(error)) from error
    except ValueError as error:
        raise FileProblem(f"{str(path)!r} is not a file name: {error}.") from error
    return source_from_bytes(path, raw, target)


def source_from_bytes(path: Path, raw: bytes, target: Path | None = None) -> SourceFile:
    """Return the bytes `raw` as the content of `path`, whether or not they are on disk.

    `target`: where the path was judged to lead; None: where it leads now.
    """
    text = _decoded(path, raw)
    lines, ends = split_lines(text)
    counts = Counter(end for end in ends if end)
    newline = max(counts, key=lambda end: counts[end], default="\n")  # first seen wins a tie
    target = _followed(path) if target is None else target
    return SourceFile(path, target, raw, lines, ends, newline, raw.startswith(BOM), sha256_of(raw))


def new_source(path: Path, target: Path | None = None) -> SourceFile:
    """Return an empty source for a file that is yet to be made, or raise what speaks against it."""
    source = replace(source_from_bytes(path, b"", target), exists=False)
    if is_there(source.target):
        raise FileProblem(f"{path} exists already.", "Edit it, or choose another name.")
    check_creatable(source.target)
    return source


def check_led_to(source: SourceFile, judged: Path) -> None:
    """Raise FileProblem if a file was read elsewhere than where its path was judged to lead."""
    if source.target != judged:
        raise FileProblem(f"{source.path} leads elsewhere now: to {source.target}.", "Nothing was written.")


def is_there(target: Path) -> bool:
    """Return whether anything is at a path whose links were followed. Raise FileProblem if a link is now."""
    try:
        status_of(target)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise FileProblem(f"{target} cannot be read: {error.strerror}.", _reading_hint(error)) from error
    return True


def split_lines(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return lines and their ends. Unlike str.splitlines, split at no form feed or Unicode separator."""
    pairs = [(m[1], m[2]) for m in _LINE.finditer(text) if m[0]]
    return tuple(line for line, _ in pairs), tuple(end for _, end in pairs)


def splice(source: SourceFile, first_line: int, last_line: int, new_text: str) -> bytes:
    """Return the file's bytes with lines `first_line` to `last_line` (inclusive) replaced by `new_text`.

    `last_line == first_line - 1` inserts before `first_line`; an empty text deletes. Everything outside of
    the range is byte-identical, except that the file's end keeps having, or not having, a final newline.
    Inside, a line that is still there keeps its own line end; a new one takes the dominant end.
    """
    total = len(source.lines)
    if not 1 <= first_line <= total + 1 or not first_line - 1 <= last_line <= total:
        raise UsageError(f"Lines {first_line}-{last_line} are not in {source.path}: it has {total} lines.")
    start, stop = first_line - 1, last_line
    new_lines, _ = split_lines(new_text)
    new_ends = _ends_for(source, start, stop, new_lines)
    lines = source.lines[:start] + new_lines + source.lines[stop:]
    ends = list(source.ends[:start] + new_ends + source.ends[stop:])
    _settle_last_end(source, ends)
    _keep_apart(lines, ends, start, start + len(new_lines))
    body = "".join(line + end for line, end in zip(lines, ends, strict=True))
    return (BOM if source.bom else b"") + _encoded(body)


def check_writable(source: SourceFile) -> None:
    """Raise WriteProblem before any work is done if the file or its folder is read-only."""
    (check_replaceable if source.exists else check_creatable)(source.target)


def write_source(source: SourceFile, new_bytes: bytes) -> None:
    """Replace the file's content atomically. Raise WriteProblem and leave it if it changed since it was read.

    A symbolic link stays a link: its target is written. A hard link is broken: the other name keeps the old
    bytes, since writing in place could leave half a file behind.
    """
    replace_file(source.target, new_bytes, source.sha256)


def _followed(path: Path) -> Path:
    try:
        return real_path(path)
    except (OSError, ValueError) as error:
        raise FileProblem(f"{str(path)!r} is not a file name: {error}.") from error


def _read_bytes(path: Path, target: Path) -> bytes:
    """Read the file; never block on a pipe. Raise FileProblem, OSError or ValueError."""
    fd = open_file(target)
    try:
        status = os.fstat(fd)
        if stat.S_ISDIR(status.st_mode):
            raise FileProblem(f"{path} is a folder.", f"Name one file in it, such as {path}/NAME.")
        if not stat.S_ISREG(status.st_mode):
            raise FileProblem(f"{path} is not a regular file.", "Only regular text files can be edited.")
        with os.fdopen(fd, "rb", closefd=False) as file:
            raw = file.read(MAX_BYTES + 1)
    finally:
        os.close(fd)
    if len(raw) > MAX_BYTES:
        size = max(status.st_size, len(raw)) / 1e6
        hint = f"The limit is {MAX_BYTES / 1e6:.0f} MB. Split it."
        raise FileProblem(f"{path} is too large: {size:.1f} MB.", hint)
    return raw


def _decoded(path: Path, raw: bytes) -> str:
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise FileProblem(f"{path} is UTF-16, not UTF-8.", "Convert it: iconv -f UTF-16 -t UTF-8.")
    if b"\0" in raw:
        raise FileProblem(
            f"{path} is a binary file: byte {raw.index(0)} is NUL.", "Only text files can be edited."
        )
    try:
        return raw.removeprefix(BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        at = error.start + (len(BOM) if raw.startswith(BOM) else 0)
        line = raw.count(b"\n", 0, at) + 1
        raise FileProblem(
            f"{path} is not UTF-8: byte {at} (line {line}) is 0x{raw[at]:02x}.",
            "Convert it first, for instance: iconv -f LATIN1 -t UTF-8.",
        ) from error


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise EditRejected(
            "The answer holds half a character, which UTF-8 cannot express.", "Run it again."
        ) from error


def _ends_for(source: SourceFile, start: int, stop: int, new_lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return the line ends for `new_lines`. Align them with the old lines only where old ends differ."""
    old_lines, old_ends = source.lines[start:stop], source.ends[start:stop]
    ends = [source.newline] * len(new_lines)
    if set(old_ends) <= {source.newline}:
        return tuple(ends)
    for block in difflib.SequenceMatcher(None, old_lines, new_lines, autojunk=False).get_matching_blocks():
        for offset in range(block.size):
            ends[block.b + offset] = old_ends[block.a + offset]
    return tuple(ends)


def _settle_last_end(source: SourceFile, ends: list[str]) -> None:
    """End the last line as the file's last line did. Give an end to every line before it."""
    for index, end in enumerate(ends[:-1]):
        if not end:
            ends[index] = source.newline
    if ends and source.final_newline != bool(ends[-1]):
        ends[-1] = source.newline if source.final_newline else ""


def _keep_apart(lines: tuple[str, ...], ends: list[str], start: int, stop: int) -> None:
    """Keep "\\r" and the "\\n" of an empty line behind it from becoming one "\\r\\n"."""
    for index in range(max(start - 1, 0), min(stop, len(ends) - 1)):
        if ends[index] == "\r" and not lines[index + 1] and ends[index + 1] == "\n":
            if index >= start:
                ends[index] = "\r\n"
            elif index + 1 < stop:
                ends[index + 1] = "\r\n"


def _nearest_file(path: Path) -> str:
    if path.is_symlink():
        return f"It is a link to {path.readlink()}, which does not exist."
    try:
        names = [entry.name for entry in os.scandir(path.parent)]
    except OSError:
        return f"The folder {path.parent} does not exist either."
    near = difflib.get_close_matches(path.name, names, n=3, cutoff=0.6)
    if not near:
        return "Check the name; paths are relative to the current folder."
    return "Did you mean " + " or ".join(str(path.parent / name) for name in near) + "?"


def _reading_hint(error: OSError) -> str:
    hints = {
        errno.EACCES: "You have no permission to read it.",
        errno.ELOOP: "Its symbolic links go round in a circle, or have changed since the path was looked at.",
        errno.ENOTDIR: "A part of the path is a file, not a folder.",
        errno.ENXIO: "Only regular text files can be edited.",
    }
    return hints.get(error.errno or 0, "")
