"""What the model must see beside the unit it rewrites, and no more: prefill is the enemy.

Owns the choice: the code above the first unit, and the signatures of what the unit or the instruction names.
On two cores a token takes 25 ms. Does not own the prompt around it (`rewrite`).
"""

import re
from collections.abc import Iterator, Sequence

from vivace.agent.edits.apply.source import SourceFile
from vivace.agent.edits.find.units import Unit

SIGNATURES = 10  # of other units, in all
BESIDE = 4  # of them, those that nothing names: the nearest members around the unit
SIGNATURE_CHARS = 120
TOP_LINES = 25
_CONSTRUCTORS = ("__init__", "constructor")
_COMMENT = re.compile(r"\s*(?:#(?:\s|!/|#|:|-|$)|//|/\*|\*/|\*\s|\*$|<!--)")
_EXPORTS = re.compile(r"__all__(?:\s*:[^=]+)?\s*\+?=\s*([\[(])")
_CLOSING = {"[": "]", "(": ")"}
_DOCSTRING = re.compile(r"""\s*[rRuU]?(\"{3}|'{3})""")
_NAME = re.compile(r"[^\W\d]\w*")


def surroundings(source: SourceFile, units: list[Unit], unit: Unit, instruction: str) -> str:
    """Return imports, constants and signatures, or nothing for a whole file and prose."""
    if unit.kind == "file" or not units:
        return ""
    named = set(_NAME.findall(source.text_of(unit.first_line, unit.last_line) + instruction))
    top = _top_lines(source, units, unit, named)
    rows = [_row(other) for other in _related(units, unit, named)]
    return "\n".join([*top, *([""] if top and rows else []), *rows])


def _top_lines(source: SourceFile, units: list[Unit], unit: Unit, named: set[str]) -> list[str]:
    """Return the code above the first unit. Of much, only lines that share a name with the unit."""
    end = min((other.first_line for other in units), default=unit.first_line) - 1
    lines = list(_code_of(source.lines[: min(end, unit.first_line - 1)]))
    if len(lines) > TOP_LINES:
        lines = [line for line in lines if named & set(_NAME.findall(line))][:TOP_LINES]
    return lines


def _code_of(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines without comments, blank ones, the module's docstring and what it exports."""
    closing = ""
    has_begun = False
    for line in lines:
        opened = None if has_begun else _DOCSTRING.match(line)
        if closing:
            closing = "" if closing in line else closing
        elif exported := _EXPORTS.match(line):
            closing = "" if _CLOSING[exported[1]] in line[exported.end() :] else _CLOSING[exported[1]]
        elif opened:
            has_begun = True
            closing = "" if opened[1] in line[opened.end() :] else opened[1]
        elif line.strip() and not _COMMENT.match(line):
            has_begun = True
            yield line


def _related(units: list[Unit], unit: Unit, named: set[str]) -> list[Unit]:
    """Return the units that are named, the classes around them, and the nearest members, in file order."""
    family = unit.parent
    others = [each for each in units if not unit.first_line <= each.first_line <= unit.last_line]

    def distance(other: Unit) -> int:
        return abs(other.first_line - unit.first_line)

    def is_first(other: Unit) -> bool:
        is_constructor = other.name in _CONSTRUCTORS and (other.parent == family or other.parent in named)
        return other.qualified_name == family or other.name in named or bool(other.parent and is_constructor)

    first = sorted(filter(is_first, others), key=lambda each: (each.qualified_name != family, distance(each)))
    beside = [each for each in others if each not in first and each.parent]
    beside = [each for each in beside if each.parent == family or each.parent in named]
    room = min(BESIDE, max(0, SIGNATURES - len(first)))
    kept = [*first[:SIGNATURES], *sorted(beside, key=distance)[:room]]
    return sorted(kept, key=lambda each: each.first_line)


def _row(unit: Unit) -> str:
    signature = unit.signature.rstrip(" {:")
    if len(signature) > SIGNATURE_CHARS:
        signature = signature[:SIGNATURE_CHARS]
    return f"{'    ' * unit.qualified_name.count('.')}{signature} …"
