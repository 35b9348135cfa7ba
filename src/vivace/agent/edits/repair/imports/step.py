"""The second small edit of a proposal: the imports that its new text needs and the file lacks.

Owns the order: which names are missing now and were not before, where they come from, and the edit of the
import block, which is a unit of the same proposal. The model is asked only where several imports fit, and
then scores them. Adds imports and never removes any.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tree_sitter import Node

from vivace.agent.edits.apply.source import SourceFile, splice
from vivace.agent.edits.find.languages import PYTHON, Language
from vivace.agent.edits.find.locate import Scorer
from vivace.agent.edits.find.units import Unit
from vivace.agent.edits.repair.imports.block import LineEdit, edit_for
from vivace.agent.edits.repair.imports.origins import Import, imports_in, origins
from vivace.agent.edits.repair.imports.other_languages import edits_for
from vivace.agent.edits.repair.imports.python_names import undefined_names, use_of
from vivace.agent.prompting import begun_answer, user

MAX_NAMES = 8
MAX_CANDIDATES = 6
MAX_CHARS = 4000  # of the piece that the model is shown
_IMPORTS = ("import_statement", "import_from_statement", "future_import_statement", "import_declaration")


@dataclass(frozen=True)
class AddedImports:
    new_bytes: bytes  # of the whole file
    unit: Unit  # the lines of the old file that the edit is about; empty where there was no import
    lines: tuple[str, ...]  # that were added or changed, as they are now


async def add_imports(
    scorer: Scorer, source: SourceFile, language: Language | None, new_bytes: bytes
) -> AddedImports | None:
    """Return the file with the imports that its new text needs, or None if it needs none that is known."""
    if language is None:
        return None
    after = replace(source.with_bytes(new_bytes), newline=source.newline)
    edits: list[LineEdit] = []
    if language is PYTHON:
        after, edits = await _in_python(scorer, source, after)
    else:
        edits = await asyncio.to_thread(edits_for, source.path, language, source.text, after.text)
        for edit in edits:
            after = _edited(after, edit)
    if not edits:
        return None
    unit = _unit(source, language, edits)
    return AddedImports(after.raw, unit, tuple(edit.text.strip() for edit in edits))


def missing_names(source: SourceFile, after: str) -> list[str]:
    """Return the names that a Python file lacks now and did not lack before, in order."""
    before, now = undefined_names(source.text), undefined_names(after)
    return [] if before is None or now is None else sorted(now - before)


def importable(source: SourceFile, text: str, name: str) -> bool:
    """Return whether a known import gives a new text this name."""
    return bool(origins(source.path, name, use_of(text, name)))


async def _in_python(
    scorer: Scorer, source: SourceFile, after: SourceFile
) -> tuple[SourceFile, list[LineEdit]]:
    edits = []
    for name in missing_names(source, after.text)[:MAX_NAMES]:
        found = await asyncio.to_thread(origins, source.path, name, use_of(after.text, name))
        if chosen := await _choose(scorer, name, found, after.text):
            edit = edit_for(after.text, chosen)
            after = _edited(after, edit)
            edits.append(edit)
    return after, edits


async def _choose(scorer: Scorer, name: str, found: Sequence[Import], text: str) -> Import | None:
    """Return the import to add: the only one, one of a module that the file uses already, or by score."""
    if len(found) < 2:
        return found[0] if found else None
    known = {each.module for each in imports_in(text)}
    if len(near := [each for each in found if each.module in known]) == 1:
        return near[0]
    found = [each for each in near or found if each.module != "typing" or len(found) == 1][:MAX_CANDIDATES]
    if len(found) == 1:
        return found[0]
    at = text.find(name)
    piece = text[max(0, at - MAX_CHARS // 2) :][:MAX_CHARS]
    asked = user(f"```python\n{piece}\n```\n\nWhich import gives this code its `{name}`?")
    scores = await scorer.score([asked, begun_answer("```python\n")], [each.line for each in found])
    return found[scores.index(max(scores))]


def _edited(source: SourceFile, edit: LineEdit) -> SourceFile:
    raw = splice(source, edit.first, edit.last, edit.text)
    return replace(source.with_bytes(raw), newline=source.newline)


def _unit(source: SourceFile, language: Language, edits: Sequence[LineEdit]) -> Unit:
    """Return the lines of the old file that have its first imports, or the place where there are none."""
    block: list[Node] = []
    for node in language.parse(source.text).root_node.children:
        if node.type in _IMPORTS:
            block.append(node)
        elif block and node.type != "comment":
            break
    if not block:
        line = min(min(edit.first for edit in edits), len(source.lines) + 1)
        return Unit("lines", "imports", "imports", line, line - 1)
    return Unit("lines", "imports", "imports", block[0].start_point.row + 1, block[-1].end_point.row + 1)
