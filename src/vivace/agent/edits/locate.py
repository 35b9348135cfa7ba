"""Which unit an instruction means: the model scores the candidates' names and generates nothing.

Owns the candidates, the outline the model sees, and the choice. A small model asked for one function likes
to rewrite the class or the file, so the smaller unit wins a near tie. Does not own the wire (`agent.model`).
"""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from vivace.agent.edits.source import SourceFile
from vivace.agent.edits.units import Unit, file_unit, new_unit_after
from vivace.agent.prompting import Message, begun_answer, read_prompt, user
from vivace.errors import UnitNotFound

WHOLE_FILE_LINES = 150  # more than this is never rewritten as one piece unasked
OUTLINE_UNITS = 40  # of a larger file only the units that share most words with the instruction
NEAR_TIE_NATS = 0.7
TOP_LINES = 60
_ADDING = re.compile(
    r"\b(add|create|write|implement|introduce|define|new|extract|generate|insert|make a)\b", re.I
)
_WORD = re.compile(r"[a-z]+|[A-Z]+(?![a-z])|[A-Z][a-z]+|[^\W\d_a-zA-Z]+")


class Scorer(Protocol):
    async def score(self, messages: list[Message], candidates: list[str]) -> list[float]:
        """Log-probability of each candidate as the continuation of the begun answer."""
        ...


@dataclass(frozen=True)
class Candidate:
    label: str  # as the model would say it
    unit: Unit

    @property
    def lines(self) -> int:
        return self.unit.last_line - self.unit.first_line + 1


async def locate(scorer: Scorer, source: SourceFile, units: list[Unit], instruction: str) -> Unit:
    """The unit to rewrite, or the place for a new one."""
    short = shortlist(source, units, instruction)
    found = candidates(source, short)
    if not found:
        raise UnitNotFound(
            f"{source.path} has {len(source.lines)} lines and no functions or classes to choose from.",
            f"Name the lines, such as {source.path}:1-40.",
        )
    may_add = bool(short) and _ADDING.search(instruction) is not None
    if len(found) == 1 and not may_add:
        return found[0].unit
    messages = locate_messages(source, short, instruction)
    labels = [f"{candidate.label}`" for candidate in found] + (["new after"] if may_add else [])
    scores = await scorer.score(messages, labels)
    best = choose(found, scores)
    if may_add and scores[-1] > scores[found.index(best)]:
        return await _place_for_new(scorer, messages, short)
    return best.unit


async def _place_for_new(scorer: Scorer, messages: list[Message], units: list[Unit]) -> Unit:
    scores = await scorer.score(messages, [f"new after {unit.qualified_name}`" for unit in units])
    return new_unit_after(max(zip(scores, units, strict=True), key=lambda pair: pair[0])[1])


def candidates(source: SourceFile, units: list[Unit]) -> list[Candidate]:
    """What may be rewritten: each unit, the top of the file, and the file itself where it is short."""
    seen: Counter[str] = Counter()
    found = []
    for unit in units:
        seen[unit.qualified_name] += 1
        again = f"#{seen[unit.qualified_name]}" if seen[unit.qualified_name] > 1 else ""
        found.append(Candidate(unit.qualified_name + again, unit))
    if top := _top(source, units):
        found.append(Candidate("top", top))
    if len(source.lines) <= WHOLE_FILE_LINES:
        found.append(Candidate("all", file_unit(source)))
    return found


def choose(found: list[Candidate], scores: list[float]) -> Candidate:
    """The likeliest; among those nearly as likely, the smallest."""
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
    """The file's shape in few tokens: one line a unit, indented as it is nested."""
    rows = [f"{'    ' * unit.qualified_name.count('.')}{unit.signature.rstrip(' {:')}" for unit in units]
    if top := _top(source, units):
        rows.insert(0, f"top: {_summary(source.lines[: top.last_line])}")
    return "\n".join(rows)


def shortlist(source: SourceFile, units: list[Unit], instruction: str) -> list[Unit]:
    """At most OUTLINE_UNITS units, in file order: those that share the rarest words with the instruction."""
    if len(units) <= OUTLINE_UNITS:
        return units
    wanted = words(instruction)
    texts = [words(source.text_of(unit.first_line, unit.last_line)) for unit in units]
    spread = Counter(word for text in texts for word in text & wanted)

    def worth(index: int) -> float:
        named = words(units[index].qualified_name) & wanted
        return sum(1 / spread[word] for word in texts[index] & wanted) + 2 * len(named)

    kept = sorted(range(len(units)), key=worth, reverse=True)[:OUTLINE_UNITS]
    return [units[index] for index in sorted(kept)]


def words(text: str) -> set[str]:
    """Lower-case words of a text, with snake_case and camelCase taken apart."""
    return {word.lower() for word in _WORD.findall(text) if len(word) > 2}


def _top(source: SourceFile, units: list[Unit]) -> Unit | None:
    """The lines above the first unit: imports, constants."""
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
