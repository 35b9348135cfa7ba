"""Notes: sentences that the user wants to be remembered, for one project or for all.

Owns the store, a file of SQLite, and which notes fit a message. Known secrets are taken out before a note is
kept. Does not own where notes stand in a prompt (`recall`), nor commands.
"""

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from vivace.agent.memory.full_text import Damaged, all_of, any_of, opened, set_aside
from vivace.errors import UsageError, WriteProblem
from vivace.redaction import redact

T = TypeVar("T")

MAX_CHARS = 2000  # of one note
MAX_FOUND = 3  # notes with one message
FOR_ALL = ""  # the project of notes that are for all
_SCHEMA = """
CREATE TABLE IF NOT EXISTS notes (
    id INTEGER PRIMARY KEY AUTOINCREMENT, project TEXT NOT NULL, text TEXT NOT NULL, at_s REAL NOT NULL
);
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5 (
    text, content='notes', content_rowid='id', tokenize='porter unicode61'
);
CREATE TRIGGER IF NOT EXISTS note_added AFTER INSERT ON notes BEGIN
    INSERT INTO words (rowid, text) VALUES (new.id, new.text);
END;
CREATE TRIGGER IF NOT EXISTS note_removed AFTER DELETE ON notes BEGIN
    INSERT INTO words (words, rowid, text) VALUES ('delete', old.id, old.text);
END;
CREATE TRIGGER IF NOT EXISTS note_changed AFTER UPDATE ON notes BEGIN
    INSERT INTO words (words, rowid, text) VALUES ('delete', old.id, old.text);
    INSERT INTO words (rowid, text) VALUES (new.id, new.text);
END;
"""


@dataclass(frozen=True)
class Note:
    id: int
    project: str  # the root of its project; "" for all
    text: str
    at_s: float = 0.0  # Unix time

    @property
    def scope(self) -> str:
        return "project" if self.project else "user"


class NoteStore:
    """The notes of one project, and those for all. Other projects' notes are not seen."""

    def __init__(self, state_dir: Path, project: Path) -> None:
        self._file = state_dir / "memory.db"
        self._project = str(project)

    def add(self, text: str, *, for_all: bool = False) -> Note:
        """Keep a note. Raise `UsageError` if there is nothing to keep, or too much."""
        text, project, now_s = _checked(text), FOR_ALL if for_all else self._project, time.time()

        def insert(database: sqlite3.Connection) -> int:
            row = "INSERT INTO notes (project, text, at_s) VALUES (?, ?, ?)"
            return database.execute(row, (project, text, now_s)).lastrowid or 0

        return Note(self._do(insert), project, text, now_s)

    def change(self, number: int, text: str) -> Note:
        """Put another text into a note."""
        note, text = self.get(number), _checked(text)
        self._do(lambda database: database.execute("UPDATE notes SET text = ? WHERE id = ?", (text, number)))
        return Note(note.id, note.project, text, note.at_s)

    def remove(self, number: int) -> Note:
        """Forget a note. Return it."""
        note = self.get(number)
        self._do(lambda database: database.execute("DELETE FROM notes WHERE id = ?", (number,)))
        return note

    def get(self, number: int) -> Note:
        found = [note for note in self.all() if note.id == number]
        if not found:
            raise UsageError(f"There is no note {number} here.", "`vivace memory` lists the notes.")
        return found[0]

    def all(self) -> list[Note]:
        """Return the notes, the oldest first."""
        return self._select("ORDER BY id")

    def search(self, words: str) -> list[Note]:
        """Return the notes that have all of these words, the best first."""
        return self._matching(all_of(words), limit=100)

    def about(self, message: str) -> list[Note]:
        """Return the notes that share a telling word with the message, the best first; few."""
        return self._matching(any_of(message), limit=MAX_FOUND)

    def _matching(self, query: str, limit: int) -> list[Note]:
        if not query:
            return []
        where = "AND id IN (SELECT rowid FROM words WHERE words MATCH ?)"
        order = "ORDER BY (SELECT rank FROM words WHERE words MATCH ? AND rowid = notes.id), id LIMIT ?"
        return self._select(f"{where} {order}", query, query, limit)

    def _select(self, rest: str, *values: object) -> list[Note]:
        """Return notes of this project and for all. A file that is not there is not made."""
        if not self._file.exists():
            return []
        query = f"SELECT id, project, text, at_s FROM notes WHERE project IN (?, ?) {rest}"
        rows = self._do(
            lambda database: database.execute(query, (FOR_ALL, self._project, *values)).fetchall()
        )
        return [Note(*row) for row in rows]

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with opened(self._file, _SCHEMA) as database:
                return work(database)
        except Damaged as error:
            aside = set_aside(self._file)
            raise WriteProblem(
                f"The notes were damaged ({error}): the file is kept as {aside}.",
                "New notes begin now. `sqlite3 FILE .recover` may bring the old ones back.",
            ) from error


def _checked(text: str) -> str:
    text = redact(text.strip())
    if not text:
        raise UsageError("The note is empty.", "Write what is to be remembered.")
    if len(text) > MAX_CHARS:
        raise UsageError(
            f"A note has at most {MAX_CHARS} characters; this one has {len(text)}.",
            "Long rules belong into AGENTS.md, which is always read.",
        )
    return text
