"""The tables, and how a database of an older version becomes one of this version.

Owns the schema. Forward only, each step in a transaction of its own; `PRAGMA user_version` says how many a
file has taken. A step that was released is never changed again: what comes later is a new step.
"""

import sqlite3
from pathlib import Path

from vivace.errors import StartError

Steps = tuple[tuple[str, ...], ...]

# A node is what a response adds to its chain, and is shared by all that continue it. It outlives its response
# as long as another node has it as its parent. Small columns come first: SQLite reads rows from the start.
STEPS: Steps = (
    (
        """CREATE TABLE nodes (
            node INTEGER PRIMARY KEY,
            parent INTEGER REFERENCES nodes,
            tokens BLOB NOT NULL,
            history BLOB NOT NULL,
            input BLOB NOT NULL,
            output BLOB NOT NULL
        )""",
        "CREATE INDEX nodes_by_parent ON nodes (parent)",
        """CREATE TABLE responses (
            node INTEGER PRIMARY KEY REFERENCES nodes,
            tenant TEXT NOT NULL,
            id TEXT NOT NULL,
            parent TEXT,
            model TEXT NOT NULL,
            created_at INTEGER NOT NULL,
            status TEXT NOT NULL,
            told BLOB NOT NULL,
            output_at INTEGER NOT NULL,
            body BLOB NOT NULL,
            events BLOB NOT NULL,
            UNIQUE (tenant, id)
        )""",
        "CREATE INDEX responses_by_age ON responses (created_at)",
        """CREATE INDEX responses_unfinished ON responses (status)
            WHERE status IN ('queued', 'in_progress')""",
        "CREATE TABLE unneeded (node INTEGER PRIMARY KEY)",  # nodes to look at: perhaps nobody needs them now
        """CREATE TABLE keys (
            id TEXT PRIMARY KEY,
            name TEXT NOT NULL,
            tenant TEXT NOT NULL,
            secret_hash BLOB NOT NULL UNIQUE CHECK (length(secret_hash) = 32),
            limits BLOB NOT NULL,
            created_at INTEGER NOT NULL,
            last_used_at INTEGER
        )""",
    ),
    # Whether a node's tokens are all that it adds to the log, also if there are none. Of those without tokens
    # from before it is not known, so the chain they are in is read anew from its items.
    ("ALTER TABLE nodes ADD COLUMN has_log INTEGER NOT NULL DEFAULT 0",),
)


def version_of(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def refuse_foreign(connection: sqlite3.Connection, path: Path, steps: Steps = STEPS) -> None:
    """Raise `StartError` for a database that this version must not touch. Change nothing."""
    version = version_of(connection)
    if version > len(steps):
        raise StartError(
            f"The store {path} is of a newer version of Vivace ({version}; this one knows {len(steps)}).",
            "Use that version, or move the file away to begin a new store.",
        )
    if version == 0 and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise StartError(
            f"{path} is a database of another program.", "Move it away, or set another state_dir."
        )


def migrate(connection: sqlite3.Connection, steps: Steps = STEPS) -> None:
    """Apply the steps that the file lacks. Another process may be doing the same."""
    while (version := version_of(connection)) < len(steps):
        connection.execute("BEGIN IMMEDIATE")
        try:
            if version_of(connection) == version:
                for statement in steps[version]:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {version + 1}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
