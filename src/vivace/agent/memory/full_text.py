"""SQLite's full-text search (FTS5): how a file of ours is opened, and how words become a query.

Owns that no text of a user's can make a query fail, and that a damaged file is set aside. Does not own what
is kept (`notes`, `transcript_index`).
"""

import contextlib
import re
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from vivace.errors import WriteProblem

MAX_WORDS = 40  # of a query; more say no more
BUSY_S = 10.0  # to wait for another process
_WORD = re.compile(r"[^\W_]+")
_COMMON_TEXT = """
a about after all also an and any are as at be been before but by can change code could do does file
for from function get give had has have he her how i if in into is it its just let like make me more
most my no not now of on one only or our out over please say see she should so some such tell than
that the their them then there these they this those to too up us use used using very was we were
what when where which who why will with would you your add fix write
"""
_COMMON = frozenset(_COMMON_TEXT.split())  # they say little of what a message is about


class Damaged(Exception):
    """The file is no database, or not a whole one."""


def any_of(text: str) -> str:
    """Return a query for what has any telling word of the text; "" if there is none."""
    words = [word for word in _words(text) if word.lower() not in _COMMON and len(word) > 1]
    return " OR ".join(f'"{word}"' for word in words[:MAX_WORDS])


def all_of(text: str) -> str:
    """Return a query for what has all words of the text, the last one perhaps unfinished; "" if none."""
    words = _words(text)[:MAX_WORDS]
    return " ".join(f'"{word}"' for word in words) + "*" if words else ""


def _words(text: str) -> list[str]:
    """Return the words, each once. They have letters and digits only: nothing in them is syntax."""
    return list(dict.fromkeys(_WORD.findall(text)))


@contextlib.contextmanager
def opened(file: Path, schema: str) -> Iterator[sqlite3.Connection]:
    """Open the file for one piece of work, made if it is not there. Raise `Damaged` or `WriteProblem`."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.touch(mode=0o600)
        connection = sqlite3.connect(file, timeout=BUSY_S)
    except (OSError, sqlite3.Error) as error:
        raise WriteProblem(f"{file} cannot be opened: {error}.", "Look at the folder's rights.") from error
    try:
        with connection:
            connection.executescript(schema)
            yield connection
    except sqlite3.OperationalError as error:
        raise WriteProblem(f"{file} cannot be used: {error}.", _hint(error)) from error
    except sqlite3.DatabaseError as error:
        raise Damaged(str(error)) from error
    finally:
        connection.close()


def _hint(error: sqlite3.Error) -> str:
    if "fts5" in str(error):
        return "The SQLite of this Python has no full-text search (FTS5): use another build of Python."
    return "Another process may use it, or the disk is full: try again."


def set_aside(file: Path) -> Path:
    """Move a damaged file and what belongs to it away. Return its new name."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    aside = file.with_name(f"{file.name}.damaged-{stamp}")
    with contextlib.suppress(FileNotFoundError):
        file.rename(aside)
    for suffix in ("-wal", "-shm", "-journal"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)
    return aside
