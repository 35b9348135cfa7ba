"""The files of a repository, and which of them an instruction is about when the user named none.

Owns the listing of units by name, and the choice: the file that the text names, or the one whose best units
the words (`places.ranking`) and the model's scores speak for. Where none is clearly best it says which could
be meant (`PlaceUnclear`). Does not own which unit of the file is meant (`edits.find.locate`).
"""

import asyncio
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from vivace.agent.door import real_path
from vivace.agent.edits.apply.source import read_source
from vivace.agent.edits.find.evidence import words
from vivace.agent.edits.find.languages import language_for
from vivace.agent.edits.find.locate import SHORT_CHARS, Scorer
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.places.clues import is_beside, subjects
from vivace.agent.edits.places.index import FileIndex
from vivace.agent.edits.places.listing import all_paths, list_paths
from vivace.agent.edits.places.ranking import Place, Ranking, nats_for_files, rank_places
from vivace.agent.events.turn import FileChosen
from vivace.agent.prompting import begun_answer, read_prompt, user
from vivace.errors import FileProblem, PlaceUnclear, UsageError

MAX_FILES = 2000  # of a larger repository only those near the top
MAX_BYTES = 200_000  # a larger file is hardly written by hand
BEST_PLACES = 12  # whose files the model is shown, where the words say something
MAX_SCORED = 24  # files that it is shown where they say nothing
MAX_NAMES = 6  # units of each that it is shown
TELLING_SCORE = 10.0  # of the best place; below, the words say little
CLEAR_SHARE = 0.7  # a file is clear if no other has more than this of its score
LONG_SCORE = 50.0  # of the best place: the text is a report of several sentences
FAVOURED_PLACES = 2  # one of which a long text's place is, or the user is asked (benchmarks/results)
LEAST_SHARE = 0.5  # of all probability, below which the best file is not clearly best
ASKED_PLACES = 3
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,}")


@dataclass(frozen=True)
class Listed:
    """A file of the repository, and the names of its units."""

    path: Path
    names: tuple[str, ...]

    @property
    def words(self) -> set[str]:
        return words(str(self.path).replace("/", " ").replace("_", " "))


@dataclass(frozen=True)
class Choice:
    """The file that an instruction is about."""

    file: FileChosen
    favoured: tuple[str, ...] = ()  # the units that a long text's words speak for most, in any file


async def choose_file(
    scorer: Scorer, folder: Path, instruction: str, recent: Path | None, index: FileIndex | None = None
) -> FileChosen:
    """Return the file that the instruction is about; `recent` is the one that was spoken of last, if any.

    Raise `UsageError` if the folder has no file that could be meant, `PlaceUnclear` if several could be.
    """
    return (await choose_place(scorer, folder, instruction, recent, index)).file


async def choose_place(
    scorer: Scorer, folder: Path, instruction: str, recent: Path | None, index: FileIndex | None = None
) -> Choice:
    """Return the same with the units that the words favour."""
    found = await asyncio.to_thread(file_by_words, folder, instruction, recent, index)
    if isinstance(found, Choice):
        return found
    path = await _best(scorer, found, instruction)
    return Choice(FileChosen(str(folder / path), "model"), _favoured(found, path, instruction))


def file_by_words(
    folder: Path, instruction: str, recent: Path | None, index: FileIndex | None = None
) -> Choice | Ranking:
    """Return the file that no model has to choose, or else all that is known of the files."""
    paths = list_paths(folder)
    named = files_named_in(instruction, paths)
    if len(named) == 1:
        return Choice(FileChosen(str(folder / named[0]), "name"))
    ranking = rank_places(folder, paths, instruction, index)
    if len(named) > 1 and len({path.name for path in named}) == 1:  # one bare name
        raise _unclear(_first_of_each([place for place in ranking.places if place.path in named]))
    holders = _holders(instruction, ranking)
    if recent and recent.is_file() and (not holders or recent in [folder / each for each in holders]):
        return Choice(FileChosen(str(recent), "recent"))
    if not paths:
        raise UsageError(
            f"There is no source file in {folder} that could be changed.", "Name one: @path, or @path:name."
        )
    clear = _clear(ranking, holders)
    return (
        Choice(FileChosen(str(folder / clear), "name"), _favoured(ranking, clear, instruction))
        if clear
        else ranking
    )


def _favoured(ranking: Ranking, path: Path, instruction: str) -> tuple[str, ...]:
    """Return the names of the best places of all, those of other files as ""; nothing for a short text."""
    is_long = len(instruction) > SHORT_CHARS and bool(ranking.places)
    if not is_long or ranking.places[0].score < LONG_SCORE:
        return ()
    best = ranking.places[:FAVOURED_PLACES]
    return tuple(place.unit.qualified_name if place.path == path else "" for place in best)


def _clear(ranking: Ranking, holders: Sequence[Path]) -> Path | None:
    """Return the file that words and names alone speak for, if no other is near."""
    best = _first_of_each(ranking.places)
    if not best:
        return ranking.files[0][0] if len(ranking.files) == 1 else None
    first = best[0]
    if [first.path] == list(holders) or len(ranking.files) == 1:
        return first.path
    second = best[1].score if len(best) > 1 else 0.0
    return first.path if first.score >= TELLING_SCORE and second <= CLEAR_SHARE * first.score else None


def _first_of_each(places: Sequence[Place]) -> list[Place]:
    """Return the best place of each file."""
    best: dict[Path, Place] = {}
    for place in places:
        best.setdefault(place.path, place)
    return list(best.values())


def list_files(folder: Path) -> list[Listed]:
    """Return the source files below the folder, each with the names of its units."""
    listed = (list_file(folder, Path(path)) for path in all_paths(folder)[:MAX_FILES])
    return [each for each in listed if each is not None]


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


def files_named_in(text: str, paths: Sequence[str]) -> list[Path]:
    """Return the files whose path stands in the text, or else those whose name does.

    Of several with one name those that are no tests or examples count, if there are any.
    """
    spoken = set(re.findall(r"[\w./-]+", text))
    spoken |= {word.rstrip(".") for word in spoken}
    by_path = [Path(path) for path in paths if path in spoken]
    by_name = [path for path in paths if path.rpartition("/")[2] in spoken]
    return (
        by_path or [Path(path) for path in by_name if not is_beside(path)] or [Path(path) for path in by_name]
    )


def _holders(instruction: str, ranking: Ranking) -> list[Path]:
    """Return the files that have a unit whose name stands in the instruction, and looks like code."""
    spoken = {word for word in _IDENTIFIER.findall(instruction) if looks_like_code(word, instruction)}
    spoken |= subjects(instruction)
    held = [place.path for place in ranking.places if {place.unit.name, place.unit.qualified_name} & spoken]
    return list(dict.fromkeys(held))


def looks_like_code(word: str, instruction: str) -> bool:
    """Return whether a word is a name rather than English: `read_file`, `readFile`, `read()` or in ticks."""
    is_cased = "_" in word or re.search(r"[a-z][A-Z]", word) is not None or word[0].isupper()
    return is_cased or re.search(rf"`[\w.]*{word}|\b{word}\(", instruction) is not None


async def _best(scorer: Scorer, ranking: Ranking, instruction: str) -> Path:
    """Return the file that the model and the words speak for. Raise `PlaceUnclear` if none is clear."""
    ranked = await rank_files(scorer, ranking, instruction)
    if ranked[0].share < LEAST_SHARE:
        order = {each.path: number for number, each in enumerate(ranked)}
        places = [place for place in _first_of_each(ranking.places) if place.path in order]
        if len(places) > 1:
            raise _unclear(sorted(places, key=lambda place: order[place.path]))
    return ranked[0].path


@dataclass(frozen=True)
class RankedFile:
    path: Path
    share: float  # of all probability


async def rank_files(scorer: Scorer, ranking: Ranking, instruction: str) -> list[RankedFile]:
    """Return the files of the best places, the likeliest first: by the words and the model's scores."""
    is_telling = bool(ranking.places) and ranking.places[0].score >= TELLING_SCORE
    best = {place.path for place in ranking.places[:BEST_PLACES]}
    listed = [pair[0] for pair in ranking.files]
    shown = [path for path in listed if path in best] if is_telling else listed[:MAX_SCORED]
    worth = dict(zip(listed, nats_for_files(ranking), strict=True))
    if len(shown) == 1:
        return [RankedFile(shown[0], 1.0)]
    lines = "\n".join(_line(path, ranking) for path in sorted(shown))
    asked = user(f"{lines}\n\nTask: {instruction}")
    labels = [f"{path}`" for path in shown]
    said = await scorer.score([*read_prompt("choose_file"), asked, begun_answer("`")], labels)
    totals = [nats + worth[path] for nats, path in zip(said, shown, strict=True)]
    likely = [math.exp(total - max(totals)) for total in totals]
    ranked = [RankedFile(path, each / sum(likely)) for path, each in zip(shown, likely, strict=True)]
    return sorted(ranked, key=lambda each: -each.share)


def _line(path: Path, ranking: Ranking) -> str:
    """Return a file as the model reads it: with the units that the words speak for."""
    names = [place.unit.qualified_name for place in ranking.places if place.path == path][:MAX_NAMES]
    return f"{path}: {', '.join(names)}" if names else str(path)


def _unclear(places: Sequence[Place]) -> PlaceUnclear:
    return PlaceUnclear([_mention(place, places) for place in places[:ASKED_PLACES]])


def _mention(place: Place, places: Sequence[Place]) -> str:
    """Return a place as a user would mention it: by its name, or by its lines where another has that name."""
    name = place.unit.qualified_name
    same = [each for each in places if (each.path, each.unit.qualified_name) == (place.path, name)]
    return f"{place.path}:{name if len(same) == 1 else place.unit.lines_text}"
