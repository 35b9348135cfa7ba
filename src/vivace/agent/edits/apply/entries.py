"""The undo journal on disk: one file an entry, named by its number, in a folder that is locked for writing.

An entry's file is a line of JSON, then for each changed file its old and its new bytes, compressed. It is
named `.pending` until all of its files are written, and `.edit` from then on. Entries of vivace 0.1 have one
file and only its old bytes; they can be read. Owns the format, the numbers, the limits and the lock.
Does not touch the user's files: see `journal`.
"""

import fcntl
import os
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from vivace.agent.door import is_real
from vivace.agent.edits.apply.replacing import create_private_file, sha256_of
from vivace.errors import NothingToUndo, WriteProblem

MAX_ENTRIES = 400
MAX_BYTES = 200_000_000
LOCK_WAIT_S = 10.0
MAX_TIME_S = 1e11  # Unix time: a year that can be shown
_DONE, _PENDING = ".edit", ".pending"

Kind = Literal["edit", "undo", "redo"]


class FileChange(msgspec.Struct, frozen=True):
    """One file of an entry. The hash None stands for "there is no file"."""

    path: str  # absolute, symbolic links followed
    unit: str
    before_sha256: str | None
    after_sha256: str | None
    before_size: int  # bytes in the entry's file, compressed
    after_size: int | None  # None: an old entry, which has no new bytes
    mode: int | None = None  # of the file before, for the day on which it is made again
    is_merged: bool = False  # with what another program had written, or with later edits
    root: str = ""  # the workspace of the task that wrote it; "": its user did, by name


class Entry(msgspec.Struct, frozen=True):
    """One step that can be taken back: an edit, or the undo or redo of others."""

    number: int
    kind: Kind
    instruction: str
    recorded_at_s: float  # Unix time
    files: tuple[FileChange, ...]
    reverses: tuple[int, ...] = ()  # the entries that this one took back
    header_sha256: str = ""  # of the header with "" in this place; older entries have none

    @property
    def path(self) -> str:
        return self.files[0].path

    @property
    def unit(self) -> str:
        return self.files[0].unit

    def touches(self, path: str | None) -> bool:
        """Return whether a file of it is `path` or in that folder. None: any."""
        if path is None:
            return True
        return any(file.path == path or file.path.startswith(path.rstrip("/") + "/") for file in self.files)


def way_back(number: int) -> str:
    """Say how just this entry is taken back, whatever came after it."""
    return f"`vivace undo --number {number}` takes it back"


class _OneFileEntry(msgspec.Struct, frozen=True):
    """An entry as vivace 0.1 wrote it."""

    number: int
    path: str
    unit: str
    instruction: str
    recorded_at_s: float
    before_sha256: str
    after_sha256: str

    def as_entry(self, before_size: int) -> Entry:
        file = FileChange(self.path, self.unit, self.before_sha256, self.after_sha256, before_size, None)
        return Entry(self.number, "edit", self.instruction, self.recorded_at_s, (file,))


@dataclass(frozen=True)
class Step:
    """One file's change with its bytes. The bytes None stand for "there is no file"."""

    path: Path
    unit: str
    before: bytes | None
    after: bytes | None
    mode: int | None = None
    is_merged: bool = False
    root: str = ""  # the workspace of the task that wrote it; "": its user did, by name
    after_sha256: str | None = None  # where `after` is not known: only in an old entry

    def is_after(self, state: bytes | None) -> bool:
        """Return whether `state` is what the change made."""
        if self.after_sha256 is not None:
            return state is not None and sha256_of(state) == self.after_sha256
        return state == self.after


@dataclass(frozen=True)
class EntryFolder:
    """All entries of one user. Whoever writes holds the lock."""

    folder: Path

    def write_pending(
        self, kind: Kind, instruction: str, steps: Sequence[Step], reverses: tuple[int, ...]
    ) -> Entry:
        """Write down what is going to be done, durable, before it is done."""
        blobs = [(_packed(step.before), _packed(step.after)) for step in steps]
        files = tuple(
            FileChange(
                path=str(step.path),
                unit=step.unit,
                before_sha256=_hash(step.before),
                after_sha256=_hash(step.after),
                before_size=len(before),
                after_size=len(after),
                mode=step.mode,
                is_merged=step.is_merged,
                root=step.root,
            )
            for step, (before, after) in zip(steps, blobs, strict=True)
        )
        number = max(self._numbers(), default=0) + 1
        entry = Entry(number, kind, instruction, time.time(), files, reverses)
        data = _header_line(entry) + b"".join(blob for pair in blobs for blob in pair)
        create_private_file(self._file(number, _PENDING), data)
        return entry

    def finish(self, number: int) -> None:
        """Say that all files of the entry are written. Forget the oldest entries beyond the limits."""
        with suppress(OSError):  # it stays pending, and is found to be done by whoever comes next
            self._file(number, _PENDING).replace(self._file(number, _DONE))
        self._prune()

    def forget(self, number: int) -> None:
        """Remove an entry that was not carried out."""
        self._file(number, _PENDING).unlink(missing_ok=True)

    def has_pending(self) -> bool:
        return any(self.folder.glob(f"*{_PENDING}"))

    def pending(self) -> list[Entry]:
        """Return what a killed process has left unfinished. A damaged one is finished: undo tells of it."""
        found = []
        for number in self._numbers(_PENDING):
            try:
                entry = self._header(number, _PENDING)
                self.steps(entry, is_pending=True)
            except NothingToUndo:
                self.finish(number)
            else:
                found.append(entry)
        return found

    def newest_first(self) -> Iterator[Entry | NothingToUndo]:
        """Yield the finished entries; for a damaged one the error that tells so."""
        for number in reversed(self._numbers(_DONE)):
            try:
                yield self._header(number, _DONE)
            except NothingToUndo as error:
                yield error

    def pending_file(self, entry: Entry) -> Path:
        return self._file(entry.number, _PENDING)

    def steps(self, entry: Entry, *, is_pending: bool = False) -> list[Step]:
        """Return the entry's changes with their bytes. Raise NothingToUndo if they are damaged."""
        suffix = _PENDING if is_pending else _DONE
        try:
            blob = self._file(entry.number, suffix).read_bytes().partition(b"\n")[2]
            return list(_unpacked(entry, blob))
        except (OSError, zlib.error, ValueError) as error:
            raise self._damaged(entry.number, suffix) from error

    def _header(self, number: int, suffix: str) -> Entry:
        file = self._file(number, suffix)
        try:
            with file.open("rb") as opened:
                line = opened.readline()
            try:
                entry = msgspec.json.decode(line, type=Entry)
            except msgspec.ValidationError:
                before_size = file.stat().st_size - len(line)
                entry = msgspec.json.decode(line, type=_OneFileEntry).as_entry(before_size)
        except (OSError, UnicodeError, RecursionError, msgspec.DecodeError) as error:
            raise self._damaged(number, suffix) from error
        if entry.number != number or not _is_plausible(entry) or not _is_as_written(entry, line):
            raise self._damaged(number, suffix)
        return entry

    def _damaged(self, number: int, suffix: str) -> NothingToUndo:
        file = self._file(number, suffix)
        return NothingToUndo(f"The undo entry {file} is damaged.", "Move it away to reach the older ones.")

    def _numbers(self, *suffixes: str) -> list[int]:
        wanted = suffixes or (_DONE, _PENDING)
        try:
            with os.scandir(self.folder) as found:
                names = [entry.name.partition(".") for entry in found]
        except OSError:
            return []
        return sorted(int(stem) for stem, dot, rest in names if dot + rest in wanted and stem.isdecimal())

    def _file(self, number: int, suffix: str) -> Path:
        return self.folder / f"{number:010d}{suffix}"

    def _prune(self) -> None:
        """Forget the oldest entries beyond the limits. The newest always stays."""
        kept_bytes = 0
        for count, number in enumerate(reversed(self._numbers(_DONE))):
            with suppress(OSError):
                kept_bytes += self._file(number, _DONE).stat().st_size
                if count and (count >= MAX_ENTRIES or kept_bytes > MAX_BYTES):
                    self._file(number, _DONE).unlink()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Let one process at a time in. The lock ends with its process."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder.chmod(0o700)
            fd = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            hint = "Nothing was changed: no edit is made that could not be undone."
            raise WriteProblem(
                f"The undo journal {self.folder} cannot be used: {error.strerror}.", hint
            ) from error
        try:
            _wait_for(fd)
            yield
        finally:
            os.close(fd)


def _header_line(entry: Entry) -> bytes:
    try:
        sha256 = sha256_of(msgspec.json.encode(entry))
        return msgspec.json.encode(msgspec.structs.replace(entry, header_sha256=sha256)) + b"\n"
    except UnicodeEncodeError as error:
        names = ", ".join(repr(file.path) for file in entry.files)
        hint = "Nothing was written. Rename the file, or say the instruction in UTF-8."
        raise WriteProblem(f"A name or the instruction is not UTF-8: {names}.", hint) from error


def _is_as_written(entry: Entry, line: bytes) -> bool:
    """Return whether no byte of the header was damaged. A path that is would lead undo elsewhere."""
    if not entry.header_sha256:
        return True
    blank = line.removesuffix(b"\n").replace(f'"{entry.header_sha256}"'.encode(), b'""')
    return sha256_of(blank) == entry.header_sha256


def _is_plausible(entry: Entry) -> bool:
    """Return whether we could have written this. Undo goes to no other path than one that we did."""
    return (
        bool(entry.files)
        and 0 <= entry.recorded_at_s < MAX_TIME_S
        and all(is_real(file.path) and 0 <= (file.mode or 0) <= 0o7777 for file in entry.files)
        and all(file.before_size >= 0 and (file.after_size or 0) >= 0 for file in entry.files)
        and all(is_real(file.root) for file in entry.files if file.root)
    )


def _hash(state: bytes | None) -> str | None:
    return None if state is None else sha256_of(state)


def _packed(state: bytes | None) -> bytes:
    return b"" if state is None else zlib.compress(state)


def _unpacked(entry: Entry, blob: bytes) -> Iterator[Step]:
    """Yield the steps. Raise ValueError where the bytes are not those that were recorded."""
    at = 0
    for file in entry.files:
        before = _state(blob[at : at + file.before_size], file.before_sha256)
        at += file.before_size
        if file.after_size is None:
            sha256 = file.after_sha256
            yield Step(Path(file.path), file.unit, before, None, after_sha256=sha256)
            continue
        after = _state(blob[at : at + file.after_size], file.after_sha256)
        at += file.after_size
        yield Step(Path(file.path), file.unit, before, after, file.mode, file.is_merged, file.root)
    if at != len(blob):
        raise ValueError("more bytes than were recorded")


def _state(blob: bytes, sha256: str | None) -> bytes | None:
    if sha256 is None:
        return None
    state = zlib.decompress(blob)
    if sha256_of(state) != sha256:
        raise ValueError("other bytes than were recorded")
    return state


def _wait_for(fd: int) -> None:
    give_up_at = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > give_up_at:
                hint = "Nothing was changed. Try again in a moment."
                raise WriteProblem("Another vivace has been writing for too long.", hint) from error
            time.sleep(0.01)
        except OSError as error:
            hint = "Nothing was changed. Set state_dir to a folder on a local disk."
            raise WriteProblem(f"The undo journal cannot be locked: {error.strerror}.", hint) from error
