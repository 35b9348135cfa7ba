"""What phrases of the instruction ask for, before any model is asked: the whole file, or something new.

Owns these phrases, and how text is split into words. In nats, so that `locate` can add it to the model's
scores. Does not own what single words and names say for a unit (`places.ranking`).
"""

import re

from vivace.agent.edits.find.request import request_in
from vivace.agent.edits.find.units import Unit

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
WORD = re.compile(r"[a-z]+|[A-Z]+(?![a-z])|[A-Z][a-z]+|[^\W\d_a-zA-Z]+")
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


def words(text: str) -> set[str]:
    """Split text into lower-case words without endings. Split snake_case and camelCase, too."""
    return {stem(word.lower()) for word in WORD.findall(text) if len(word) > 2}


def stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word
