"""What an instruction says about several units at once, by its words alone.

Owns the patterns: a renaming, a list of names, "every function", "everywhere". Does not look into the code
(`uses`), and does not decide (`planning`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from vivace.agent.edits.find.units import Unit

_NAME = r"[A-Za-z_$][\w$]*"
_THING = (
    r"functions?|methods?|class(?:es)?|param(?:eter)?s?|arg(?:ument)?s?|fields?|attributes?|propert(?:y|ies)"
    r"|variables?|constants?|structs?|types?|interfaces?|enums?|keywords?|members?"
)
_RENAMING = re.compile(
    rf"\brenam(?:e|ing)\s+(?:(?:the|every|all|its|local)\s+)*(?:(?P<kind>{_THING})\s+)?"
    rf"[`'\"]?(?P<old>{_NAME}(?:\.{_NAME})*)(?:\(\))?[`'\"]?(?P<mid>[^.;\n]{{0,60}}?)\s+(?:to|into|as|->|→)\s+"
    rf"(?:be\s+)?[`'\"]?(?P<new>{_NAME})(?P<rest>[^;\n]*)",
    re.I,
)
_ANOTHER = re.compile(
    rf"(?:,|\band)\s+(?:the\s+)?(?:(?P<kind>{_THING})\s+)?[`'\"]?(?P<old>{_NAME})[`'\"]?\s+(?:to|->|→)\s+"
    rf"[`'\"]?(?P<new>{_NAME})",
    re.I,
)
_WITHIN = re.compile(
    rf"\b(?:of|in|from|inside)\s+(?:the\s+)?(?:(?:{_THING})\s+)?[`'\"]?(?P<name>{_NAME}(?:\.{_NAME})*)"
)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|_+")
_SPOKEN = re.compile(rf"`?({_NAME}(?:\.{_NAME})*)(?:\(\))?`?")
_JOINED = re.compile(
    r"\s*(?:,|and|or|&|/|,\s*and|as well as|plus)\s+(?:also\s+)?"
    r"(?:(?:in|to|from|by|for|of|the|both|methods?|functions?|class)\s+)*",
    re.I,
)
_REFERENCE = re.compile(  # what follows is spoken of, and not to be changed
    r"\b(?:calls?|calling|uses?|using|like|as|from|via|with|than|instead of|after|before|below|above"
    r"|next to|similar to|same as|in terms of|called|named)"
    r"\s+(?:(?:the|both|existing|helper|function|method)\s+)*`?$",
    re.I,
)
_PLACE = re.compile(r"\b(?:in|of|inside|within)\s+(?:(?:the|class|struct)\s+)*`?$", re.I)
_OBJECT = re.compile(r"\s+(?:the|an?|it|its|this|that|these|each|all|every|any)\b", re.I)  # behind a verb
_EVERY = re.compile(
    r"\b(?:all|every|each|both)(?:\s+of)?(?:\s+the)?\s+(?:[\w-]+\s+){0,2}?"
    r"(?P<kind>functions?|methods?|class(?:es)?|tests?|handlers?|getters?|setters?)\b"
    rf"(?:\s+(?:of|in|on)\s+(?:the\s+)?(?:class\s+)?`?(?P<of>{_NAME})`?)?",
    re.I,
)
_ACTORS = re.compile(  # "all the loaders": whatever is named `load_…`
    r"\b(?:(?P<pair>both)|all|every|each)(?:\s+of)?(?:\s+the)?\s+(?P<root>[a-z]{3,}?)(?:er|or)s?\b", re.I
)
_EVERYWHERE = re.compile(
    r"\b(?:everywhere|throughout|wherever"
    r"|(?:all|every|each)(?:\s+of)?(?:\s+the)?\s+(?:calls?|uses?|usages?|occurrences?|places?))\b",
    re.I,
)


_FILLER = re.compile(  # what says nothing beside a renaming
    r"\b(?:everywhere|throughout|please|in (?:this|the|both|all)(?: \w+)?|(?:in|and) [\w./-]+\.\w+"
    r"|(?:and|with) (?:all )?(?:its|their) (?:uses?|callers?|usages?))(?!\w)|[`'\".,!]",
    re.I,
)
LOCAL_KINDS = ("variable", "param", "arg", "keyword")
_MAKING = re.compile(
    r"\b(?:add|create|write|introduce|define|extract)\b[^.;]{0,40}?\b(?:function|helper|class|type|constant)\b",
    re.I,
)
_USING = re.compile(r"\b(?:and|then|,)\s+(?:let\b[^.;]{0,40}\b)?(?:use|call|apply)s?\b", re.I)
_TOP = re.compile(r"\btop of the (?:file|module)\b|\bmodule[- ]level\b|\bglobals?\b", re.I)


@dataclass(frozen=True)
class Renaming:
    old: str
    new: str
    kind: str  # "function", "parameter" …, as the user says it; "" if they do not
    within: str  # the function or class that it is a part of; "" if it is not said


@dataclass(frozen=True)
class Spoken:
    """A unit's name in the instruction."""

    unit: Unit
    start: int
    end: int
    is_code: bool  # it cannot be an English word
    is_reference: bool  # it is called, used or copied there, and not changed
    is_place: bool  # something in it is meant: "the method pop of Queue"


def renamings(instruction: str) -> list[Renaming]:
    """Return what is to be renamed, and to what."""
    found = _RENAMING.search(instruction)
    if found is None:
        return []
    *owner, old = found["old"].split(".")
    kind = found["kind"] or _kind_in(found["mid"])
    within = owner[-1] if owner else _within(found["mid"]) or _within(found["rest"])
    more = [
        Renaming(each["old"], each["new"], (each["kind"] or kind).lower(), within)
        for each in _ANOTHER.finditer(found["rest"])
    ]
    return [Renaming(old, found["new"], kind.lower(), within), *more]


def only_renames(instruction: str) -> bool:
    """Return whether the instruction asks for a renaming and nothing else."""
    found = _RENAMING.match(instruction.strip())
    if found is None:
        return False
    return not _FILLER.sub("", _ANOTHER.sub("", found["rest"])).strip()


def spoken_units(instruction: str, units: Sequence[Unit]) -> list[Spoken]:
    """Return the units whose names stand in the instruction, in its order."""
    by_name: dict[str, list[Unit]] = {}
    for unit in units:
        for name in {unit.name, unit.qualified_name}:
            by_name.setdefault(name, []).append(unit)
    found = []
    for match in _SPOKEN.finditer(instruction):
        meant = by_name.get(match[1], [])
        is_code = _is_code(match[1], match[0])
        is_verb = not is_code and match[1].islower() and _OBJECT.match(instruction, match.end())
        if len(meant) == 1 and not is_verb:
            is_reference = is_spoken_of(instruction, match.start())
            is_place = _PLACE.search(instruction[: match.start()]) is not None
            found.append(Spoken(meant[0], match.start(), match.end(), is_code, is_reference, is_place))
    return found


def is_spoken_of(instruction: str, at: int) -> bool:
    """Return whether what stands there is called, used or copied, and not to be changed."""
    return _REFERENCE.search(instruction[:at]) is not None


def listed_units(instruction: str, spoken: Sequence[Spoken]) -> list[Unit]:
    """Return the units that the instruction lists: "in load, save and `close`"."""
    runs: list[list[Spoken]] = []
    for each in spoken:
        if runs and _JOINED.fullmatch(instruction[runs[-1][-1].end : each.start]):
            runs[-1].append(each)
        else:
            runs.append([each])
    lists = [run for run in runs if len(run) > 1 and not run[0].is_reference]
    return list(dict.fromkeys(each.unit for run in lists for each in run))


def every_unit(instruction: str, units: Sequence[Unit]) -> list[Unit]:
    """Return the units that "every method of Task" or "all functions" means."""
    found = _EVERY.search(instruction)
    if found is None:
        return []
    kind, owner = found["kind"].lower(), found["of"]
    if owner and any(owner in (unit.name, unit.qualified_name) for unit in units):
        units = [unit for unit in units if unit.parent and unit.parent.rpartition(".")[2] == owner]
    if kind.startswith("class"):
        return [unit for unit in units if unit.kind in ("class", "type")]
    if kind.startswith("test"):
        return [unit for unit in units if unit.name.lower().startswith("test") and unit.kind != "class"]
    kinds = ("method",) if kind.startswith("method") else ("function", "method")
    return [unit for unit in units if unit.kind in kinds]


def units_of_actors(instruction: str, units: Sequence[Unit]) -> list[Unit]:
    """Return the functions that "all the loaders" or "both parsers" means, by how their names begin."""
    found = _ACTORS.search(instruction)
    if found is None:
        return []
    root = found["root"].lower()
    roots = {root, f"{root}e", root[:-1] if root[-2] == root[-1] else root}
    meant = [
        unit
        for unit in units
        if unit.kind in ("function", "method") and _WORD.findall(unit.name.lstrip("_"))[:1] != [unit.name]
        if _WORD.findall(unit.name.lstrip("_"))[0].lower() in roots
    ]
    return meant if len(meant) == 2 or (len(meant) > 2 and not found["pair"]) else []


def adds_and_uses(instruction: str) -> bool:
    """Return whether something new is to be made, and used in what there is."""
    return bool(_MAKING.search(instruction)) and bool(_USING.search(instruction))


def speaks_of_top(instruction: str) -> bool:
    """Return whether the instruction wants something at the top of the file."""
    return _TOP.search(instruction) is not None


def names_everywhere(instruction: str) -> list[str]:
    """Return the names whose uses are meant, where the instruction says "everywhere"."""
    if _EVERYWHERE.search(instruction) is None:
        return []
    spoken = [match for match in _SPOKEN.finditer(instruction) if _is_code(match[1], match[0])]
    return list(dict.fromkeys(match[1].rpartition(".")[2] for match in spoken))


def _is_code(name: str, said: str) -> bool:
    """Return whether this is a name and no English word: `load_all`, `loadAll`, `load()` or in ticks."""
    return "`" in said or "()" in said or "_" in name or re.search(r"[a-z][A-Z]|\w\.\w", name) is not None


def _kind_in(text: str) -> str:
    found = re.search(rf"\b(?:{_THING})\b", text, re.I)
    return found[0] if found else ""


def _within(text: str) -> str:
    found = _WITHIN.search(text)
    return found["name"].rpartition(".")[2] if found else ""
