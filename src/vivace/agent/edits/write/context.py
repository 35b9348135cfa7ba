"""What the model must see beside the unit it rewrites, and no more: prefill is the enemy.

Owns the choice: the lines above the first unit, and the signatures of what the unit or the instruction
names. Does not own the prompt around it (`rewrite`).
"""

import re

from vivace.agent.edits.apply.source import SourceFile
from vivace.agent.edits.find.units import Unit

SIGNATURES = 30
TOP_LINES = 25
_NAME = re.compile(r"[^\W\d]\w*")


def surroundings(source: SourceFile, units: list[Unit], unit: Unit, instruction: str) -> str:
    """Return imports, constants and signatures, or nothing for a whole file and prose."""
    if unit.kind == "file" or not units:
        return ""
    named = set(_NAME.findall(source.text_of(unit.first_line, unit.last_line) + instruction))
    top = _top_lines(source, units, unit, named)
    rows = [_row(other) for other in _related(units, unit, named)[:SIGNATURES]]
    return "\n".join([*top, *([""] if top and rows else []), *rows])


def _top_lines(source: SourceFile, units: list[Unit], unit: Unit, named: set[str]) -> list[str]:
    """Return the lines above the first unit. Of many, only those that share a name with the unit."""
    end = min((other.first_line for other in units), default=unit.first_line) - 1
    lines = [line for line in source.lines[: min(end, unit.first_line - 1)] if line.strip()]
    if len(lines) > TOP_LINES:
        lines = [line for line in lines if named & set(_NAME.findall(line))][:TOP_LINES]
    return lines


def _related(units: list[Unit], unit: Unit, named: set[str]) -> list[Unit]:
    """Return the units that are named, and the classes and members around the unit, without its own parts."""
    family = unit.parent

    def is_related(other: Unit) -> bool:
        if unit.first_line <= other.first_line <= unit.last_line:
            return False
        in_family = family is not None and family in (other.qualified_name, other.parent)
        return in_family or other.name in named or other.parent in named

    return [other for other in units if is_related(other)]


def _row(unit: Unit) -> str:
    return f"{'    ' * unit.qualified_name.count('.')}{unit.signature.rstrip(' {:')} …"
