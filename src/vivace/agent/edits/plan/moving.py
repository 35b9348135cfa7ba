"""A Python function or class moved into a new file, exactly and without a model.

Owns the texts: the unit as it is, the imports that it needs in its new file, and those that its users need
now. Moves only what can be moved without a change of meaning; what it leaves alone is planned as any other
edit. Does not write (`apply`), nor move anything in other languages.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from vivace.agent.edits.apply.source import SourceFile, new_source, source_from_bytes, splice
from vivace.agent.edits.find.languages import PYTHON
from vivace.agent.edits.find.units import Unit, file_unit, new_file_unit
from vivace.agent.edits.plan.modules import Modules
from vivace.agent.edits.proposal import FileProposal, Proposal, make_proposal
from vivace.agent.edits.repair.imports.block import edit_for
from vivace.agent.edits.repair.imports.origins import Import, root_of, source_files
from vivace.agent.edits.repair.imports.python_names import undefined_names
from vivace.agent.edits.scope import EditScope
from vivace.errors import EditRejected, FileProblem

_MOVE = re.compile(
    r"(?:please\s+)?move\s+(?:the\s+)?(?:(?:class|function)\s+)?[`'\"]?(?P<name>[A-Za-z_]\w*)(?:\(\))?[`'\"]?"
    r"(?:\s+(?:class|function))?(?:\s+(?:from|of|out of)\s+[`'\"@]*[\w./-]+[`'\"]?)?"
    r"\s+(?:in)?to\s+(?:(?:a|the|its own)\s+)?(?:new\s+)?(?:(?:file|module)\s+)?"
    r"[`'\"@]*(?P<path>[\w./-]+\.py)[`'\"]?"
    r"(?:,?\s+and\s+(?:import|fix|update)\b[^.;\n]*)?\s*[.!]?",
    re.I,
)


@dataclass(frozen=True)
class Move:
    name: str
    path: str


def move_in(instruction: str) -> Move | None:
    """Return what is to be moved and where, if the instruction asks for that and nothing else."""
    found = _MOVE.fullmatch(instruction.strip())
    return Move(found["name"], found["path"]) if found else None


def moved(scope: EditScope, instruction: str) -> Proposal | None:
    """Return the files with the unit in its new place, or None if this is no move that needs no model."""
    move = move_in(instruction)
    unit = next((each for each in scope.units if move and each.qualified_name == move.name), None)
    if move is None or unit is None or scope.language is not PYTHON:
        return None
    target = _place(scope.source.path, move.path)
    try:
        tree = ast.parse(scope.source.text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    modules = Modules.of(scope.source.path, target, tree)
    if target.exists() or modules is None:
        return None
    unit = _with_comment(scope.source, unit)
    return _Moving(scope, tree, unit, target, modules, instruction).proposal()


def _with_comment(source: SourceFile, unit: Unit) -> Unit:
    """Return the unit with the comment that stands directly above it."""
    first = unit.first_line
    while (
        first > 1 and source.lines[first - 2].startswith("#") and not source.lines[first - 2].startswith("#!")
    ):
        first -= 1
    return replace(unit, first_line=first)


def _place(source: Path, path: str) -> Path:
    """Return the new file: from the folder that the user is in, or from the project that is edited."""
    here = Path.cwd()
    is_here = not source.is_absolute() or source.is_relative_to(here)
    if is_here:
        return here / path if source.is_absolute() else Path(path)
    return root_of(source) / path


class _Moving:
    def __init__(
        self,
        scope: EditScope,
        tree: ast.Module,
        unit: Unit,
        target: Path,
        modules: Modules,
        instruction: str,
    ) -> None:
        self._source, self._tree, self._unit, self._target = scope.source, tree, unit, target
        self._modules, self._instruction, self._files = modules, instruction, scope.files

    def proposal(self) -> Proposal | None:
        lines = self._source.lines[self._unit.first_line - 1 : self._unit.last_line]
        text = "".join(f"{line}\n" for line in lines)
        needed = self._needed(text)
        if needed is None:
            return None
        rest, others = self._rest(), list(self._users())
        uses = undefined_names(rest.text)
        keeps = uses is None or self._unit.name in uses or any(file is None for file in others)
        if keeps and any(each.module == self._modules.old_from_new for each in needed):
            name, file = self._unit.name, self._source.path.name
            raise EditRejected(
                f"{name} uses names of {file}, and {file} needs {name}: the two would import each other."
                " Nothing was written.",
                "Move what both need into a file of its own first.",
            )
        if keeps:
            rest = _with_import(rest, Import(self._modules.new_from_old, self._unit.name))
        files = [
            make_proposal(self._source, file_unit(self._source), self._instruction, rest.raw),
            self._new_file(text, needed),
            *(file for file in others if file is not None),
        ]
        return Proposal(tuple(files))

    def _needed(self, text: str) -> list[Import] | None:
        """Return the imports that the unit needs in its new file, or None if they cannot be known."""
        names, lacking = undefined_names(text), undefined_names(self._source.text)
        if names is None or lacking is None:
            return None
        imports = {each.bound: each for each in self._imports()}
        future = [each for each in imports.values() if each.module == "__future__"]
        found = []
        for name in sorted(names - lacking):
            own = Import(self._modules.old_from_new, name)
            found.append(self._modules.seen_from_new(imports[name]) if name in imports else own)
        return future + found

    def _imports(self) -> Iterator[Import]:
        """Yield the imports at the top level of the old file."""
        for node in self._tree.body:
            if isinstance(node, ast.Import):
                yield from (Import(each.name, alias=each.asname or "") for each in node.names)
            elif isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                yield from (Import(module, each.name, each.asname or "") for each in node.names)

    def _rest(self) -> SourceFile:
        """Return the old file without the unit and the blank lines above it."""
        first, lines = self._unit.first_line, self._source.lines
        while first > 1 and not lines[first - 2].strip():
            first -= 1
        raw = splice(self._source, first, self._unit.last_line, "")
        return replace(source_from_bytes(self._source.path, raw), newline=self._source.newline)

    def _new_file(self, text: str, needed: list[Import]) -> FileProposal:
        source = replace(new_source(self._target), newline=self._source.newline)
        made = replace(source_from_bytes(self._target, splice(source, 1, 0, text)), newline=source.newline)
        for each in needed:
            made = _with_import(made, each)
        return make_proposal(source, new_file_unit(source), self._instruction, made.raw)

    def _users(self) -> Iterator[FileProposal | None]:
        """Yield other files that import the unit, as they are to be; None for one that must stay as it is."""
        for path in source_files(root_of(self._source.path), ".py"):
            if path.resolve() in (self._source.path.resolve(), self._target.resolve()):
                continue
            try:
                source = self._files.read(path)
                tree = ast.parse(source.text) if self._unit.name in source.text else None
            except (OSError, FileProblem, SyntaxError, ValueError, RecursionError):
                continue
            if tree is not None:
                yield from self._user(source, tree)

    def _user(self, source: SourceFile, tree: ast.Module) -> Iterator[FileProposal | None]:
        from_old = [node for node in ast.walk(tree) if self._modules.imports_old(source.path, node)]
        named = [
            node
            for node in from_old
            if isinstance(node, ast.ImportFrom) and self._unit.name in [each.name for each in node.names]
        ]
        if not named:
            if from_old:  # as a module: the name is still to be found in it
                yield None
            return
        node, module = named[0], self._modules.new_for(source.path, named[0])
        is_plain = len(node.names) == 1 and node.lineno == node.end_lineno and node in tree.body
        if len(from_old) > 1 or module is None or not is_plain:
            yield None
            return
        alias = f" as {node.names[0].asname}" if node.names[0].asname else ""
        line = f"from {module} import {self._unit.name}{alias}\n"
        raw = splice(source, node.lineno, node.lineno, line)
        yield make_proposal(source, file_unit(source), self._instruction, raw)


def _with_import(source: SourceFile, new: Import) -> SourceFile:
    edit = edit_for(source.text, new)
    raw = splice(source, edit.first, edit.last, edit.text)
    return replace(source_from_bytes(source.path, raw), newline=source.newline)
