"""Past conversations, found by words.

Owns an index of all transcripts, which is brought up to date when something is searched for, and made anew
when it is damaged: the transcripts are the truth. Does not own them (`conversation.transcript`).
"""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vivace.agent.conversation.transcript.file import SUFFIX
from vivace.agent.conversation.transcript.history import History, Turn
from vivace.agent.conversation.transcript.reading import read_history
from vivace.agent.memory.full_text import Damaged, all_of, opened

MAX_FOUND = 50
MAX_CHARS = 20_000  # of one turn's answer
_SCHEMA = """
CREATE TABLE IF NOT EXISTS files (id TEXT PRIMARY KEY, folder TEXT, mtime_ns INTEGER, size_bytes INTEGER);
CREATE VIRTUAL TABLE IF NOT EXISTS turns USING fts5 (
    id UNINDEXED, turn UNINDEXED, at_s UNINDEXED, text, answer, tokenize='porter unicode61'
);
"""


@dataclass(frozen=True)
class Found:
    """A turn of a past conversation that has the words."""

    id: str  # of the conversation
    folder: str
    turn: int
    at_s: float  # Unix time
    text: str  # of the message, in one line
    excerpt: str  # around the words


class TranscriptIndex:
    def __init__(self, conversations: Path) -> None:
        self._conversations = conversations
        self._file = conversations / "index.db"

    def search(self, words: str, limit: int = MAX_FOUND) -> list[Found]:
        """Return the turns that have all of these words, the best first."""
        query = all_of(words)
        if not query or not self._conversations.is_dir():
            return []
        try:
            return self._search(query, limit)
        except Damaged:
            self._file.unlink(missing_ok=True)
            return self._search(query, limit)

    def _search(self, query: str, limit: int) -> list[Found]:
        with opened(self._file, _SCHEMA) as database:
            self._update(database)
            rows = database.execute(
                "SELECT turns.id, folder, turn, at_s, text, snippet(turns, -1, '', '', ' … ', 16) "
                "FROM turns JOIN files ON files.id = turns.id WHERE turns MATCH ? ORDER BY rank LIMIT ?",
                (query, limit),
            ).fetchall()
        return [
            Found(id, folder, turn, at_s, _one_line(text), _one_line(excerpt))
            for id, folder, turn, at_s, text, excerpt in rows
        ]

    def _update(self, database: sqlite3.Connection) -> None:
        """Read the transcripts that are new or have grown, and forget those that are gone."""
        known = {
            id: (mtime_ns, size)
            for id, mtime_ns, size in database.execute("SELECT id, mtime_ns, size_bytes FROM files")
        }
        there = {}
        for file in self._conversations.glob(f"*{SUFFIX}"):
            try:
                state = file.stat()
            except OSError:
                continue
            there[file.stem] = (state.st_mtime_ns, state.st_size)
            if known.get(file.stem) != there[file.stem]:
                self._read(database, file, *there[file.stem])
        for id in known.keys() - there.keys():
            _forget(database, id)

    def _read(self, database: sqlite3.Connection, file: Path, mtime_ns: int, size_bytes: int) -> None:
        try:
            history = read_history(file)
        except OSError:
            return
        _forget(database, file.stem)
        row = (file.stem, history.folder, mtime_ns, size_bytes)
        database.execute("INSERT INTO files VALUES (?, ?, ?, ?)", row)
        database.executemany("INSERT INTO turns VALUES (?, ?, ?, ?, ?)", _rows(file.stem, history))


def _forget(database: sqlite3.Connection, id: str) -> None:
    database.execute("DELETE FROM turns WHERE id = ?", (id,))
    database.execute("DELETE FROM files WHERE id = ?", (id,))


def _rows(id: str, history: History) -> Iterator[tuple[str, int, float, str, str]]:
    for turn in history.turns:
        yield id, turn.number, turn.at_s, _storable(turn.text), _storable(_answer(turn))


def _answer(turn: Turn) -> str:
    edits = [f"{edit.path} {edit.unit}" for edit in turn.edits]
    return "\n".join([turn.answer if turn.kind == "question" else "", *edits])[:MAX_CHARS]


def _storable(text: str) -> str:
    """Return the text without lone surrogates, which are no UTF-8."""
    return text.encode("utf-8", "replace").decode()


def _one_line(text: str) -> str:
    return " ".join(text.split())
