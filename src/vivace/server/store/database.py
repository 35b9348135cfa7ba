"""The database file: made private, opened, checked, and set aside when it is damaged.

Owns the file, its lock and its connections; not what is in it (`migrations`, `records`, `keys`) nor who uses
which connection when (`writer`, `sqlite`). All of it blocks: call it in a thread.

Write-ahead log with `synchronous=NORMAL`: a commit is in the system's hands when it returns, so it survives
kill -9 of the process without waiting for the disk. Only when the whole machine loses power may the last
commits be gone; the file is sound even then.
"""

import contextlib
import fcntl
import logging
import os
import sqlite3
import time
from pathlib import Path

from vivace.errors import StartError
from vivace.server.store.migrations import migrate, refuse_foreign, version_of
from vivace.server.store.problems import StoreUnavailable, hint_for, is_busy, is_damage, unavailable

READERS = 4
BUSY_S = 5.0  # how long to wait for another process that writes
CHECKED_BYTES = 32 << 20  # up to this size the whole file is checked at each start: some 30 ms
_FILES = ("", "-wal", "-shm")
_PRAGMAS = (
    "journal_mode = WAL",
    "synchronous = NORMAL",
    "wal_autocheckpoint = 0",  # the writer does it when nobody waits
    "foreign_keys = ON",
    "secure_delete = ON",  # what was deleted is overwritten, not only unlinked
    "temp_store = MEMORY",
)

log = logging.getLogger(__name__)


class Damaged(Exception):
    """The file is not a sound database."""


class Database:
    """An open file: one connection that writes, some that read, and the lock that marks it as in use."""

    def __init__(self, path: Path, writer: sqlite3.Connection, lock: int) -> None:
        self.path = path
        self.writer = writer
        self.readers: list[sqlite3.Connection] = []
        self._lock = lock

    @property
    def wal_bytes(self) -> int:
        try:
            return _beside(self.path, "-wal").stat().st_size
        except OSError:
            return 0

    def explain(self, error: sqlite3.Error) -> StoreUnavailable:
        """Return the error for people. Remember damage, so that the next start checks the whole file."""
        if is_damage(error):
            with contextlib.suppress(OSError):
                _suspicion(self.path).touch(mode=0o600)
        return unavailable(self.path, error)

    def close(self) -> None:
        """Close the connections. The last process to close empties the write-ahead log into the file."""
        for connection in (*self.readers, self.writer):
            connection.close()
        os.close(self._lock)


def open_database(path: Path) -> Database:
    """Open or create the store at `path`; raise `StartError` if that is impossible."""
    path = path.absolute()
    try:
        _make_private(path)
        lock = os.open(_beside(path, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _not_started(path, error) from error
    database = None
    try:
        _lock(lock, fcntl.LOCK_SH, path)
        try:
            writer = _prepared(path)
        except Damaged:
            writer = _begun_anew(path, lock)
        database = Database(path, writer, lock)
        for _ in range(READERS):
            database.readers.append(_connect(path))
            database.readers[-1].execute("PRAGMA temp_store = MEMORY")
            database.readers[-1].execute("PRAGMA query_only = ON")
    except BaseException as error:
        database.close() if database else os.close(lock)
        if isinstance(error, sqlite3.Error | OSError):
            raise _not_started(path, error) from error
        raise
    return database


def roll_back(connection: sqlite3.Connection) -> None:
    """End what is left of a transaction. Some errors have ended it already."""
    if connection.in_transaction:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")


def _make_private(path: Path) -> None:
    """Make the file readable by this user only. SQLite gives the files beside it the same mode."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        # Only a new file may be opened and closed here: closing any descriptor of a file drops the locks that
        # SQLite has on it in the same process.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        for file in (_beside(path, ending) for ending in _FILES):
            if file.is_file() and file.stat().st_mode & 0o077:
                file.chmod(0o600)


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.as_uri()}?mode=rw",  # never made by SQLite: its mode would be another
        uri=True,
        timeout=BUSY_S,
        isolation_level=None,  # transactions begin where we say so
        check_same_thread=False,
    )


def _prepared(path: Path) -> sqlite3.Connection:
    """Return the writing connection to a sound file of this version."""
    give_up_at = time.monotonic() + BUSY_S
    while True:
        connection = _connect(path)
        try:
            _prepare(connection, path)
            return connection
        except sqlite3.DatabaseError as error:
            connection.close()
            if is_damage(error):
                raise Damaged(str(error)) from error
            # Two that begin the same file get in each other's way for a moment, without SQLite waiting.
            if not is_busy(error) or time.monotonic() > give_up_at:
                raise
            time.sleep(0.02)
        except BaseException:
            connection.close()
            raise


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    refuse_foreign(connection, path)
    _check(connection, path)
    if version_of(connection) == 0:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only an empty file takes it
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    migrate(connection)


def _check(connection: sqlite3.Connection, path: Path) -> None:
    is_suspect = _suspicion(path).exists()
    if is_suspect or path.stat().st_size <= CHECKED_BYTES:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise Damaged(" ".join(verdict.split()))
    if is_suspect:
        _suspicion(path).unlink(missing_ok=True)


def _begun_anew(path: Path, lock: int) -> sqlite3.Connection:
    """Check once more while alone with the file, then rename it and create another. Delete nothing."""
    fcntl.flock(lock, fcntl.LOCK_UN)
    _lock(lock, fcntl.LOCK_EX, path)
    try:
        connection = _prepared(path)  # somebody else may have done it meanwhile
    except Damaged as why:
        aside = _set_aside(path)
        log.error("the store was damaged (%s): set aside as %s, a new one is begun", why, aside)
        _make_private(path)
        connection = _prepared(path)
    fcntl.flock(lock, fcntl.LOCK_SH)
    return connection


def _set_aside(path: Path) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    aside, count = _beside(path, f".damaged-{stamp}"), 1
    while aside.exists():
        count += 1
        aside = _beside(path, f".damaged-{stamp}-{count}")
    for ending in reversed(_FILES):  # the log first: SQLite would delete it beside a new file
        with contextlib.suppress(FileNotFoundError):
            _beside(path, ending).rename(_beside(aside, ending))
    _suspicion(path).unlink(missing_ok=True)
    return aside


def _lock(lock: int, kind: int, path: Path) -> None:
    """Take the lock: shared while the store is open, exclusive to set it aside. It dies with its holder."""
    give_up_at = time.monotonic() + BUSY_S
    while True:
        try:
            return fcntl.flock(lock, kind | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > give_up_at:
                message = f"The store {path} is damaged, and another process has it open."
                raise StartError(
                    message, "Stop the server, then start it again: it begins a new store."
                ) from error
            time.sleep(0.02)


def _not_started(path: Path, error: sqlite3.Error | OSError) -> StartError:
    if isinstance(error, sqlite3.Error):
        return StartError(f"The store {path} cannot be opened: {error}.", hint_for(error))
    hint = "Make the folder writable, or set VIVACE_STATE_DIR to another one."
    return StartError(f"The store {path} cannot be opened: {error.strerror}.", hint)


def _suspicion(path: Path) -> Path:
    return _beside(path, ".suspect")


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)
