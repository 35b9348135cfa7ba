"""The undo journal: for every edit the bytes before it, on disk before the file itself is touched.

One file an entry, named by its number: a line of JSON, then the old bytes, compressed. Whether an entry was
applied is not recorded but seen: the file has the entry's hash from after the edit, or from before it. So a
kill between journal and file, in either order, leaves nothing to repair. Does not own the way bytes reach
the disk: see `replacing`.
"""

import fcntl
import os
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from vivace.agent.edits.apply.replacing import create_private_file, replace_file, sha256_of
from vivace.agent.edits.apply.source import SourceFile, write_source
from vivace.errors import NothingToUndo, WriteProblem

MAX_ENTRIES = 200
MAX_BYTES = 100_000_000
LOCK_WAIT_S = 10.0
_SUFFIX = ".edit"


class Entry(msgspec.Struct, frozen=True):
    """One edit that can be taken back."""

    number: int
    path: str  # absolute, symbolic links followed
    unit: str
    instruction: str
    recorded_at_s: float  # Unix time
    before_sha256: str
    after_sha256: str


@dataclass(frozen=True)
class Journal:
    """The entries in `folder`, shared by all processes of one user."""

    folder: Path

    def apply(self, source: SourceFile, new_bytes: bytes, instruction: str, unit_name: str) -> Entry:
        """Record the edit, then write it. No edit reaches a file in another way."""
        with self._lock():
            entry = self._record(source, new_bytes, instruction, unit_name)
            try:
                write_source(source, new_bytes)
            except WriteProblem:
                self._forget(entry)
                raise
        return entry

    def undo(self, path: Path | None = None) -> Entry:
        """Undo the newest edit (of `path`) and forget it. Raise NothingToUndo if its file has changed since.

        An entry whose file still, or again, has the bytes from before is forgotten and passed over: that
        edit never reached its file, or was undone by a process that died before it could say so.
        """
        with self._lock():
            for entry in self.entries(path):
                if self._is_applied(entry):
                    before = self._before(entry)
                    replace_file(Path(entry.path), before, entry.after_sha256)
                    self._forget(entry)
                    return entry
                self._forget(entry)
        where = f" in {path}" if path is not None else ""
        raise NothingToUndo(f"There is no edit to undo{where}.", "Only edits made by vivace can be undone.")

    def entries(self, path: Path | None = None) -> Iterator[Entry]:
        """Yield the entries (of `path`), the newest first."""
        wanted = None if path is None else os.path.realpath(path)
        for number in reversed(self._numbers()):
            entry = self._header(number)
            if wanted is None or entry.path == wanted:
                yield entry

    def _record(self, source: SourceFile, new_bytes: bytes, instruction: str, unit_name: str) -> Entry:
        assert new_bytes != source.raw, "an edit that changes nothing has nothing to undo"
        self._forget_unapplied(source)
        numbers = self._numbers()
        entry = Entry(
            number=numbers[-1] + 1 if numbers else 1,
            path=str(source.target),
            unit=unit_name,
            instruction=instruction,
            recorded_at_s=time.time(),
            before_sha256=source.sha256,
            after_sha256=sha256_of(new_bytes),
        )
        data = msgspec.json.encode(entry) + b"\n" + zlib.compress(source.raw)
        create_private_file(self._file(entry.number), data)
        self._prune()
        return entry

    def _forget_unapplied(self, source: SourceFile) -> None:
        """Forget the newest entry if a killed edit of the same bytes left it behind."""
        with suppress(NothingToUndo):  # a damaged entry is told at undo; it must not stop an edit
            newest = next(self.entries(), None)
            if newest and (newest.path, newest.before_sha256) == (str(source.target), source.sha256):
                self._forget(newest)

    def _forget(self, entry: Entry) -> None:
        self._file(entry.number).unlink(missing_ok=True)

    def _is_applied(self, entry: Entry) -> bool:
        try:
            current = sha256_of(Path(entry.path).read_bytes())
        except OSError as error:
            hint = f"The edit was {entry.instruction!r} in {entry.unit}."
            raise NothingToUndo(f"{entry.path} is gone or unreadable: {error.strerror}.", hint) from error
        if current == entry.after_sha256:
            return True
        if current == entry.before_sha256:
            return False
        raise NothingToUndo(
            f"{entry.path} has changed since the last edit, so undo would lose what came after.",
            "It was left untouched. To undo in another file, name it: vivace undo PATH.",
        )

    def _header(self, number: int) -> Entry:
        try:
            with self._file(number).open("rb") as file:
                return msgspec.json.decode(file.readline(), type=Entry)
        except (OSError, msgspec.DecodeError) as error:
            raise self._damaged(number) from error

    def _before(self, entry: Entry) -> bytes:
        try:
            before = zlib.decompress(self._file(entry.number).read_bytes().partition(b"\n")[2])
        except (OSError, zlib.error) as error:
            raise self._damaged(entry.number) from error
        if sha256_of(before) != entry.before_sha256:
            raise self._damaged(entry.number)
        return before

    def _damaged(self, number: int) -> NothingToUndo:
        file = self._file(number)
        return NothingToUndo(f"The undo entry {file} is damaged.", "Move it away to reach the older ones.")

    def _numbers(self) -> list[int]:
        stems = (file.stem for file in self.folder.glob(f"*{_SUFFIX}"))
        return sorted(int(stem) for stem in stems if stem.isdecimal())

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:010d}{_SUFFIX}"

    def _prune(self) -> None:
        """Forget the oldest entries beyond the limits. The newest always stays."""
        kept_bytes = 0
        for count, number in enumerate(reversed(self._numbers())):
            with suppress(OSError):
                kept_bytes += self._file(number).stat().st_size
                if count and (count >= MAX_ENTRIES or kept_bytes > MAX_BYTES):
                    self._file(number).unlink()

    @contextmanager
    def _lock(self) -> Iterator[None]:
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
