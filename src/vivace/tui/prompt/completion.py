"""What could stand where the cursor is: commands after `/`, files after `@`, names of a file after `@file:`.

Owns which word is completed and the list of candidates. Reads folders and outlines, nothing else. Does not
show the list (`menu`).
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

MAX_SHOWN = 50
MAX_FILES = 20_000  # of a repository; more are not listed
_SKIPPED = {"node_modules", "__pycache__", "target", "dist", "build", "venv"}
_WORD = re.compile(r"(?:^|(?<=\s))@([^\s@]*)$")


@dataclass(frozen=True)
class Candidate:
    text: str  # what is put in place of the word
    label: str
    hint: str = ""


@dataclass(frozen=True)
class Completion:
    """`length` characters before the cursor are to be replaced by a candidate."""

    length: int
    candidates: tuple[Candidate, ...]


def complete(before: str, folder: Path, commands: Callable[[], Sequence[Candidate]]) -> Completion | None:
    """Return what could be meant by the end of `before`, the text up to the cursor; None for plain words."""
    if before.startswith("/") and "\n" not in before and " " not in before:
        fitting = [each for each in commands() if each.label.startswith(before)]
        is_whole = any(each.label == before for each in fitting)  # Enter sends it
        return Completion(len(before), tuple(fitting)) if fitting and not is_whole else None
    if not (word := _WORD.search(before)):
        return None
    typed = word[1]
    found = _symbols(folder, typed) if ":" in typed else _paths(folder, typed)
    candidates = tuple(found[:MAX_SHOWN])
    if not candidates or any(each.text == f"@{typed}" for each in found):  # whole: Enter sends it
        return None
    return Completion(len(typed) + 1, candidates)


def _paths(folder: Path, typed: str) -> list[Candidate]:
    """Return files whose path has the typed letters in order; those named like it come first."""
    wanted = typed.lower()
    scored = sorted(
        (score, path) for path in _files(folder) if (score := path_score(path, wanted)) is not None
    )
    return [Candidate(f"@{path}", path) for _, path in scored[:MAX_SHOWN]]


def path_score(path: str, wanted: str) -> tuple[int, int] | None:
    lower = path.lower()
    name = lower.rpartition("/")[2]
    if name.startswith(wanted) or lower.startswith(wanted):
        return 0, len(path)
    if wanted in name:
        return 1, len(path)
    if wanted in lower:
        return 2, len(path)
    letters = iter(lower)
    return (3, len(path)) if all(letter in letters for letter in wanted) else None


def _symbols(folder: Path, typed: str) -> list[Candidate]:
    path, _, name = typed.partition(":")
    try:
        stamp = (folder / path).stat().st_mtime_ns
        names = _outline(folder / path, stamp)
    except OSError:
        return []
    wanted = name.lower()
    return [Candidate(f"@{path}:{each}", each, kind) for each, kind in names if wanted in each.lower()]


@lru_cache(maxsize=32)
def _outline(path: Path, stamp: int) -> tuple[tuple[str, str], ...]:
    """Return the names of the file's units. `stamp` makes a changed file be read again."""
    from vivace.agent.edits.apply.source import read_source
    from vivace.agent.edits.find.languages import language_for
    from vivace.agent.edits.find.outline import list_units
    from vivace.errors import VivaceError

    del stamp
    try:
        units = list_units(read_source(path), language_for(path))
    except VivaceError:
        return ()
    return tuple((unit.qualified_name, f"{unit.kind}, lines {unit.lines_text}") for unit in units)


def _files(folder: Path) -> tuple[str, ...]:
    return _listed(folder, folder.stat().st_mtime_ns)


@lru_cache(maxsize=2)
def _listed(folder: Path, stamp: int) -> tuple[str, ...]:
    del stamp
    files = _walk(folder)
    return tuple(path for path, _ in zip(files, range(MAX_FILES), strict=False))


def _walk(folder: Path) -> Iterator[str]:
    """Yield the files below `folder`, without hidden folders and what tools have made."""
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED)
        inside = os.path.relpath(root, folder)
        for name in sorted(names):
            if not name.startswith("."):
                yield name if inside == "." else f"{inside}/{name}"
