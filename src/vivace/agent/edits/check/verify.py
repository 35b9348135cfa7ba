"""Whether the edited file may be written: it parses as well as before, and nothing was lost on the way.

Owns the judgement, in sentences for people; an empty list means good. Does not repair (`tidy`) or write.
"""

import json
import re
import tomllib
import warnings
from collections import Counter
from pathlib import Path

from tree_sitter import Node

from vivace.agent.edits.apply.source import SourceFile
from vivace.agent.edits.find.languages import PYTHON, Language
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.units import Unit
from vivace.errors import FileProblem

_REMOVAL = re.compile(
    r"\b(remov|delet|drop|eras)(e|ed|es|ing|s|ping)?\b|\b(get rid|take out)\b", re.IGNORECASE
)
_RESHAPING = re.compile(
    r"\b(renam|merg|inlin|replac|extract|mov|split|collaps)(e|ed|es|ing|s)?\b", re.IGNORECASE
)
_RENAMING = re.compile(r"\brenam", re.IGNORECASE)
_PLACEHOLDER = re.compile(
    r"^\s*(?:#|//|/\*|--|<!--|;|\*)\s*(?:"
    r"(?:\.\.\.|…)\s*(?:\*/|-->)?\s*$"
    r"|(?:\.\.\.|…).*\b(?:existing|rest|remaining|other|previous|same|unchanged|code|methods?|here)\b"
    r"|(?>.*?\b(?:existing|rest|remaining|other|previous|same|unchanged|code|methods?|here)\b).*(?:\.\.\.|…)\s*$"
    r"|(?:the )?rest of (?:the|your) (?:code|file|function|method|class|implementation|body)\b"
    r"|(?:other|remaining|existing) (?:code|methods|functions) (?:remain|stay|are|is|go|here)"
    r"|(?:your|add your|insert) (?:code|implementation|logic) here|(?:code|implementation|logic) goes here"
    r"|.*\bomitted for brevity\b)",
    re.IGNORECASE,
)


def asks_for_removal(instruction: str) -> bool:
    return _REMOVAL.search(instruction) is not None


def verify(
    source: SourceFile, language: Language | None, unit: Unit, new_bytes: bytes, instruction: str
) -> list[str]:
    """Return the problems of `new_bytes` as the file's new content, the gravest first."""
    try:
        after = source.with_bytes(new_bytes)
    except FileProblem as error:
        return [f"The result is not a text file any more: {error.message}"]
    region = _region(source, unit, after)
    old_region = source.lines[unit.first_line - 1 : unit.last_line]
    if not any(line.strip() for line in region):
        was_there = any(line.strip() for line in old_region)
        if unit.kind == "new" or (was_there and not _REMOVAL.search(instruction)):
            return ["The answer is empty."]
    problems = syntax_problems(source, language, after) + _placeholders(source, region)
    if language is not None and not problems:
        problems += _name_problems(source, language, unit, after, instruction)
    return problems


def _region(source: SourceFile, unit: Unit, after: SourceFile) -> tuple[str, ...]:
    below = len(source.lines) - unit.last_line
    return after.lines[unit.first_line - 1 : len(after.lines) - below]


def syntax_problems(source: SourceFile, language: Language | None, after: SourceFile) -> list[str]:
    """Return a problem if `after` does not parse as well as `source` did."""
    if language is None:
        return _data_problems(source.path, source.text, after.text)
    old_errors = _error_rows(language.parse(source.text).root_node)
    new_errors = _error_rows(language.parse(after.text).root_node)
    if len(new_errors) > len(old_errors):
        row = next(iter((Counter(new_errors) - Counter(old_errors)).elements()), new_errors[0])
        line = after.lines[row].strip()[:80] if row < len(after.lines) else "the end of the file"
        return [f"The result does not parse as {language.name}: line {row + 1}: {line}"]
    if language is PYTHON and _python_error(source.text) is None:
        error = _python_error(after.text)
        return [f"The result is not valid Python: {error}"] if error else []
    return []


def _error_rows(root: Node) -> list[int]:
    """Return the rows of ERROR and MISSING nodes."""
    rows: list[int] = []
    pending = [root]
    while pending:
        node = pending.pop()
        if node.is_error or node.is_missing:
            rows.append(node.start_point.row)
        pending += [child for child in node.children if child.has_error or child.is_missing]
    return sorted(rows)


def _python_error(text: str) -> str | None:
    """Return the compiler's error. It sees more than a grammar, such as `return` outside a function."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(text, "<edit>", "exec", dont_inherit=True)
        except SyntaxError as error:
            return f"line {error.lineno}: {error.msg}"
        except (RecursionError, MemoryError, ValueError):
            return None  # too deep to tell
    return None


def _data_problems(path: Path, old: str, new: str) -> list[str]:
    parsers = {".json": ("JSON", json.loads), ".toml": ("TOML", tomllib.loads)}
    name, parse = parsers.get(path.suffix.lower(), ("", None))
    if parse is None:
        return []
    try:
        parse(old)
    except ValueError:
        return []  # it was not valid before either: comments, a template
    try:
        parse(new)
    except ValueError as error:
        return [f"The result is not valid {name}: {error}"]
    return []


def _placeholders(source: SourceFile, region: tuple[str, ...]) -> list[str]:
    known = {line.strip() for line in source.lines}
    for line in region:
        if line.strip() not in known and _PLACEHOLDER.match(line):
            return [f"The answer leaves code out: {line.strip()[:80]}"]
    return []


def _name_problems(
    source: SourceFile, language: Language, unit: Unit, after: SourceFile, instruction: str
) -> list[str]:
    shift = len(after.lines) - len(source.lines)
    if unit.kind == "new" and language is PYTHON:
        return _twice_problem(source, unit, after, shift)
    old = _inside(list_units(source, language), unit.first_line, unit.last_line)
    new = _inside(list_units(after, language), unit.first_line, unit.last_line + shift)
    own = next((found for found in old if found.qualified_name == unit.qualified_name), None)
    problems = _rename_problem(unit, new, instruction) if own is not None else []
    if not _REMOVAL.search(instruction) and not _RESHAPING.search(instruction):
        lost = Counter(one.name for one in old if one is not own) - Counter(one.name for one in new)
        if lost:
            names = ", ".join(list(lost)[:6])
            problems.append(f"The answer lost {names}, which the instruction did not ask for.")
    return problems


def _twice_problem(source: SourceFile, unit: Unit, after: SourceFile, shift: int) -> list[str]:
    """Return a problem if what is new has a name that is there and no decorator, as a setter has."""
    known = {one.qualified_name: one for one in list_units(source, PYTHON)}
    for one in _inside(list_units(after, PYTHON), unit.first_line, unit.last_line + shift):
        if one.qualified_name in known and not after.lines[one.first_line - 1].lstrip().startswith("@"):
            was = known[one.qualified_name]
            return [f"The {was.kind} {was.qualified_name} is in the file already, at line {was.first_line}."]
    return []


def _inside(units: list[Unit], first_line: int, last_line: int) -> list[Unit]:
    return [one for one in units if first_line <= one.first_line and one.last_line <= last_line]


def _rename_problem(unit: Unit, new: list[Unit], instruction: str) -> list[str]:
    if any(found.name == unit.name for found in new) or _RENAMING.search(instruction):
        return []
    if _REMOVAL.search(instruction) and (not new or mentions(instruction, unit.name)):
        return []
    if not new:
        return [f"The {unit.kind} {unit.name} is not in the answer any more."]
    if mentions(instruction, new[0].name):
        return []
    return [
        f"The {unit.kind} {unit.name} is now called {new[0].name}, which the instruction did not ask for."
    ]


def asks_for_less(instruction: str) -> bool:
    """Return whether something is to be removed, renamed or moved."""
    return bool(_REMOVAL.search(instruction) or _RESHAPING.search(instruction))


def mentions(instruction: str, name: str) -> bool:
    """Return whether an instruction has this name as a word."""
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", instruction) is not None
