"""The parts of a file that an edit may rewrite: functions, classes, methods, types, lines, the whole file.

Owns what a unit is and how a user's name or line numbers find one. Does not read syntax (`outline` lists the
units of a file), and does not choose among them: the caller does, with the user's word or with the model.
"""

from dataclasses import dataclass, replace
from difflib import get_close_matches

from vivace.agent.edits.apply.source import SourceFile
from vivace.errors import UnitNotFound


@dataclass(frozen=True)
class Unit:
    """Lines of a file that are rewritten together; in one yet to be written `last_line == first_line - 1`."""

    kind: str  # function | class | method | type | file | lines | new | part (of a long unit)
    name: str
    qualified_name: str  # Task.done
    first_line: int  # 1-based; decorators, attributes and doc comments included
    last_line: int  # inclusive
    signature: str = ""  # the declaration up to its body, on one line
    signature_first_line: int = 0  # where the declaration begins, below decorators and doc comments
    opening: str = ""  # the unit's text up to its body, exactly as in the file; may stop within a line
    indent: str = ""  # of the first line
    parent: str | None = None
    stub_lines: int = 0  # at its top: overload signatures, which are not written with the implementation

    @property
    def lines_text(self) -> str:
        """Return `12` or `12-20`, as a user would write it."""
        if self.last_line <= self.first_line:
            return str(self.first_line)
        return f"{self.first_line}-{self.last_line}"


def find_unit(units: list[Unit], name: str) -> Unit:
    """Return the unit of that name: `Task.done`, or `done` if only one has that name."""
    wanted = name.strip().removesuffix("()").replace("::", ".")
    for matching in (
        [unit for unit in units if unit.qualified_name == wanted],
        [unit for unit in units if f".{unit.qualified_name}".endswith(f".{wanted}")],
    ):
        if len(matching) == 1:
            return matching[0]
        if matching:
            places = ", ".join(f"{unit.qualified_name} (lines {unit.lines_text})" for unit in matching)
            example = f"Name the lines instead, such as :{matching[0].lines_text}."
            raise UnitNotFound(f"{name!r} is not one unit but {len(matching)}: {places}.", example)
    raise UnitNotFound(f"There is no function or class {name!r} in the file.", _nearest(units, wanted))


def unit_around(units: list[Unit], line: int) -> Unit | None:
    """Return the smallest function or class around a line, or None if the line is in none."""
    around = [unit for unit in units if unit.kind != "file" and unit.first_line <= line <= unit.last_line]
    return min(around, key=lambda unit: unit.last_line - unit.first_line, default=None)


def lines_unit(source: SourceFile, first_line: int, last_line: int) -> Unit:
    """Return the lines that the user named as a unit."""
    total = len(source.lines)
    if not 1 <= first_line <= last_line <= total:
        count = f"{total} line{'' if total == 1 else 's'}"
        raise UnitNotFound(f"Lines {first_line}-{last_line} are not in {source.path}: it has {count}.")
    name = f"line {first_line}" if first_line == last_line else f"lines {first_line}-{last_line}"
    lines = source.lines[first_line - 1 : last_line]
    indent = next((indent_of(line) for line in lines if line.strip()), "")
    return Unit("lines", name, name, first_line, last_line, indent=indent)


def implementation_of(source: SourceFile, unit: Unit) -> Unit:
    """Return the unit without the overload signatures above its implementation."""
    if not unit.stub_lines:
        return unit
    first = unit.first_line + unit.stub_lines
    stubs = source.text_of(unit.first_line, first - 1)
    return replace(unit, first_line=first, opening=unit.opening.removeprefix(stubs), stub_lines=0)


def file_unit(source: SourceFile) -> Unit:
    """Return the whole file as a unit. In an empty file it is the place before line 1."""
    return Unit("file", source.path.name, source.path.name, 1, len(source.lines))


def new_file_unit(source: SourceFile) -> Unit:
    """Return the content of a file that is yet to be made."""
    return Unit("new", source.path.name, source.path.name, 1, 0)


def new_unit_after(unit: Unit) -> Unit:
    """Return a place for something new, directly below `unit` and at its indentation."""
    name = f"new after {unit.qualified_name}"
    line = unit.last_line
    return Unit("new", name, name, line + 1, line, indent=unit.indent, parent=unit.parent)


def _nearest(units: list[Unit], wanted: str) -> str:
    if not units:
        return "Name lines instead, such as :10-20, or leave the name away."
    names = {name.lower(): unit for unit in units for name in (unit.name, unit.qualified_name)}
    near = [names[match] for match in get_close_matches(wanted.lower(), list(names), n=4, cutoff=0.6)]
    shown = list(dict.fromkeys(unit.qualified_name for unit in near))
    if shown:
        return "Did you mean " + " or ".join(shown[:3]) + "?"
    known = [unit.qualified_name for unit in units]
    return "It has " + ", ".join(known[:12]) + (" …" if len(known) > 12 else "") + "."


def indent_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
