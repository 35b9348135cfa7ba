"""Which files of a folder have which words: an index in SQLite, brought up to date at every search.

Owns the index: a changed file gets a new number, and what was read of it before is dead until segments are
merged. Owns how long reading may take: what does not fit is read at the next search. A damaged index is
made anew, since the files are the truth. Does not own which files there are (`listing`), nor what they are
worth (`ranking`).
"""

import contextlib
import math
import os
import sqlite3
import time
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vivace.agent.door import real_path
from vivace.agent.edits.places.splitting import word_counts

MAX_BYTES = 1_000_000  # a larger file is hardly written by hand
READING_S = 10.0  # for new and changed files of one search
SEGMENT_FILES = 2000
MAX_SEGMENTS = 32
MAX_POSTINGS = 400_000  # that one search looks at, those of rare words first
MOST_SHARE = 0.8  # of the files that may have a word that is still looked up
STEM_COUNT = 4  # what a word of the file's own name counts
BUSY_S = 5.0
_K1, _B = 1.2, 0.6
_SCHEMA = """
CREATE TABLE IF NOT EXISTS files (
    id INTEGER PRIMARY KEY AUTOINCREMENT, path BLOB UNIQUE,
    mtime_ns INTEGER, size_bytes INTEGER, words INTEGER
);
CREATE TABLE IF NOT EXISTS postings (
    word TEXT, segment INTEGER, files BLOB, counts BLOB, PRIMARY KEY (word, segment)
) WITHOUT ROWID;
"""
_Known = tuple[int, int, int, int]  # a file's number, its time, its size, its words
_Segment = dict[str, tuple["array[int]", bytearray]]


@dataclass(frozen=True)
class Found:
    """Files with words of a search, and how much speaks for each."""

    scores: dict[str, float]  # by path relative to the folder, as it was given
    is_complete: bool  # otherwise some files are not read yet


class FileIndex:
    """The words of one folder's files. Without a `file` it is kept nowhere."""

    def __init__(self, folder: Path, file: Path | None = None) -> None:
        self._folder = folder
        self._file = file

    def search(self, paths: Sequence[str], words: Mapping[str, float]) -> Found:
        """Return the files among these that have any of the words, each with its score (BM25)."""
        try:
            return self._search(paths, words)
        except sqlite3.Error:
            if self._file is None:
                raise
        with contextlib.suppress(OSError):
            self._file.unlink()
        try:
            return self._search(paths, words)
        except sqlite3.Error:  # the disk is full, or the folder cannot be written
            return FileIndex(self._folder)._search(paths, words)

    def _search(self, paths: Sequence[str], words: Mapping[str, float]) -> Found:
        with self._opened() as database:
            known = {
                path.decode("utf-8", "surrogateescape"): (id, mtime_ns, size, count)
                for id, path, mtime_ns, size, count in database.execute("SELECT * FROM files")
            }
            is_complete = self._update(database, paths, known)
            return Found(_scores(database, known, words), is_complete)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        if self._file:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file.touch(mode=0o600)
        database = sqlite3.connect(self._file or ":memory:", timeout=BUSY_S)
        try:
            with database:
                database.executescript(_SCHEMA)
                yield database
        finally:
            database.close()

    def _update(self, database: sqlite3.Connection, paths: Sequence[str], known: dict[str, _Known]) -> bool:
        """Read what is new or changed, forget what is gone. Return whether all was read."""
        ends_at_s = time.monotonic() + READING_S
        segment: _Segment = defaultdict(lambda: (array("I"), bytearray()))
        waiting, is_complete = 0, True
        root = str(self._folder)
        for path in paths:
            try:
                state = os.stat(f"{root}/{path}")  # noqa: PTH116  # 50,000 of them
            except OSError:
                continue
            before = known.get(path)
            if before and before[1:3] == (state.st_mtime_ns, state.st_size):
                continue
            if time.monotonic() > ends_at_s:
                is_complete = False
                break
            known[path] = self._read(database, path, state, segment)
            waiting += 1
            if waiting == SEGMENT_FILES:
                _store(database, segment)
                waiting = 0
        _store(database, segment)
        self._leave(database, known.keys() - set(paths), known)
        return is_complete

    def _read(
        self, database: sqlite3.Connection, path: str, state: os.stat_result, segment: _Segment
    ) -> _Known:
        counts = self._counts(path) if state.st_size <= MAX_BYTES else Counter[str]()
        total = sum(counts.values())
        row = (path.encode("utf-8", "surrogateescape"), state.st_mtime_ns, state.st_size, total)
        database.execute("DELETE FROM files WHERE path = ?", row[:1])
        done = database.execute(
            "INSERT INTO files (path, mtime_ns, size_bytes, words) VALUES (?, ?, ?, ?)", row
        )
        number = done.lastrowid or 0
        for word, count in counts.items():
            files, times = segment[word]
            files.append(number)
            times.append(min(count, 255))
        return number, state.st_mtime_ns, state.st_size, total

    def _counts(self, path: str) -> Counter[str]:
        """Return the words of a file. One that is a link is followed only where it stays in the folder."""
        file = self._folder / path
        try:
            if file.is_symlink() and not real_path(file).is_relative_to(real_path(self._folder)):
                return Counter()
            text = file.read_bytes().decode("utf-8", "replace")
        except OSError:
            return Counter()
        if "\0" in text[:1000]:
            return Counter()
        counts = word_counts(text)
        for word in word_counts(Path(path).stem if Path(path).stem != "__init__" else Path(path).parent.name):
            counts[word] += STEM_COUNT
        return counts

    def _leave(self, database: sqlite3.Connection, others: set[str], known: dict[str, _Known]) -> None:
        """Take files out of the search that are not among its paths. Forget those that are gone."""
        gone = [path for path in others if not (self._folder / path).exists()]
        rows = [(path.encode("utf-8", "surrogateescape"),) for path in gone]
        database.executemany("DELETE FROM files WHERE path = ?", rows)
        for path in others:
            del known[path]


def index_file(cache_dir: Path, folder: Path) -> Path:
    """Return where the index of a folder is kept."""
    import hashlib

    name = hashlib.sha256(os.fsencode(str(real_path(folder)))).hexdigest()[:16]
    return cache_dir / "places" / f"{name}.db"


# ---- segments -----------------------------------------------------------------------------------------


def _store(database: sqlite3.Connection, segment: _Segment) -> None:
    """Write what was read as a new segment; merge all if there are too many."""
    if not segment:
        return
    (last,) = database.execute("SELECT max(segment) FROM postings").fetchone()
    number = (last or 0) + 1
    rows = [(word, number, files.tobytes(), bytes(times)) for word, (files, times) in sorted(segment.items())]
    database.executemany("INSERT INTO postings VALUES (?, ?, ?, ?)", rows)
    segment.clear()
    (segments,) = database.execute("SELECT count(DISTINCT segment) FROM postings").fetchone()
    if segments > MAX_SEGMENTS:
        _merge(database, number + 1)


def _merge(database: sqlite3.Connection, number: int) -> None:
    """Make one segment of all, without dead files."""
    alive = {id for (id,) in database.execute("SELECT id FROM files")}
    merged: _Segment = defaultdict(lambda: (array("I"), bytearray()))
    for word, files, counts in database.execute("SELECT word, files, counts FROM postings"):
        for id, count in zip(array("I", files), counts, strict=True):
            if id in alive:
                merged[word][0].append(id)
                merged[word][1].append(count)
    database.execute("DELETE FROM postings")
    rows = [(word, number, files.tobytes(), bytes(times)) for word, (files, times) in sorted(merged.items())]
    database.executemany("INSERT INTO postings VALUES (?, ?, ?, ?)", rows)


# ---- scores -------------------------------------------------------------------------------------------


def _scores(
    database: sqlite3.Connection, known: Mapping[str, _Known], words: Mapping[str, float]
) -> dict[str, float]:
    postings = {word: _postings(database, word) for word in words}
    alive = {entry[0]: path for path, entry in known.items()}
    mean = sum(entry[3] for entry in known.values()) / max(1, len(known)) or 1.0
    scores: dict[int, float] = defaultdict(float)
    left = MAX_POSTINGS
    for word, (files, counts) in sorted(postings.items(), key=lambda pair: len(pair[1][0])):
        left -= len(files)
        if scores and (left < 0 or len(files) > MOST_SHARE * len(alive)):
            break  # what nearly every file has says nothing, and takes the longest
        held = [(id, count) for id, count in zip(files, counts, strict=True) if id in alive]
        rarity = math.log(1 + (len(alive) - len(held) + 0.5) / (len(held) + 0.5))
        weight = rarity * words[word] * (_K1 + 1)
        for id, count in held:
            norm = _K1 * (1 - _B + _B * known[alive[id]][3] / mean)
            scores[id] += weight * count / (count + norm)
    return {alive[id]: score for id, score in scores.items()}


def _postings(database: sqlite3.Connection, word: str) -> "tuple[array[int], bytes]":
    """Return which files have a word, those that are gone too, and how often each has it."""
    files, counts = array("I"), bytearray()
    for some, times in database.execute("SELECT files, counts FROM postings WHERE word = ?", (word,)):
        files.frombytes(some)
        counts += times
    return files, bytes(counts)
