"""The model's answer made fit for its place: indentation, blank lines, and nothing beyond the unit.

Owns the repairs that need no judgement. A unit may become several definitions only if the further ones are
new: a helper that was asked for stays, a definition that the file already has is dropped, since the model
merely went on copying. Does not decide whether the result is good: that is `verify`.
"""

import ast
import re
import warnings
from collections.abc import Callable

from vivace.agent.edits.apply.source import SourceFile, splice, split_lines
from vivace.agent.edits.find.languages import CPP, JAVA, PYTHON, Language
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.units import Unit, indent_of

_DEFINITIONS = ("function", "class", "method", "type")
_MAX_DECLARATION_LINES = 20
_FENCE = re.compile(r"\s*`{3,}\w*\s*")
_CLOSERS = ("}", ")", "]", "end", "fi", "done")


def tidy(
    source: SourceFile, language: Language | None, unit: Unit, new_text: str, *, may_add: bool = True
) -> str:
    """Return `new_text` as it should replace `unit`: every line closed by "\\n", empty if nothing is left.

    `may_add`: keep definitions beside the unit that the file does not have yet.
    """
    old = list(source.lines[unit.first_line - 1 : unit.last_line])
    lines = _without_fences(list(split_lines(new_text)[0]), old)
    lines = _with_blank_edges_of(old, lines)
    if unit.kind != "file":
        lines = _with_tabs_of(_neighbourhood(source, unit), lines)
        lines = _at_indent(unit, language, lines)
    if language is not None and unit.kind in (*_DEFINITIONS, "new"):
        lines = _without_known_definitions(source, language, unit, lines, may_add=may_add)
    if language is not None and unit.kind == "lines" and not may_add:
        lines = _without_new_definitions(source, language, unit, lines)
    if unit.kind == "new":
        lines = _with_gaps(source, language, unit, lines)
    return "".join(f"{line}\n" for line in lines)


def _without_fences(lines: list[str], old: list[str]) -> list[str]:
    """Drop fences at the edges. If the old text had fences, drop only one left over at the end."""
    if had := _count_fences(old):
        while lines and not lines[-1].strip():
            lines = lines[:-1]
        is_left_over = had % 2 == 0 and _count_fences(lines) % 2 == 1
        return lines[:-1] if is_left_over and _FENCE.fullmatch(lines[-1]) else lines
    while lines and (not lines[-1].strip() or _FENCE.fullmatch(lines[-1])):
        lines = lines[:-1]
    first = next((index for index, line in enumerate(lines) if line.strip()), 0)
    return lines[first + 1 :] if lines and re.fullmatch(r"`{3,}\w*\s*", lines[first]) else lines


def _count_fences(lines: list[str]) -> int:
    return sum(line.lstrip().startswith("```") for line in lines)


def _with_blank_edges_of(old: list[str], lines: list[str]) -> list[str]:
    """Give the lines as many blank lines at both edges as the unit had."""
    before, after = _blank_edges(lines)
    if before == len(lines):
        return []
    old_before, old_after = _blank_edges(old) if any(line.strip() for line in old) else (0, 0)
    kept = lines[before : len(lines) - after]
    return old[:old_before] + kept + old[len(old) - old_after :]


def _blank_edges(lines: list[str]) -> tuple[int, int]:
    blank = [not line.strip() for line in lines]
    if all(blank):
        return len(lines), 0
    return blank.index(False), blank[::-1].index(False)


def _neighbourhood(source: SourceFile, unit: Unit) -> list[str]:
    """Return the unit's own lines, or the whole file's if those are not indented."""
    own = source.lines[unit.first_line - 1 : unit.last_line]
    return list(own) if any(indent_of(line) for line in own) else list(source.lines)


def _with_tabs_of(old: list[str], lines: list[str]) -> list[str]:
    """Turn indentation into tabs if the file is indented by tabs alone."""
    old_indents = {indent for line in old if line.strip() and (indent := indent_of(line))}
    new_indents = {indent for line in lines if line.strip() and (indent := indent_of(line))}
    if not old_indents or not all(set(indent) == {"\t"} for indent in old_indents):
        return lines
    if not new_indents or any("\t" in indent for indent in new_indents):
        return lines
    step = min(len(indent) for indent in new_indents)
    return [
        re.sub(f"^(?: {{{step}}})+", lambda found: "\t" * (len(found[0]) // step), line) for line in lines
    ]


def _at_indent(unit: Unit, language: Language | None, lines: list[str]) -> list[str]:
    """Move the answer to the unit's indentation, multi-line strings included.

    Small models forget that a method stands inside a class: all of it at column 0, or all but the opening.
    """
    first = next((line for line in lines if line.strip()), None)
    if first is None or (unit.kind == "lines" and indent_of(first)):
        return lines
    if indent_of(first) != unit.indent:
        return [_moved(line, indent_of(first), unit.indent) for line in lines]
    if not unit.indent or unit.kind not in _DEFINITIONS:
        return lines
    return _python_body_moved(unit, lines) if language is PYTHON else _braces_moved(unit, lines)


def _python_body_moved(unit: Unit, lines: list[str]) -> list[str]:
    """Move what follows the declaration, if it does not parse where it is and does so further in."""
    if _parses(lines):
        return lines
    for opened in range(1, min(len(lines), _MAX_DECLARATION_LINES)):
        moved = lines[:opened] + [_moved(line, "", unit.indent) for line in lines[opened:]]
        if _parses(moved):
            return moved
    return lines


def _parses(indented_lines: list[str]) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse("\n".join(["if True:", *indented_lines, ""]))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
    return True


def _braces_moved(unit: Unit, lines: list[str]) -> list[str]:
    """Move what follows the declaration, if only its last brace stands at the left margin."""
    opened = unit.opening.count("\n")
    body = [line for line in lines[opened:] if line.strip()]
    closed_in_place = any(line.startswith(unit.indent) and line.strip() in _CLOSERS for line in body)
    if not opened or not body or closed_in_place or not body[-1].startswith(_CLOSERS):
        return lines
    return lines[:opened] + [_moved(line, "", unit.indent) for line in lines[opened:]]


def _moved(line: str, from_indent: str, to_indent: str) -> str:
    if not line.strip() or not line.startswith(from_indent):
        return line
    return to_indent + line[len(from_indent) :]


def _without_known_definitions(
    source: SourceFile, language: Language, unit: Unit, lines: list[str], *, may_add: bool
) -> list[str]:
    """Drop definitions that the file has elsewhere, and lines after the unit that merely repeat the file."""
    tops = _top_units(source, language, unit, lines)
    key = _key(language, unit)
    old_units = list_units(source, language)
    outside = [old for old in old_units if not unit.first_line <= old.first_line <= unit.last_line]
    known = {key(old) for old in outside}
    own = next((top for top in tops if top.qualified_name == unit.qualified_name), None)
    kept = [top for top in tops if top is own or (key(top) not in known and not _is_again(top, own))]
    if not may_add and unit.kind != "new":
        kept = [own] if own else tops[:1]  # a unit that was renamed comes first
    if not tops or (own is None and unit.kind != "new" and tops[0] not in kept):
        return lines
    if len(kept) < len(tops):
        lines = _joined(lines, tops, kept, unit.first_line)
    elif unit.kind != "new":
        lines = _without_repeated_tail(source, unit, lines, tops[-1].last_line - unit.first_line + 1)
    return lines


def _without_new_definitions(
    source: SourceFile, language: Language, unit: Unit, lines: list[str]
) -> list[str]:
    """Drop definitions that were not in these lines before: imports and constants need none."""
    old = {known.name for known in list_units(source, language) if _covers(unit, known)}
    for top in reversed(_top_units(source, language, unit, lines)):
        if top.name not in old:
            start, stop = top.first_line - unit.first_line, top.last_line - unit.first_line + 1
            lines = lines[:start] + lines[stop:]
    return _with_blank_edges_of(list(source.lines[unit.first_line - 1 : unit.last_line]), lines)


def _covers(unit: Unit, inner: Unit) -> bool:
    return unit.first_line <= inner.first_line and inner.last_line <= unit.last_line


def _top_units(source: SourceFile, language: Language, unit: Unit, lines: list[str]) -> list[Unit]:
    """Return the outermost units of the answer, with the line numbers of the spliced file."""
    text = "".join(f"{line}\n" for line in lines)
    spliced = source.with_bytes(splice(source, unit.first_line, unit.last_line, text))
    end = unit.first_line + len(lines) - 1
    tops: list[Unit] = []
    for found in list_units(spliced, language):
        inside = unit.first_line <= found.first_line and found.last_line <= end
        if inside and (not tops or found.first_line > tops[-1].last_line):
            tops.append(found)
    return tops


def _key(language: Language, unit: Unit) -> Callable[[Unit], object]:
    """Return what identifies a definition: its name, and its signature where names may be shared."""
    if unit.kind == "new" or language in (JAVA, CPP):
        return lambda one: (one.qualified_name, one.signature)
    return lambda one: one.qualified_name


def _is_again(top: Unit, own: Unit | None) -> bool:
    return own is not None and (top.qualified_name, top.signature) == (own.qualified_name, own.signature)


def _joined(lines: list[str], tops: list[Unit], kept: list[Unit], first_line: int) -> list[str]:
    """Join what precedes the first dropped definition (if the unit does) and the kept definitions."""
    result: list[str] = []
    if kept and kept[0] is tops[0]:
        cut = next(top.first_line for top in tops if top not in kept)
        result = _without_blank_edges(lines[: cut - first_line])
    for top in kept:
        start, stop = top.first_line - first_line, top.last_line - first_line + 1
        if start >= len(result) or kept[0] is not tops[0]:
            gap = _blank_edges(lines[:start])[1] if result else 0
            result = [*result, *[""] * gap, *lines[start:stop]]
    return result


def _without_blank_edges(lines: list[str]) -> list[str]:
    before, after = _blank_edges(lines)
    return lines[before : len(lines) - after]


def _without_repeated_tail(source: SourceFile, unit: Unit, lines: list[str], end: int) -> list[str]:
    """Drop statements below the unit if the file has all of them below it already."""
    tail = {line.strip() for line in lines[end:] if line.strip()}
    below = {line.strip() for line in source.lines[unit.last_line :]}
    return lines[:end] if tail and tail <= below else lines


def _with_gaps(source: SourceFile, language: Language | None, unit: Unit, lines: list[str]) -> list[str]:
    """Put blank lines around something new: as many as the file has there, or as is customary."""
    if not lines:
        return lines
    usual = 2 if language is PYTHON and not unit.indent else 1
    below = list(source.lines[unit.last_line :])
    gap, _ = _blank_edges(below)
    if gap == len(below) or below[gap].strip().startswith(_CLOSERS):
        return [""] * (usual if unit.last_line else 0) + lines
    if gap:
        return [""] * min(gap, 2) + lines
    return [""] * usual + lines + [""] * usual
