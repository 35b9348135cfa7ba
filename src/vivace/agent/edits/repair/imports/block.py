"""The import block of a Python file: where a new import goes, as an edit of whole lines.

Owns the place and the blank lines around it. A new name joins the line that imports from its module already;
otherwise it gets a line of its own, sorted in where the block is. Nothing is ever removed.
"""

import ast
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from vivace.agent.edits.repair.imports.origins import Import

MAX_COLUMNS = 88
_Statement = ast.Import | ast.ImportFrom


@dataclass(frozen=True)
class LineEdit:
    """Lines `first` to `last` (from 1, inclusive; `last == first - 1` inserts) become `text`."""

    first: int
    last: int
    text: str


def edit_for(text: str, new: Import) -> LineEdit:
    """Return the edit that adds an import to a text that parses."""
    body = ast.parse(text).body
    lines = text.split("\n")
    block = _block(body)
    if not block:
        return _first_import(body, lines, new)
    if edit := _joined(block, lines, new):
        return edit
    return _sorted_in(block, new)


def _block(body: Sequence[ast.stmt]) -> list[_Statement]:
    """Return the first run of imports at the top level."""
    found: list[_Statement] = []
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append(node)
        elif found:
            break
    return found


def _joined(block: Sequence[_Statement], lines: Sequence[str], new: Import) -> LineEdit | None:
    """Return the edit of a line that imports from the same module, if it is a simple one with room."""
    for node in block:
        if not new.name or _module(node) != new.module or not isinstance(node, ast.ImportFrom):
            continue
        line = lines[node.lineno - 1]
        names = [_written(each.name, each.asname) for each in node.names]
        if line != f"from {new.module} import {', '.join(names)}":
            continue  # with a comment, in brackets, or several statements
        is_sorted = names == sorted(names, key=_order)
        names.append(_written(new.name, new.alias))
        changed = f"from {new.module} import {', '.join(sorted(names, key=_order) if is_sorted else names)}"
        if len(changed) <= MAX_COLUMNS:
            return LineEdit(node.lineno, node.lineno, f"{changed}\n")
    return None


def _order(name: str) -> tuple[int, str]:
    """Order names as isort and ruff do: constants, classes, then the rest."""
    word = name.partition(" ")[0]
    return (0 if word.isupper() and len(word) > 1 else 1 if word[:1].isupper() else 2), word


def _written(name: str, alias: str | None) -> str:
    return f"{name} as {alias}" if alias else name


def _sorted_in(block: Sequence[_Statement], new: Import) -> LineEdit:
    """Return the edit that puts a line of its own among those of its kind."""
    kin = [node for node in block if _section(_module(node)) == _section(new.module)]
    if not kin:
        before = [node for node in block if _section(_module(node)) < _section(new.module)]
        if before:
            line = (before[-1].end_lineno or before[-1].lineno) + 1
            return LineEdit(line, line - 1, f"\n{new.line}\n")
        return LineEdit(block[0].lineno, block[0].lineno - 1, f"{new.line}\n\n")
    behind = [node for node in kin if _rank(node) <= (bool(new.name), new.module)]
    line = (behind[-1].end_lineno or behind[-1].lineno) + 1 if behind else kin[0].lineno
    return LineEdit(line, line - 1, f"{new.line}\n")


def _module(node: _Statement) -> str:
    if isinstance(node, ast.Import):
        return node.names[0].name
    return "." * node.level + (node.module or "")


def _rank(node: _Statement) -> tuple[bool, str]:
    return isinstance(node, ast.ImportFrom), _module(node)


def _section(module: str) -> int:
    """Return 0 for `__future__`, 1 for the standard library, 2 for other packages, 3 for relative imports."""
    if module == "__future__":
        return 0
    if module.startswith("."):
        return 3
    return 1 if module.partition(".")[0] in sys.stdlib_module_names else 2


def _first_import(body: Sequence[ast.stmt], lines: Sequence[str], new: Import) -> LineEdit:
    """Return the edit of a file without imports: below its docstring, or below the comment that opens it."""
    first = body[0] if body else None
    if (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    ):
        line = first.end_lineno or first.lineno
        has_gap = line < len(lines) and not lines[line].strip()
        return LineEdit(line + 1, line, f"\n{new.line}\n{'' if has_gap else chr(10)}")
    line = _end_of_opening_comment(lines)
    gap = "\n\n" if isinstance(first, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else "\n"
    return LineEdit(line + 1, line, f"{new.line}\n{gap}")


def _end_of_opening_comment(lines: Sequence[str]) -> int:
    """Return how many lines stand above the code: a `#!` line, and comments that a blank line closes."""
    end = 0
    for number, line in enumerate(lines):
        if line.startswith("#!") or (number < 2 and line.startswith("#") and "coding" in line):
            end = number + 1
        elif line.strip() and not line.startswith("#"):
            break
        elif not line.strip():
            end = number + 1
    return end if any(line.strip() for line in lines[:end]) else 0
