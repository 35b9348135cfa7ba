"""What the instruction's own words say about the unit it means, before any model is asked.

Owns the counting: words that the instruction shares with a unit's own lines, rare ones weighing more, and a
few phrases that ask for the whole file or for something new. In nats, so that `locate` can add it to the
model's scores: benchmarks/agent/locate.py shows what both find together, and each alone.
"""

import math
import re
from collections import Counter

from vivace.agent.edits.apply.source import SourceFile
from vivace.agent.edits.find.request import request_in
from vivace.agent.edits.find.units import Unit

SHARED_NATS = 0.7  # times ln(units / units with that word)
NAMED_NATS = 0.7  # a word of the unit's own name
FILE_NATS = 3.0  # "everywhere", "all functions"
NEW_NATS = 8.0  # "add a method": as good as certain
_THINGS = (
    r"(function|method|class|property|test|helper|struct|enum|type(?! (?:hint|annotation))|trait|interface"
    r"|subclass|constructor)"
)
_ADDING = re.compile(
    r"(?<![\w.])(add|create|write|implement|introduce|define|new|extract|generate|insert|make an?)\b(?!\()",
    re.I,  # a method `Tasks.add` or `add()` adds nothing
)
_NEW = re.compile(
    rf"\b(add|create|write|implement|define)\b (an?|another|one|two)? ?(new )?{_THINGS}\b", re.I
)
# What is added to code that is there: "add type hints", "add a parameter".
_ADDED_INSIDE = re.compile(
    r"(?:\s+[\w'`-]+){0,3}?\s+(?:(?:type|return) (?:hint|annotation|type)s?|hints?|annotations?|docstrings?"
    r"|documentation|comments?|logging|log (?:line|message|statement)s?|(?:error|exception) handling"
    r"|validation|checks?|guards?|param(?:eter)?s?|arg(?:ument)?s?|defaults?|fields?|attributes?|imports?|decorators?"
    r"|assert(?:ion)?s?|conditions?|branch(?:es)?|cases?|statements?|lines?)\b"
    rf"(?!\s+{_THINGS}\b)",
    re.I,
)
_MEMBER = re.compile(r"\b(method|property|constructor|getter|setter)\b", re.I)
_TOP_LEVEL = re.compile(r"\b(function|class|struct|enum|trait|interface|subclass)\b", re.I)
_ALL = r"(all|every|each)( the)? (function|method|class)\w*"
_WHOLE = re.compile(rf"\b(everywhere|throughout|everything|(whole|entire) file|{_ALL})\b", re.I)
_WORD = re.compile(r"[a-z]+|[A-Z]+(?![a-z])|[A-Z][a-z]+|[^\W\d_a-zA-Z]+")
_ENDINGS = ("ing", "ies", "ed", "es", "s", "e")


def may_add(instruction: str) -> bool:
    """Return whether the instruction can mean something that does not exist yet."""
    asked = request_in(instruction)
    if _NEW.search(asked):
        return True
    return any(not _ADDED_INSIDE.match(asked, found.end()) for found in _ADDING.finditer(asked))


def nats_for_new(instruction: str) -> float:
    return NEW_NATS if _NEW.search(request_in(instruction)) else 0.0


def places_for_new(units: list[Unit], instruction: str) -> list[Unit]:
    """Return the units that something new may follow. A function does not follow a method."""
    asked = request_in(instruction)
    if _MEMBER.search(asked):
        return [unit for unit in units if unit.parent] or units
    if _TOP_LEVEL.search(asked):
        return [unit for unit in units if not unit.parent] or units
    return units


def nats_for_file(instruction: str) -> float:
    return FILE_NATS if _WHOLE.search(request_in(instruction)) else 0.0


def nats_for_units(source: SourceFile, units: list[Unit], instruction: str) -> list[float]:
    """Return for each unit how much the instruction's words speak for it, in nats."""
    wanted = words(instruction)
    shared = [words(text) & wanted for text in _own_texts(source, units)]
    spread = Counter(word for found in shared for word in found)

    def nats(unit: Unit, found: set[str]) -> float:
        rare = sum(math.log((len(units) + 1) / spread[word]) for word in found)
        return SHARED_NATS * rare + NAMED_NATS * len(words(unit.qualified_name) & wanted)

    return [nats(unit, found) for unit, found in zip(units, shared, strict=True)]


def words(text: str) -> set[str]:
    """Split text into lower-case words without endings. Split snake_case and camelCase, too."""
    return {_stem(word.lower()) for word in _WORD.findall(text) if len(word) > 2}


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def _own_texts(source: SourceFile, units: list[Unit]) -> list[str]:
    """Return each unit's text without the units inside it: a class does not get its methods' words."""
    owner: dict[int, int] = {}
    for index, unit in enumerate(units):  # file order: what is inside comes later and wins
        owner.update(dict.fromkeys(range(unit.first_line, unit.last_line + 1), index))
    texts: list[list[str]] = [[] for _ in units]
    for line, index in owner.items():
        texts[index].append(source.lines[line - 1])
    return ["\n".join(lines) for lines in texts]
