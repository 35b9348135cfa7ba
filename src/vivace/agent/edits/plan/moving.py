"""A Python function or class moved into another file, new or not, exactly and without a model.

Owns the texts: the unit as it is, the imports that it needs in its new file, and those that its users need
now. Moves only what can be moved without a change of meaning, and says why it refuses; what it does not
understand is planned as any other edit. Does not own a file that is there already (`joining`), does not write
(`apply`), nor move anything in other languages.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from vivace.agent.edits.apply.source import SourceFile, new_source, splice
from vivace.agent.edits.find.languages import PYTHON
from vivace.agent.edits.find.units import Unit, file_unit, new_file_unit
from vivace.agent.edits.plan.import_graph import ImportGraph, is_type_check
from vivace.agent.edits.plan.joining import MovedUnit, changed, imports_of, joined
from vivace.agent.edits.plan.modules import Modules
from vivace.agent.edits.proposal import FileProposal, Proposal, make_proposal
from vivace.agent.edits.repair.imports.block import edit_for
from vivace.agent.edits.repair.imports.origins import Import, root_of, source_files
from vivace.agent.edits.repair.imports.python_names import names_in, undefined_names
from vivace.agent.edits.scope import EditScope
from vivace.errors import EditRejected, FileProblem

_MOVE = re.compile(
    r"(?:please\s+)?move\s+(?:the\s+)?(?:(?:class|function)\s+)?[`'\"]?(?P<name>[A-Za-z_]\w*)(?:\(\))?[`'\"]?"
    r"(?:\s+(?:class|function))?(?:\s+(?:from|of|out of)\s+[`'\"@]*[\w./-]+[`'\"]?)?"
    r"\s+(?:in)?to\s+(?:(?:a|the|its own)\s+)?(?:(?:new|existing)\s+)?(?:(?:file|module)\s+)?"
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
    if modules is None or target.resolve() == scope.source.path.resolve():
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
    """Return the new file: from the folder that the user is in, or from the project that is edited.

    A process that serves faces is in no user's folder: its own is the root of the file system.
    """
    if not source.is_absolute():
        return Path(path)
    here = Path.cwd()
    is_here = here != here.parent and source.is_relative_to(here)
    return (here if is_here else root_of(source)) / path


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
        keeps = keeps or _is_exported(rest.text, self._unit.name)
        target = self._target_file(text, needed)
        if target is None:
            return None
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
            target,
            *(file for file in others if file is not None),
        ]
        self._check_cycles(files)
        return Proposal(tuple(files))

    def _check_cycles(self, files: list[FileProposal]) -> None:
        """Raise where files would import each other in a circle when they are loaded."""
        root = root_of(self._source.path)
        bases = (self._modules.root, root, root / "src")
        texts = {each.source.path: each.source.with_bytes(each.new_bytes).text for each in files}
        if cycle := ImportGraph(bases, texts, self._files).cycle_through(self._target):
            names = " → ".join(path.name for path in [*cycle, cycle[0]])
            raise EditRejected(
                f"Behind this move files would import each other: {names}. Nothing was written.",
                "Move what they share into a file of its own first.",
            )

    def _needed(self, text: str) -> list[Import] | None:
        """Return the imports that the unit needs in its new file, or None if they cannot be known."""
        inside, outside = names_in(text), names_in(self._source.text)
        if inside is None or outside is None or inside.free & {"__file__", *_type_check_names(self._tree)}:
            return None
        imports = {each.bound: each for each in imports_of(self._tree.body)}
        future = [each for each in imports.values() if each.module == "__future__" and _is_annotated(text)]
        self._check_globals(inside.free - imports.keys())
        found = []
        for name in sorted(inside.free & outside.bound):
            own = Import(self._modules.old_from_new, name)
            found.append(self._modules.seen_from_new(imports[name]) if name in imports else own)
        return future + found

    def _check_globals(self, used: frozenset[str]) -> None:
        """Raise where a name is given another value while the program runs: two files would have two."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Global):
                is_inside = self._unit.first_line <= node.lineno <= self._unit.last_line
                if names := sorted(set(node.names) if is_inside else used & set(node.names)):
                    raise EditRejected(
                        f"`{names[0]}` is changed while {self._source.path.name} runs, and {self._unit.name}"
                        " uses it: in another file it would be another one. Nothing was written.",
                        "Make it an argument first, or an attribute of an object.",
                    )

    def _rest(self) -> SourceFile:
        """Return the old file without the unit and the blank lines above it."""
        first, lines = self._unit.first_line, self._source.lines
        while first > 1 and not lines[first - 2].strip():
            first -= 1
        raw = splice(self._source, first, self._unit.last_line, "")
        return replace(self._source.with_bytes(raw), newline=self._source.newline)

    def _target_file(self, text: str, needed: list[Import]) -> FileProposal | None:
        """Return the target with the unit in it, or None if the target cannot be understood."""
        if not self._files.exists(self._target):
            return self._new_file(text, needed)
        inside, outside = names_in(text), names_in(self._source.text)
        assert inside is not None
        assert outside is not None
        source = self._files.read(self._target)
        unit = MovedUnit(self._unit.name, text, needed, inside.free - outside.bound)
        made = joined(source, unit, self._modules)
        if made is None:
            return None
        return make_proposal(source, file_unit(source), self._instruction, made.raw)

    def _new_file(self, text: str, needed: list[Import]) -> FileProposal:
        source = replace(new_source(self._target), newline=self._source.newline)
        made = replace(source.with_bytes(splice(source, 1, 0, text)), newline=source.newline)
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
    return changed(source, edit_for(source.text, new))


def _type_check_names(tree: ast.Module) -> set[str]:
    """Return the names that a file imports for type checks alone: nobody else can import them from it."""
    return {each.bound for node in tree.body if is_type_check(node) for each in imports_of(node.body)}


def _is_annotated(text: str) -> bool:
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.AnnAssign() | ast.arg(annotation=ast.expr()):
                return True
            case ast.FunctionDef(returns=ast.expr()) | ast.AsyncFunctionDef(returns=ast.expr()):
                return True
    return False


def _is_exported(text: str, name: str) -> bool:
    """Return whether `__all__` of a file names it."""
    for node in ast.parse(text).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(each, ast.Name) and each.id == "__all__" for each in targets):
            return any(isinstance(each, ast.Constant) and each.value == name for each in ast.walk(node))
    return False
