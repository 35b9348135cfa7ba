"""Which unit an instruction means: the model scores the candidates' names and generates nothing.

Owns the candidates, the outline the model sees, and the choice. A small model asked for one function likes
to rewrite the class or the file, so the smaller unit wins a near tie. Does not own the wire (`agent.model`).
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from vivace.agent.edits.apply.source import SourceFile
from vivace.agent.edits.find import evidence
from vivace.agent.edits.find.units import Unit, file_unit, new_unit_after
from vivace.agent.edits.places.clues import subjects
from vivace.agent.edits.places.ranking import nats_for_units
from vivace.agent.prompting import Message, begun_answer, read_prompt, user
from vivace.errors import UnitNotFound

WHOLE_FILE_LINES = 150  # more than this is never rewritten as one piece unasked
OUTLINE_UNITS = 40  # of a larger file only the units that share most words with the instruction
BEST_UNITS = 12  # where the words say as much as this: what the model reads is what an edit waits for
TELLING_NATS = 5.0
FAR_NATS = 8.0  # below the best; a model's scores never made up for more than 6
LEAST_UNITS = 5
SHORT_CHARS = 200  # of a request; what more is said may be about other code
SURE_NATS = 4.5  # by which words alone may decide: all 22 of such requests were right (benchmarks/results)
NEAR_TIE_NATS = 0.3
TOP_LINES = 60
SIGNATURE_CHARS = 100  # of a row of the outline


class Scorer(Protocol):
    async def score(self, messages: list[Message], candidates: list[str]) -> list[float]:
        """Return the log-probability of each candidate as the continuation of the begun answer."""
        ...


@dataclass(frozen=True)
class Candidate:
    label: str  # as the model would say it
    unit: Unit

    @property
    def lines(self) -> int:
        return self.unit.last_line - self.unit.first_line + 1


@dataclass(frozen=True)
class Ranked:
    unit: Unit
    nats: float  # how much speaks for it: the model's score and the instruction's words


def share_of_best(ranked: Sequence[Ranked]) -> float:
    """Return the share of all probability that the first one has."""
    return 1 / sum(math.exp(min(each.nats - ranked[0].nats, 50.0)) for each in ranked)


async def locate(scorer: Scorer, source: SourceFile, units: list[Unit], instruction: str) -> Unit:
    """Return the unit to rewrite, or the place for a new one."""
    return (await rank(scorer, source, units, instruction))[0].unit


async def rank(scorer: Scorer, source: SourceFile, units: list[Unit], instruction: str) -> list[Ranked]:
    """Return all that may be rewritten, or the place for something new, the likeliest first."""
    short = shortlist(source, units, instruction)
    found = candidates(source, short)
    if not found:
        raise UnitNotFound(
            f"{source.path} has {len(source.lines)} lines and no functions or classes to choose from.",
            f"Name the lines, such as {source.path}:1-40.",
        )
    may_add = bool(short) and evidence.may_add(instruction)
    if len(found) == 1 and not may_add:
        return [Ranked(found[0].unit, 0.0)]
    worth = _evidence(source, found, instruction)
    if not may_add and (sure := _sure(found, worth, instruction)):
        return [sure]
    messages = locate_messages(source, short, instruction)
    labels = [f"{candidate.label}`" for candidate in found] + (["new after"] if may_add else [])
    said = await scorer.score(messages, labels)
    scores = [nats + more for nats, more in zip(said, worth, strict=False)]
    best = best_candidate(found, scores)
    ranked = [Ranked(each.unit, nats) for each, nats in zip(found, scores, strict=False)]
    ranked.sort(key=lambda each: (each.unit is not best.unit, -each.nats))
    if may_add:
        new_nats = said[-1] + evidence.nats_for_new(instruction)
        if new_nats > ranked[0].nats:
            place = await place_for_new(scorer, messages, short, instruction)
            ranked.insert(0, Ranked(place, new_nats))
    return ranked


def surely_meant(source: SourceFile, units: list[Unit], instruction: str) -> Unit | None:
    """Return the unit that words alone decide for, or None where the model is to be asked."""
    found = candidates(source, shortlist(source, units, instruction))
    if not found or evidence.may_add(instruction):
        return None
    sure = _sure(found, _evidence(source, found, instruction), instruction)
    return sure.unit if sure else None


def _sure(found: Sequence[Candidate], worth: Sequence[float], instruction: str) -> Ranked | None:
    """Return the function that words alone decide for: the one that is far before all others.

    One whose whole name alone is said, `Cart.add`, or that alone is the subject of a short request, need only
    be the first. What the model would read for its choice is what the user would wait for.
    """
    order = sorted(range(len(found)), key=lambda index: -worth[index])
    first = found[order[0]]
    if first.unit.kind not in ("function", "method"):
        return None  # in a class one method is meant more often
    subject = subjects(instruction) if len(instruction) <= SHORT_CHARS else set()
    named = set(re.findall(r"(?<![\w.])[\w.]*\w", instruction))
    said = [each for each in found if each.unit.name in subject or each.label in named]
    is_said = said == [first] and ("." in first.label or first.unit.name in subject)
    if not is_said and len(order) > 1 and worth[order[0]] - worth[order[1]] < SURE_NATS:
        return None
    return Ranked(first.unit, worth[order[0]])


def _evidence(source: SourceFile, found: list[Candidate], instruction: str) -> list[float]:
    """Return what the words of the instruction add to the model's score of each candidate."""
    parts = [candidate.unit for candidate in found if candidate.unit.kind != "file"]
    nats = nats_for_units(source, parts, instruction)
    return nats + [evidence.nats_for_file(instruction)] * (len(found) - len(parts))


async def place_for_new(scorer: Scorer, messages: list[Message], units: list[Unit], instruction: str) -> Unit:
    """Return the place that the model scores best, among those that the instruction's words allow."""
    places = evidence.places_for_new(units, instruction)
    scores = await scorer.score(messages, [f"new after {unit.qualified_name}`" for unit in places])
    return new_unit_after(max(zip(scores, places, strict=True), key=lambda pair: pair[0])[1])


def candidates(source: SourceFile, units: list[Unit]) -> list[Candidate]:
    """Return what may be rewritten: each unit, the top of the file, and a short file as a whole."""
    seen: Counter[str] = Counter()
    found = []
    for unit in units:
        seen[unit.qualified_name] += 1
        again = f"#{seen[unit.qualified_name]}" if seen[unit.qualified_name] > 1 else ""
        found.append(Candidate(unit.qualified_name + again, unit))
    if top := top_unit(source, units):
        found.append(Candidate("top", top))
    if len(source.lines) <= WHOLE_FILE_LINES:
        found.append(Candidate("all", file_unit(source)))
    return found


def best_candidate(found: list[Candidate], scores: list[float]) -> Candidate:
    """Return the likeliest candidate; among those nearly as likely, the smallest."""
    pairs = list(zip(scores, found, strict=False))
    best = max(score for score, _ in pairs)
    near = [
        (candidate.lines, -score, candidate) for score, candidate in pairs if score >= best - NEAR_TIE_NATS
    ]
    return min(near, key=lambda triple: triple[:2])[2]


def locate_messages(source: SourceFile, units: list[Unit], instruction: str) -> list[Message]:
    asked = user(f"{source.path.name}\n{outline(source, units)}\n\nTask: {instruction}")
    return [*read_prompt("locate"), asked, begun_answer("`")]


def outline(source: SourceFile, units: list[Unit]) -> str:
    """Return the file's structure in few tokens: one line for each unit, indented by nesting."""
    rows = [f"{'    ' * unit.qualified_name.count('.')}{_signature(unit)}" for unit in units]
    if top := top_unit(source, units):
        rows.insert(0, f"top: {_summary(source.lines[: top.last_line])}")
    return "\n".join(rows)


def _signature(unit: Unit) -> str:
    signature = unit.signature.rstrip(" {:")
    return signature if len(signature) <= SIGNATURE_CHARS else f"{signature[:SIGNATURE_CHARS]} …"


def shortlist(source: SourceFile, units: list[Unit], instruction: str) -> list[Unit]:
    """Return the units that the model chooses among, in file order: a dozen where the words say much."""
    if len(units) <= BEST_UNITS:
        return units
    worth = nats_for_units(source, units, instruction)
    best = max(worth)
    most = BEST_UNITS if best >= TELLING_NATS else OUTLINE_UNITS
    order = sorted(range(len(units)), key=lambda index: worth[index], reverse=True)[:most]
    kept = order[:LEAST_UNITS] + [index for index in order[LEAST_UNITS:] if worth[index] >= best - FAR_NATS]
    return [units[index] for index in sorted(kept)]


def top_unit(source: SourceFile, units: list[Unit]) -> Unit | None:
    """Return the lines above the first unit as a unit: imports, constants."""
    last = min((unit.first_line for unit in units), default=1) - 1
    while last > 0 and not source.lines[last - 1].strip():
        last -= 1
    if not units or not 0 < last <= TOP_LINES:
        return None
    return Unit("lines", "top", "top", 1, last)


def _summary(lines: tuple[str, ...]) -> str:
    stripped = (line.strip() for line in lines)
    shown = [line for line in stripped if line and not line.startswith(('"""', "'''", "#", "//", "/*", "*"))]
    text = ", ".join(shown)
    return text if len(text) <= 200 else text[:200] + " …"
