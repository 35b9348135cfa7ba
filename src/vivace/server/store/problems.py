"""What can go wrong with the store, in words: typed errors, and SQLite's errors made into them.

Owns no file and no connection.
"""

import sqlite3
from pathlib import Path

from vivace.errors import VivaceError

_BROKEN = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_HINTS = {
    sqlite3.SQLITE_FULL: "The disk is full. Once there is room, the store works again by itself.",
    sqlite3.SQLITE_IOERR: "Look at the disk: is it full, or failing? The store works again when it does.",
    sqlite3.SQLITE_READONLY: "Make the file and its folder writable.",
    sqlite3.SQLITE_CANTOPEN: "Make the file and its folder readable and writable.",
    sqlite3.SQLITE_PERM: "Make the file and its folder readable and writable.",
    sqlite3.SQLITE_BUSY: "Another process has been writing to it for long. Try again in a moment.",
    sqlite3.SQLITE_CORRUPT: "Restart the server: it sets the damaged file aside and begins a new one.",
    sqlite3.SQLITE_NOTADB: "Restart the server: it sets the damaged file aside and begins a new one.",
}


class StoreUnavailable(VivaceError):
    """The database cannot be read or written now. Nothing was half done; the next call may work."""

    code = "store_unavailable"


class ParentGone(VivaceError):
    """The parent was deleted. Put the response again without a parent and with the whole log."""

    code = "previous_response_not_found"


def hint_for(error: sqlite3.Error) -> str:
    return _HINTS.get(_primary(error), "Look at the disk and at the server's log.")


def unavailable(path: Path, error: sqlite3.Error) -> StoreUnavailable:
    return StoreUnavailable(f"The store {path} cannot be used: {error}.", hint_for(error))


def is_damage(error: sqlite3.Error) -> bool:
    return _primary(error) in _BROKEN


def is_busy(error: sqlite3.Error) -> bool:
    return _primary(error) == sqlite3.SQLITE_BUSY


def _primary(error: sqlite3.Error) -> int:
    """Return the result code without the details in its higher bits; -1 if Python raised the error."""
    code: int = getattr(error, "sqlite_errorcode", -1)
    return code & 0xFF if code >= 0 else code
