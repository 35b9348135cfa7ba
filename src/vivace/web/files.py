"""The files of a face's folder: listed, found, read and written, and nothing outside of it.

Owns the border: a path that leads out of the folder, by `..`, by a link or by being absolute, is refused, and
so is what is no plain text file. A file is written only if it still is what the face has read. Does not own
who asks (`operations.files`).
"""

import contextlib
import os
import stat
import time
from functools import lru_cache
from itertools import islice
from pathlib import Path

from vivace.agent.door import real_path, status_of
from vivace.agent.edits.apply.replacing import Replacement, replace_file, replace_files, sha256_of
from vivace.agent.edits.apply.source import MAX_BYTES, SourceFile, read_source, splice
from vivace.agent.tools.ignoring import NEVER, walk
from vivace.errors import EditConflict, FileProblem, StaleFile
from vivace.tui.prompt.completion import path_score
from vivace.web.messages.answers import FileText, Tree, TreeEntry

MAX_ENTRIES = 20_000
MAX_WALK_S = 10.0
LISTED_S = 5.0  # a listing is used again for this long, while somebody types
_BOM = b"\xef\xbb\xbf"


def inside(folder: Path, path: str) -> Path:
    """Return the real place of a path, which must be in the folder. Raise `FileProblem`."""
    problem = FileProblem(f"{path!r} is not in {folder}.", "Only files of the opened folder can be used.")
    if not path or "\0" in path:
        raise problem
    try:
        root = real_path(folder)
        place = real_path(root / path)
    except (OSError, ValueError) as error:
        raise problem from error
    if place == root or not place.is_relative_to(root):
        raise problem
    return place


def tree(folder: Path, start: str = "") -> Tree:
    """Return the files and folders below `start`, without those that Git ignores."""
    if start:
        start = inside(folder, start).relative_to(os.path.realpath(folder)).as_posix()
    found, is_cut = _listable(folder, start)
    entries = [TreeEntry(path=path, is_folder=is_folder) for path, is_folder in found[:MAX_ENTRIES]]
    return Tree(entries=entries, is_cut=is_cut or len(found) > MAX_ENTRIES)


def find(folder: Path, words: str, limit: int) -> list[str]:
    """Return the files whose path has the letters in this order, the best first."""
    wanted = "".join(words.lower().split())
    listed = _files(folder, int(time.monotonic() / LISTED_S))
    scored = [(score, path) for path in listed if (score := path_score(path, wanted))]
    return [path for _, path in sorted(scored)[:limit]]


def read(folder: Path, path: str) -> FileText:
    """Read a text file with its digest."""
    place = inside(folder, path)
    source = _read(place)
    return FileText(
        path=_name(folder, place),
        absolute=str(place),
        text=source.raw.removeprefix(_BOM).decode("utf-8"),
        digest=source.sha256,
        is_writable=os.access(place, os.W_OK),
    )


def write(folder: Path, path: str, text: str, digest: str) -> str:
    """Write a text file that still has this digest, or make a new one. Return the digest of what is there."""
    place = inside(folder, path)
    if NEVER & set(place.relative_to(os.path.realpath(folder)).parts):
        raise FileProblem(f"{path} belongs to version control.", "It is not written from here.")
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise FileProblem(f"{path}: the text is no Unicode text.") from error
    if len(data) > MAX_BYTES:
        raise FileProblem(
            f"{path} would be larger than {MAX_BYTES:,} bytes.", "Write it with another program."
        )
    if not digest:
        return _create(place, data)
    source = _read(place)
    if source.sha256 != digest:
        raise _stale(place)
    data = _in_form_of(source, text)
    try:
        replace_file(place, data, digest)
    except EditConflict as error:
        raise _stale(place) from error
    return sha256_of(data)


def digest_of(folder: Path, path: str) -> str:
    """Return the digest of a file, "" if it is gone or cannot be read."""
    with contextlib.suppress(FileProblem, OSError):
        place = inside(folder, path)
        state = status_of(place)
        return _digest(place, state.st_ino, state.st_mtime_ns, state.st_size)
    return ""


@lru_cache(maxsize=1024)
def _digest(place: Path, *state: int) -> str:
    """Return the digest of a file. Another `state` makes it be read again."""
    del state
    return _read(place).sha256


def _read(place: Path) -> SourceFile:
    with contextlib.suppress(OSError):
        if not stat.S_ISREG(status_of(place).st_mode):
            raise FileProblem(f"{place} is no plain file.", "Open a text file.")
    return read_source(place, place)


def _create(place: Path, data: bytes) -> str:
    try:
        replace_files([Replacement(place, None, data)])
    except EditConflict as error:
        raise _stale(place) from error
    return sha256_of(data)


def _in_form_of(source: SourceFile, text: str) -> bytes:
    """Return the text with the line ends and the byte order mark of the file: editors only know newlines."""
    if "\r" not in text and any(end != "\n" for end in source.ends if end):
        return splice(source, 1, len(source.lines), text)
    return (_BOM if source.bom else b"") + text.encode("utf-8")


def _stale(place: Path) -> StaleFile:
    return StaleFile(f"{place} was changed by somebody else.", "Read it again, and merge.")


def _name(folder: Path, place: Path) -> str:
    return place.relative_to(os.path.realpath(folder)).as_posix()


def _listable(folder: Path, start: str = "") -> tuple[list[tuple[str, bool]], bool]:
    """Return what the tree shows, and whether time was up before all of it was seen.

    A name that is no Unicode text cannot be shown.
    """
    found: list[tuple[str, bool]] = []
    try:
        for path, is_folder in islice(walk(real_path(folder), start, MAX_WALK_S), 2 * MAX_ENTRIES):
            if _is_text(path):
                found.append((path, is_folder))
    except TimeoutError:
        return found, True
    return found, False


def _is_text(path: str) -> bool:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


@lru_cache(maxsize=4)
def _files(folder: Path, moment: int) -> tuple[str, ...]:
    """Return the files of a folder. Another `moment` makes it be listed again."""
    del moment
    return tuple(path for path, is_folder in _listable(folder)[0] if not is_folder)
