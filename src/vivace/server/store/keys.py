"""Keys as rows. Owns their SQL; a secret is never here, only its hash."""

import sqlite3

from vivace.errors import UsageError
from vivace.server.store.base import Key

_FIELDS = "id, name, tenant, created_at, last_used_at, limits"


def add(connection: sqlite3.Connection, key: Key, secret_hash: bytes) -> None:
    assert len(secret_hash) == 32, "a SHA-256"
    taken = connection.execute("SELECT 1 FROM keys WHERE id = ? OR secret_hash = ?", (key.id, secret_hash))
    if taken.fetchone() is not None:
        raise UsageError(
            f"There is a key {key.id!r} already, or one with the same secret.", "Make another one."
        )
    connection.execute(
        f"INSERT INTO keys ({_FIELDS}, secret_hash) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (key.id, key.name, key.tenant, key.created_at, key.last_used_at, key.limits, secret_hash),
    )


def find(connection: sqlite3.Connection, secret_hash: bytes) -> Key | None:
    row = connection.execute(f"SELECT {_FIELDS} FROM keys WHERE secret_hash = ?", (secret_hash,)).fetchone()
    return None if row is None else Key(*row)


def listed(connection: sqlite3.Connection) -> list[Key]:
    """Return all keys, the oldest first."""
    return [Key(*row) for row in connection.execute(f"SELECT {_FIELDS} FROM keys ORDER BY created_at, rowid")]


def remove(connection: sqlite3.Connection, key_id: str) -> bool:
    try:
        return connection.execute("DELETE FROM keys WHERE id = ?", (key_id,)).rowcount > 0
    except UnicodeEncodeError:  # from a command line that is not UTF-8
        return False


def touch(connection: sqlite3.Connection, key_id: str, used_at: int) -> None:
    """Note when a key was used. Calls may come in any order: the time never goes back."""
    connection.execute(
        "UPDATE keys SET last_used_at = ? WHERE id = ? AND (last_used_at IS NULL OR last_used_at < ?)",
        (used_at, key_id, used_at),
    )
