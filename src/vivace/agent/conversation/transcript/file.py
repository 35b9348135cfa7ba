"""The file of a conversation: one JSON line for everything that its user has seen.

Owns the file: a line is in the system's hands when `append` returns, so `kill -9` of this process loses none.
A line that a crash cut off is removed at the next opening. One process at a time has a conversation open.
Does not own what the lines mean (`records`, `history`) nor what a damaged file still says (`reading`).
"""

import contextlib
import fcntl
import os
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from vivace.agent.checked_lines import last_newline, sealed
from vivace.agent.conversation.transcript.record_log import Delta
from vivace.agent.conversation.transcript.records import AnyRecord
from vivace.agent.events.talk import ConversationStarted
from vivace.config import Settings
from vivace.errors import ConversationBusy, ConversationNotFound, WriteProblem
from vivace.redaction import RedactedStream, redact_values

SUFFIX = ".jsonl"
_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}")

OnAppend = Callable[[AnyRecord], None]

encode_record = msgspec.json.Encoder().encode


def redacted(record: AnyRecord) -> AnyRecord:
    """Return the record with known secrets taken out of every text in it."""
    plain = msgspec.to_builtins(record)
    clean = redact_values(plain)
    return record if clean == plain else msgspec.convert(clean, type(record))


def new_id() -> str:
    """Return an id that sorts by time and that nobody else has."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


def is_id(text: str) -> bool:
    """Return whether this could be the id of a conversation, rather than words."""
    return _ID.fullmatch(text) is not None


class Transcript:
    """An open conversation's file. Other processes cannot open it meanwhile.

    With `began` it is a new one, whose file is made with the first line behind that: a conversation in which
    nothing was said leaves nothing behind.
    """

    def __init__(
        self, file: Path, on_append: OnAppend = lambda _: None, began: ConversationStarted | None = None
    ) -> None:
        self.file = file
        self._on_append = on_append  # told of every line that was written
        self._began = began
        self._fd = -1
        self._streams: dict[type[Delta], RedactedStream] = {}
        if began is None:
            self._open()

    def _open(self) -> None:
        file = self.file
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _unwritable(file, error) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            raise ConversationBusy(
                f"The conversation {file.stem} is open in another program.",
                "Close it there, or begin another one.",
            ) from error

    def append(self, record: AnyRecord) -> None:
        """Write one line, without known secrets. Raise `WriteProblem` if the disk does not take it."""
        if self._fd < 0:
            self._open()
        if self._began is not None:
            self._write(self._began)
            self._began = None
        for each in self._pieces(record):
            self._write(each)

    def _pieces(self, record: AnyRecord) -> list[AnyRecord]:
        """Return the lines to write. The end of a delta waits for the next line if it may begin a secret."""
        if isinstance(record, Delta):
            text = self._streams.setdefault(type(record), RedactedStream()).grow(record.text)
            return [type(record)(text=text)] if text or not record.text else []
        return [*self._held_back(), redacted(record)]

    def _held_back(self) -> list[Delta]:
        rest = [(kind, stream.end()) for kind, stream in self._streams.items()]
        return [kind(text=text) for kind, text in rest if text]

    def _write(self, record: AnyRecord) -> None:
        line = sealed(encode_record(record))
        try:
            written = os.write(self._fd, line)
        except OSError as error:
            raise _unwritable(self.file, error) from error
        if written < len(line):
            self._drop_last(written)
            raise WriteProblem(f"{self.file} could not be written: the disk is full.", _KEPT)
        self._on_append(record)

    def heal(self) -> None:
        """Remove what stands behind the last whole line: a crash of the machine may have cut it off."""
        data = self.file.read_bytes()
        whole, is_newline_lost = last_newline(data)
        if whole < len(data):
            os.ftruncate(self._fd, whole)
        if is_newline_lost:
            os.write(self._fd, b"\n")

    def _drop_last(self, count: int) -> None:
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, os.fstat(self._fd).st_size - count)

    def sync(self) -> None:
        """Return when all lines would survive a crash of the machine."""
        with contextlib.suppress(OSError):
            os.fsync(self._fd)

    def close(self) -> None:
        """Write what was held back, and let others open it. No effect the second time."""
        if self._fd >= 0:
            with contextlib.suppress(WriteProblem):
                for each in self._held_back():
                    self._write(each)
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def file_named(settings: Settings, conversation_id: str) -> Path:
    """Return where the conversation with this id is kept."""
    return settings.state_dir / "conversations" / f"{conversation_id}{SUFFIX}"


def file_of(folder: Path, conversation_id: str) -> Path:
    """Return the file of this conversation, or raise `ConversationNotFound`."""
    file = folder / f"{conversation_id}{SUFFIX}"
    if Path(conversation_id).name != conversation_id or not file.is_file():
        raise ConversationNotFound(
            f"There is no conversation {conversation_id!r}.",
            "`vivace --continue` takes up the last one here.",
        )
    return file


_KEPT = "What was shown before is kept. Make room, then go on."


def _unwritable(file: Path, error: OSError) -> WriteProblem:
    return WriteProblem(f"{file} could not be written: {error.strerror}.", _KEPT)
