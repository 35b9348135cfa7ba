"""The files of a repository, and which of them an instruction is about when the user named none.

Owns the listing and the choice: a file whose name or unit's name stands in the instruction, or else the one
whose name the model scores best. Does not own which unit of the file is meant (`edits.find.locate`).
"""

import asyncio
import math
import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from vivace.agent.door import real_path
from vivace.agent.edits.apply.source import read_source
from vivace.agent.edits.find.evidence import words
from vivace.agent.edits.find.languages import language_for
from vivace.agent.edits.find.locate import Scorer
from vivace.agent.edits.find.outline import list_units
from vivace.agent.git import git_files
from vivace.agent.prompting import begun_answer, read_prompt, user
from vivace.agent.turn_events import FileChosen
from vivace.errors import FileProblem, UsageError

MAX_FILES = 2000  # of a larger repository only those that git lists first
LISTING_S = 10.0  # for Git to list them
MAX_BYTES = 200_000  # a larger file is hardly written by hand
MAX_SCORED = 24  # files that the model is shown
MAX_NAMES = 12  # units of each that it is shown
SKIPPED = {"node_modules", "__pycache__", "venv", "build", "dist", "target", "vendor"}
NAMED_NATS = 0.7  # a word of the path, times ln(files / files with that word)
UNIT_NATS = 0.5  # the same for a word of a unit's name
TEST_NATS = -2.0  # a test, if the instruction does not speak of tests
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,}")


@dataclass(frozen=True)
class Listed:
    """A file of the repository, and the names of its units."""

    path: Path
    names: tuple[str, ...]

    @property
    def words(self) -> set[str]:
        return words(str(self.path).replace("/", " ").replace("_", " "))

    @property
    def unit_words(self) -> set[str]:
        return words(" ".join(self.names))


async def choose_file(scorer: Scorer, folder: Path, instruction: str, recent: Path | None) -> FileChosen:
    """Return the file that the instruction is about; `recent` is the one that was spoken of last, if any.

    Raise `UsageError` if the folder has no file that could be meant.
    """
    listed = await asyncio.to_thread(list_files, folder)
    if named := _named_in(instruction, listed):
        return FileChosen(folder / named, "name")
    holders = _holders(instruction, listed)
    if recent and _exists(recent) and (not holders or recent in [folder / each for each in holders]):
        return FileChosen(recent, "recent")
    if not listed:
        raise UsageError(
            f"There is no source file in {folder} that could be changed.", "Name one: @path, or @path:name."
        )
    if len(holders) == 1:
        return FileChosen(folder / holders[0], "name")
    return FileChosen(folder / await _best(scorer, listed, instruction), "model")


def _exists(path: Path) -> bool:
    return path.is_file()


def list_files(folder: Path) -> list[Listed]:
    """Return the source files below the folder, each with the names of its units."""
    listed = (list_file(folder, path) for path in _paths(folder))
    return [each for each in listed if each is not None]


def list_paths(folder: Path) -> list[Path]:
    """Return the paths of all files below the folder, relative to it, those near the top first."""
    return _paths(folder)


def list_file(folder: Path, path: Path) -> Listed | None:
    """Return one file with the names of its units, or None if it is no source file that can be read."""
    file = folder / path
    try:
        if file.is_symlink() and not real_path(file).is_relative_to(real_path(folder)):
            return None  # nobody has named it, so it is not followed out of the folder
        state = file.stat()
        if language_for(path) is None or state.st_size > MAX_BYTES:
            return None
        return Listed(path, _names(file, state.st_mtime_ns, state.st_size))
    except (OSError, FileProblem):
        return None


@lru_cache(maxsize=2 * MAX_FILES)
def _names(file: Path, mtime_ns: int, size_bytes: int) -> tuple[str, ...]:
    """Return the names of a file's units. It is read again when it has changed."""
    del mtime_ns, size_bytes
    return tuple(unit.qualified_name for unit in list_units(read_source(file), language_for(file)))


def _paths(folder: Path) -> list[Path]:
    """Return paths relative to the folder: what git knows or would, or else all that is not hidden."""
    listed = git_files(folder, LISTING_S)
    if listed is not None:
        paths = [Path(name) for name in listed]
    else:
        paths = [path.relative_to(folder) for path in _walk(folder)]
    return sorted(paths, key=lambda path: (len(path.parts), path))[:MAX_FILES]


def _walk(folder: Path) -> list[Path]:
    found: list[Path] = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name in SKIPPED or path.is_symlink():
            continue
        if path.is_dir():
            found += _walk(path) if len(found) < MAX_FILES else []
        elif path.is_file():
            found.append(path)
    return found


def _named_in(instruction: str, listed: list[Listed]) -> Path | None:
    """Return the one file whose path or name stands in the instruction."""
    named = files_named_in(instruction, listed)
    return named[0] if len(named) == 1 else None


def files_named_in(text: str, listed: list[Listed]) -> list[Path]:
    """Return the files whose path stands in the text, or else those whose name does."""
    spoken = set(re.findall(r"[\w./-]+", text))
    spoken |= {word.rstrip(".") for word in spoken}
    by_path = [each.path for each in listed if str(each.path) in spoken]
    return by_path or [each.path for each in listed if each.path.name in spoken]


def _holders(instruction: str, listed: list[Listed]) -> list[Path]:
    """Return the files that have a unit whose name stands in the instruction, and looks like code."""
    spoken = {word for word in _IDENTIFIER.findall(instruction) if looks_like_code(word, instruction)}
    return [
        each.path
        for each in listed
        if any(name in spoken or name.rpartition(".")[2] in spoken for name in each.names)
    ]


def looks_like_code(word: str, instruction: str) -> bool:
    """Return whether a word is a name rather than English: `read_file`, `readFile`, `read()` or in ticks."""
    is_cased = "_" in word or re.search(r"[a-z][A-Z]", word) is not None or word[0].isupper()
    return is_cased or re.search(rf"`[\w.]*{word}|\b{word}\(", instruction) is not None


async def _best(scorer: Scorer, listed: list[Listed], instruction: str) -> Path:
    """Return the file that the model scores best, together with the words that it shares."""
    worth = _evidence(listed, instruction)
    ranked = sorted(range(len(listed)), key=lambda index: worth[index], reverse=True)[:MAX_SCORED]
    if len(ranked) == 1:
        return listed[ranked[0]].path
    shown = "\n".join(_line(listed[index]) for index in sorted(ranked))
    asked = user(f"{shown}\n\nTask: {instruction}")
    labels = [f"{listed[index].path}`" for index in ranked]
    said = await scorer.score([*read_prompt("choose_file"), asked, begun_answer("`")], labels)
    totals = [nats + worth[index] for nats, index in zip(said, ranked, strict=True)]
    return listed[ranked[totals.index(max(totals))]].path


def _line(each: Listed) -> str:
    names = [name for name in each.names if "." not in name][:MAX_NAMES]
    return f"{each.path}: {', '.join(names)}" if names else str(each.path)


def _evidence(listed: list[Listed], instruction: str) -> list[float]:
    """Return how much the instruction's words speak for each file, in nats; rare words weigh more."""
    wanted = words(instruction)
    spread = Counter(word for each in listed for word in (each.words | each.unit_words) & wanted)

    def nats(each: Listed) -> float:
        rarity = {word: math.log((len(listed) + 1) / count) for word, count in spread.items()}
        named = sum(rarity[word] for word in each.words & wanted)
        units = sum(rarity[word] for word in each.unit_words & wanted)
        is_test = "test" in each.words and "test" not in wanted
        return NAMED_NATS * named + UNIT_NATS * units + (TEST_NATS if is_test else 0.0)

    return [nats(each) for each in listed]
