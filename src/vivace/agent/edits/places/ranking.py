"""Which units of a repository a text is about, by words and names alone.

Owns the weights, tuned on half of the tasks of benchmarks/agent/places.py. Does not read files (`index`,
`unit_words`), and asks no model (`find.locate`).
"""

import contextlib
import heapq
import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vivace.agent.edits.apply.source import SourceFile
from vivace.agent.edits.find.units import Unit
from vivace.agent.edits.places.clues import Clues, Frame, is_beside, read_clues
from vivace.agent.edits.places.index import FileIndex
from vivace.agent.edits.places.unit_words import UnitWords, units_of_file, words_of_units
from vivace.errors import FileProblem

MAX_PARSED = 40  # files whose units are looked at
MAX_LISTED = 200  # files of a ranking
POINT_NATS = 0.6  # of a point of the ranking, against a model's score
MOST_UNIT_NATS, MOST_FILE_NATS = 20.0, 8.0  # of the best one: a long text has many points
NAME_TF, PARENT_TF, SIGNATURE_TF, DOC_TF, STRING_TF, BODY_TF = 4.0, 2.0, 2.0, 1.5, 1.5, 1.0
K1, B = 1.5, 0.4
FILE_SHARE = 0.5  # of a file's own score that its units get
NAMED_SCORE = 12.0  # a unit whose name stands in the text as code
PHRASE_SCORE = 6.0
FRAME_SCORE = 40.0
CLASS_NAME_SHARE = 0.5  # of what its name says for a class with methods: one of them is meant more often
CLASS_SHARE = 0.85  # of all that is said for it
TOP_SHARE = 0.5  # of what is said for the top of a file: imports have words of all that is below
CALLED_SHARE = 0.2  # of the score of a unit that calls this one
CALLING_SHARE = 0.1


@dataclass(frozen=True)
class Place:
    """A unit of a file, and how much speaks for it."""

    path: Path  # relative to the folder
    unit: Unit
    score: float


@dataclass(frozen=True)
class Ranking:
    places: tuple[Place, ...]  # the likeliest first
    files: tuple[tuple[Path, float], ...]  # the same for files


def rank_places(folder: Path, paths: Sequence[str], text: str, index: FileIndex | None = None) -> Ranking:
    """Return the units that the text may be about.

    Tests, examples and documentation come only where they are asked for. `paths` are relative to the folder.
    """
    clues = read_clues(text)
    allowed = _candidates(paths, clues)
    by_file = (index or FileIndex(folder)).search(allowed, clues.words).scores
    for path, more in _said_of_files(allowed, clues).items():
        by_file[path] = by_file.get(path, 0.0) + more
    best = heapq.nsmallest(MAX_PARSED, by_file, key=lambda path: (-by_file[path], path))
    best = list(dict.fromkeys([*best, *allowed[:MAX_PARSED]]))[:MAX_PARSED]  # a name may be all that is said
    units: list[tuple[str, UnitWords]] = []
    for path in best:
        with contextlib.suppress(FileProblem, OSError):
            units += [(path, each) for each in units_of_file(folder / path)]
    places = _places(units, by_file, clues)
    return Ranking(places, _files(places, by_file, allowed))


def nats_for_units(source: SourceFile, units: list[Unit], text: str) -> list[float]:
    """Return for each unit of one file how much the text speaks for it, to be added to a model's scores."""
    pairs = [(source.path.name, each) for each in words_of_units(source, units)]
    scores = _scores(pairs, read_clues(text))
    return _nats(scores, MOST_UNIT_NATS)


def nats_for_files(ranking: Ranking) -> list[float]:
    """Return the same for each file of a ranking."""
    return _nats([score for _, score in ranking.files], MOST_FILE_NATS)


def _nats(scores: Sequence[float], most: float) -> list[float]:
    """Return the scores in nats, fewer a point where a long text has many: a model is still heard."""
    point = min(POINT_NATS, most / max([*scores, 1e-9]))
    return [point * score for score in scores]


def _candidates(paths: Sequence[str], clues: Clues) -> list[str]:
    """Return the paths without what stands beside the code, unless that is asked for or all there is."""
    if clues.asks_for_beside:
        return list(paths)
    named = {name.rpartition("/")[2] for name in clues.files}
    kept = [path for path in paths if not is_beside(path) or path.rpartition("/")[2] in named]
    return kept or list(paths)


def _said_of_files(paths: Sequence[str], clues: Clues) -> dict[str, float]:
    """Return what names of files and modules in the text say for files."""
    scores: dict[str, float] = defaultdict(float)
    modules = clues.modules
    for path in paths if modules or clues.files else ():
        module = module_of(path)
        if module in modules:
            scores[path] += NAMED_SCORE * modules[module]
        for name in clues.files:
            if path == name or path.endswith(f"/{name}"):
                scores[path] += 2 * NAMED_SCORE
    return scores


def module_of(path: str) -> str:
    """Return the name by which code speaks of a file; "" for one that is known by its folder."""
    stem = path.rpartition("/")[2].partition(".")[0]
    return "" if stem in ("__init__", "index", "mod", "lib", "main") else stem


def _places(
    units: Sequence[tuple[str, UnitWords]], by_file: Mapping[str, float], clues: Clues
) -> tuple[Place, ...]:
    scores = _scores(units, clues)
    share = FILE_SHARE * (max(scores, default=0.0) or 1.0) / (max(by_file.values(), default=0.0) or 1.0)
    parsed = {path for path, _ in units}
    frames = [frame for frame in clues.frames if any(_is_same(path, frame.path) for path in parsed)]
    places = [
        Place(Path(path), each.unit, score + share * by_file.get(path, 0.0) + _framed(path, each, frames))
        for score, (path, each) in zip(scores, units, strict=True)
    ]
    return tuple(sorted(places, key=lambda place: -place.score))


def _scores(units: Sequence[tuple[str, UnitWords]], clues: Clues) -> list[float]:
    """Return what the text says for each unit: by its words, its name, what calls it and what it calls."""
    by_words = _bm25([each for _, each in units], clues.words)
    named = _named(units, clues)
    with_members = {(path, each.unit.parent) for path, each in units}
    worth = []
    for score, more, (path, each) in zip(by_words, named, units, strict=True):
        is_class = (path, each.unit.qualified_name) in with_members
        said = score + more * (CLASS_NAME_SHARE if is_class else 1.0) + _phrases(each, clues)
        worth.append(said * (CLASS_SHARE if is_class else TOP_SHARE if each.unit.kind == "lines" else 1.0))
    return _spread(units, worth)


def _files(
    places: Iterable[Place], by_file: Mapping[str, float], allowed: Sequence[str]
) -> tuple[tuple[Path, float], ...]:
    """Return the files by their best unit, then those that only share words, then all others."""
    best: dict[str, float] = {}
    for place in places:
        best.setdefault(str(place.path), place.score)
    rest = heapq.nsmallest(
        MAX_LISTED, (path for path in by_file if path not in best), key=lambda path: -by_file[path]
    )
    names = dict.fromkeys([*best, *rest, *allowed[:MAX_LISTED]])
    return tuple((Path(path), best.get(path, 0.0)) for path in list(names)[:MAX_LISTED])


def _bm25(units: Sequence[UnitWords], words: Mapping[str, float]) -> list[float]:
    spread: Counter[str] = Counter()
    for each in units:
        for word in words:
            if word in each.body or word in each.doc or word in each.strings or word in each.name:
                spread[word] += 1
    mean = sum(each.total for each in units) / max(1, len(units)) or 1.0
    rarity = {
        word: math.log(1 + (len(units) - count + 0.5) / (count + 0.5)) * words[word]
        for word, count in spread.items()
    }
    return [_score(each, rarity, mean) for each in units]


def _score(each: UnitWords, rarity: Mapping[str, float], mean: float) -> float:
    norm = K1 * (1 - B + B * each.total / mean)
    score = 0.0
    for word, weight in rarity.items():
        count = (
            BODY_TF * each.body[word]
            + DOC_TF * each.doc[word]
            + STRING_TF * each.strings[word]
            + SIGNATURE_TF * min(1, each.signature[word])
            + (NAME_TF if word in each.name else 0.0)
            + (PARENT_TF if word in each.parent else 0.0)
        )
        if count:
            score += weight * count * (K1 + 1) / (count + norm)
    return score


def _named(units: Sequence[tuple[str, UnitWords]], clues: Clues) -> list[float]:
    """Return what names in the text say for each unit; one that many units have says less."""
    holders: dict[str, list[int]] = defaultdict(list)
    for number, (_, each) in enumerate(units):
        holders[each.unit.name].append(number)
    scores = [0.0] * len(units)
    for name, weight in clues.names.items():
        parts = re.split(r"\W+", name)
        fits = holders.get(parts[-1], [])
        exact = [
            number
            for number in fits
            if len(parts) > 1
            and parts[-2] in (units[number][1].unit.parent or "", module_of(units[number][0]))
        ]
        for number in exact or fits:
            scores[number] += weight * NAMED_SCORE / len(exact or fits)
    return scores


def _phrases(each: UnitWords, clues: Clues) -> float:
    return PHRASE_SCORE * sum(phrase in each.text for phrase in clues.phrases if len(phrase) > 3)


def _framed(path: str, each: UnitWords, frames: Sequence[Frame]) -> float:
    """Return what a traceback says for this unit: most where the innermost frame of the repository is."""
    first, last = each.unit.first_line, each.unit.last_line
    for age, frame in enumerate(reversed(frames)):
        if each.unit.kind != "class" and first <= frame.line <= last and _is_same(path, frame.path):
            return FRAME_SCORE / (1 + age)
    return 0.0


def _is_same(path: str, framed: str) -> bool:
    framed = framed.replace(os.sep, "/")
    return framed == path or framed.endswith(f"/{path}") or path.endswith(f"/{framed}")


def _spread(units: Sequence[tuple[str, UnitWords]], worth: Sequence[float]) -> list[float]:
    """Return the scores with a share of what callers and callees have: a fault is often one call deeper."""
    holders: dict[str, list[int]] = defaultdict(list)
    for number, (_, each) in enumerate(units):
        if each.unit.kind != "class":
            holders[each.unit.name].append(number)
    called, calling = [0.0] * len(units), [0.0] * len(units)
    for number, (_, each) in enumerate(units):
        for name in each.calls:
            fits = holders.get(name, [])
            if not 0 < len(fits) <= 3:
                continue
            for other in fits:
                called[other] = max(called[other], worth[number] / len(fits))
                calling[number] = max(calling[number], worth[other] / len(fits))
    return [
        score + CALLED_SHARE * down + CALLING_SHARE * up
        for score, down, up in zip(worth, called, calling, strict=True)
    ]
