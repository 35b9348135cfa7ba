"""Which files of a Python project import each other when they are loaded, as they would be after an edit.

Owns the resolution of dotted names to files. Only imports that run at load time count: not those inside of
functions, nor those for type checks. Parses a file when a search comes to it. Does not import anything.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeGuard

from vivace.agent.edits.apply.files import Files
from vivace.errors import FileProblem

Statement = ast.Import | ast.ImportFrom


class ImportGraph:
    def __init__(self, bases: Iterable[Path], texts: Mapping[Path, str], files: Files) -> None:
        """`bases` are folders that names count from, `texts` those files that differ from the disk."""
        self._bases = list(dict.fromkeys(base.resolve() for base in bases))
        self._texts = {path.resolve(): text for path, text in texts.items()}
        self._files = files

    def cycle_through(self, path: Path) -> list[Path]:
        """Return files that import each other in a circle, from this one on; none if there are none."""
        start = path.resolve()
        came_from: dict[Path, Path] = {}
        waiting = [start]
        while waiting:
            file = waiting.pop(0)
            for imported in self._imports(file):
                if imported == start:
                    return _way(came_from, start, file)
                if imported not in came_from:
                    came_from[imported] = file
                    waiting.append(imported)
        return []

    def _imports(self, file: Path) -> Iterator[Path]:
        try:
            text = self._texts[file] if file in self._texts else self._files.read(file).text
            tree = ast.parse(text)
        except (OSError, FileProblem, SyntaxError, ValueError, RecursionError):
            return
        for node in loading_imports(tree.body):
            for found in self._named(file, node):
                if found != file:
                    yield found

    def _named(self, file: Path, node: Statement) -> Iterator[Path]:
        if isinstance(node, ast.Import):
            for each in node.names:
                yield from self._loaded(file, each.name.split("."), self._bases)
            return
        parts = node.module.split(".") if node.module else []
        bases = self._bases
        if node.level:
            bases = [file.parents[node.level - 1]] if node.level <= len(file.parents) else []
        for each in node.names:
            submodule = [*parts, each.name]
            is_module = any(module_file(base, submodule, self._texts) for base in bases)
            yield from self._loaded(file, submodule if is_module else parts, bases)

    def _loaded(self, file: Path, parts: list[str], bases: list[Path]) -> Iterator[Path]:
        """Yield the module and the packages around it, but for those that the importing file is inside of."""
        for base in bases:
            found = module_file(base, parts, self._texts)
            if found is None:
                continue
            yield found
            for length in range(1, len(parts)):
                package = module_file(base, parts[:length], self._texts)
                if package and package.name == "__init__.py" and not file.is_relative_to(package.parent):
                    yield package
            return


def module_file(base: Path, parts: list[str], texts: Mapping[Path, str]) -> Path | None:
    """Return the file of a module below a folder, on disk or among `texts`."""
    names = [base.joinpath(*parts, "__init__.py")]
    if parts:
        names.append(base.joinpath(*parts).with_suffix(".py"))
    return next((name for name in names if name in texts or name.is_file()), None)


def loading_imports(body: Iterable[ast.AST]) -> Iterator[Statement]:
    """Yield the imports that run when a file is loaded."""
    for node in body:
        if isinstance(node, Statement):
            yield node
        elif is_type_check(node):
            yield from loading_imports(node.orelse)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from loading_imports(ast.iter_child_nodes(node))


def is_type_check(node: ast.AST) -> TypeGuard[ast.If]:
    """Return whether a statement is `if TYPE_CHECKING`."""
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def _way(came_from: Mapping[Path, Path], start: Path, last: Path) -> list[Path]:
    way = [last]
    while way[-1] != start:
        way.append(came_from[way[-1]])
    return way[::-1]
