"""A Python function or class put into a file that is there, without a change of meaning on either side.

Owns the checks and the place: where the unit goes, which import of it goes away, which imports come. What
would change a meaning is refused with the reason. Does not own the file that it came from (`moving`).
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vivace.agent.edits.apply.source import SourceFile, splice
from vivace.agent.edits.plan.modules import Modules
from vivace.agent.edits.repair.imports.block import LineEdit, edit_for
from vivace.agent.edits.repair.imports.origins import Import
from vivace.agent.edits.repair.imports.python_names import Names, names_in
from vivace.errors import EditRejected

HINT = "Rename one of them first, or move it into another file."


@dataclass(frozen=True)
class MovedUnit:
    name: str
    text: str
    needed: Sequence[Import]  # as the target writes them
    outside: frozenset[str]  # names that it uses and its old file does not bind: the language's own


def joined(target: SourceFile, unit: MovedUnit, modules: Modules) -> SourceFile | None:
    """Return the file with the unit in it, or None if the file cannot be understood. Raise why not."""
    names = names_in(target.text)
    return _Joining(target, unit, modules, names).made() if names else None


class _Joining:
    def __init__(self, target: SourceFile, unit: MovedUnit, modules: Modules, names: Names) -> None:
        self._target, self._unit, self._modules, self._names = target, unit, modules, names
        self._tree = ast.parse(target.text)
        self._imports = [node for node in self._tree.body if isinstance(node, ast.Import | ast.ImportFrom)]

    def made(self) -> SourceFile:
        dropped = self._import_to_drop()
        self._check_meanings()
        lacking = [each for each in self._unit.needed if not self._has(each)]
        edits = [self._placed(is_used=dropped is not None), *([dropped] if dropped else [])]
        made = self._target
        for edit in sorted(edits, key=lambda each: each.first, reverse=True):
            made = changed(made, edit)
        for each in lacking:
            made = changed(made, edit_for(made.text, each))
        return made

    # ---- what would change a meaning ---------------------------------------------------------------------

    def _import_to_drop(self) -> LineEdit | None:
        """Return the edit that takes out the target's own import of the unit; None if it has none."""
        name, file = self._unit.name, self._target.path.name
        nodes = list(ast.walk(self._tree))
        from_old = [node for node in nodes if self._modules.imports_old(self._target.path, node)]
        found = [node for node in from_old if _brings(node, name)]
        is_attribute = any(isinstance(node, ast.Attribute) and node.attr == name for node in nodes)
        if is_attribute and len(from_old) > len(found):
            raise _refused(f"{file} uses {name} as an attribute of the module that it is moved out of.", HINT)
        if not found:
            if name in self._names.bound or name in self._names.free:
                raise _refused(f"{file} has a {name} already.", HINT)
            return None
        edit = self._without(found[0], name) if len(found) == 1 and found[0] in self._tree.body else None
        if edit is None or sum(_binds(node, name) for node in nodes) > 1:
            raise _refused(f"{file} imports {name} in a way that cannot be taken out exactly.", HINT)
        return edit

    def _without(self, node: ast.AST, name: str) -> LineEdit | None:
        assert isinstance(node, ast.ImportFrom)
        lines, last = self._target.lines, node.end_lineno or node.lineno
        written = [f"{each.name} as {each.asname}" if each.asname else each.name for each in node.names]
        if name not in written:  # with an alias
            return None
        module = "." * node.level + (node.module or "")
        if len(written) == 1:
            is_alone = ast.unparse(ast.parse("\n".join(lines[node.lineno - 1 : last]))) == ast.unparse(node)
            return LineEdit(node.lineno, last, "") if is_alone else None
        if lines[node.lineno - 1] == f"from {module} import {', '.join(written)}":
            rest = ", ".join(each for each in written if each != name)
            return LineEdit(node.lineno, last, f"from {module} import {rest}\n")
        own = [each.lineno for each in node.names if each.name == name]
        if lines[own[0] - 1].strip() == f"{name},":
            return LineEdit(own[0], own[0], "")
        return None

    def _check_meanings(self) -> None:
        file, bound = self._target.path.name, self._names.bound
        for each in self._unit.needed:
            if each.module == "__future__" and not self._has(each):
                raise _refused(
                    f"{file} lacks `{each.line}`, which changes what {self._unit.name} means.", HINT
                )
            if each.bound in bound and not self._has(each) and not self._is_sibling(each):
                raise _refused(f"`{each.bound}` means something else in {file}.", HINT)
        if shadowed := sorted(self._unit.outside & bound):
            raise _refused(f"`{shadowed[0]}` means something else in {file}.", HINT)

    def _has(self, wanted: Import) -> bool:
        return self._seen(wanted) in map(self._seen, self._own_imports())

    def _is_sibling(self, wanted: Import) -> bool:
        """Return whether the target has the name by an import of the same package: `a.b` beside `a.c`."""
        own = [each for each in self._own_imports() if each.bound == wanted.bound]
        return not wanted.name and bool(own) and all(not each.name and not each.alias for each in own)

    def _seen(self, each: Import) -> Import:
        return self._modules.absolute_in_new(each)

    def _own_imports(self) -> Iterator[Import]:
        yield from imports_of(self._imports)

    # ---- where it goes -----------------------------------------------------------------------------------

    def _placed(self, *, is_used: bool) -> LineEdit:
        """Return the edit that puts the unit in: below the imports if the file uses it, else at the end."""
        if is_used:
            return self._below_imports()
        last = self._tree.body[-1] if self._tree.body else None
        if last is not None and _is_main_guard(last):
            first = _above_comments(self._target.lines, last.lineno)
            gap = "\n" * max(0, 2 - _blank_above(self._target.lines, first))
            return LineEdit(first, first - 1, f"{gap}{self._unit.text}\n\n")
        end = len(self._target.lines)
        while end and not self._target.lines[end - 1].strip():
            end -= 1
        gap = "\n\n" if end else ""
        return LineEdit(end + 1, len(self._target.lines), f"{gap}{self._unit.text}")

    def _below_imports(self) -> LineEdit:
        lines = self._target.lines
        line = max(node.end_lineno or node.lineno for node in self._imports)
        early = [node for node in self._tree.body if node.lineno <= line and node not in self._imports]
        if any(_mentions(node, self._unit.name) for node in early):
            raise _refused(f"{self._target.path.name} uses {self._unit.name} among its imports.", HINT)
        below = line
        while below < len(lines) and not lines[below].strip():
            below += 1
        gap = "\n\n" if below < len(lines) else ""
        return LineEdit(line + 1, below, f"\n\n{self._unit.text}{gap}")


def imports_of(nodes: Sequence[ast.stmt]) -> Iterator[Import]:
    """Yield the names that import statements bring."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (Import(each.name, alias=each.asname or "") for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from (Import(module, each.name, each.asname or "") for each in node.names)


def changed(source: SourceFile, edit: LineEdit) -> SourceFile:
    """Return the file with some lines in place of others."""
    raw = splice(source, edit.first, edit.last, edit.text)
    return replace(source.with_bytes(raw), newline=source.newline)


def _refused(message: str, hint: str) -> EditRejected:
    return EditRejected(f"{message} Nothing was written.", hint)


def _brings(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.ImportFrom) and any(each.name == name for each in node.names)


def _binds(node: ast.AST, name: str) -> bool:
    match node:
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return any((each.asname or each.name).partition(".")[0] == name for each in names)
        case ast.FunctionDef(name=found) | ast.AsyncFunctionDef(name=found) | ast.ClassDef(name=found):
            return found == name
        case ast.Name(id=found, ctx=ast.Store() | ast.Del()):
            return found == name
    return False


def _mentions(node: ast.AST, name: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(node))


def _is_main_guard(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"


def _above_comments(lines: Sequence[str], first: int) -> int:
    while first > 1 and lines[first - 2].startswith("#"):
        first -= 1
    return first


def _blank_above(lines: Sequence[str], first: int) -> int:
    count = 0
    while count < first - 1 and not lines[first - 2 - count].strip():
        count += 1
    return count
