"""How two Python files of one project name each other in imports, and how others name them.

Owns dotted names, absolute and relative. Reads no file but looks which folders are packages.
"""

import ast
from dataclasses import dataclass
from pathlib import Path

from vivace.agent.edits.repair.imports.origins import Import


@dataclass(frozen=True)
class Modules:
    """An old file and a new one, by the dotted names under which they are imported."""

    root: Path  # that both names count from
    old: str
    new: str
    is_relative: bool  # the old file imports its neighbours by dots

    @classmethod
    def of(cls, old: Path, new: Path, tree: ast.Module) -> "Modules | None":
        """Return both names, or None if the new file cannot be imported from where the old one is."""
        root = old.resolve().parent
        while (root / "__init__.py").exists():
            root = root.parent
        names = [_dotted(root, path.resolve()) for path in (old, new)]
        is_relative = any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree))
        return cls(root, names[0], names[1], is_relative) if names[0] and names[1] else None

    @property
    def old_from_new(self) -> str:
        return self._named(self.old, self.new)

    @property
    def new_from_old(self) -> str:
        return self._named(self.new, self.old)

    def seen_from_new(self, given: Import) -> Import:
        """Return an import of the old file as it is written in the new one."""
        if not given.module.startswith("."):
            return given
        module = _absolute(self.old, given.module)
        return Import(self._named(module, self.new), given.name, given.alias)

    def absolute_in_new(self, given: Import) -> Import:
        """Return an import of the new file without dots."""
        if not given.module.startswith("."):
            return given
        return Import(_absolute(self.new, given.module), given.name, given.alias)

    def imports_old(self, path: Path, node: ast.AST) -> bool:
        """Return whether a statement of another file imports the old one, or something of it."""
        if isinstance(node, ast.Import):
            return any(_is_same(each.name, self.old) for each in node.names)
        if not isinstance(node, ast.ImportFrom):
            return False
        module = self._module_of(path, node)
        return _is_same(module, self.old) or any(
            _is_same(f"{module}.{each.name}", self.old) for each in node.names
        )

    def new_for(self, path: Path, node: ast.ImportFrom) -> str | None:
        """Return the new file's name for a statement that names the old one exactly, or None."""
        if self._module_of(path, node) != self.old:
            return None
        return _relative(self.new, _dotted(self.root, path.resolve())) if node.level else self.new

    def _module_of(self, path: Path, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        return _absolute(_dotted(self.root, path.resolve()), "." * node.level + (node.module or ""))

    def _named(self, module: str, seen_from: str) -> str:
        return _relative(module, seen_from) if self.is_relative else module


def _dotted(root: Path, path: Path) -> str:
    """Return the name of a file below a folder, or "" if it has none."""
    if not path.is_relative_to(root) or path.suffix != ".py" or path.stem == "__init__":
        return ""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts) if all(part.isidentifier() for part in parts) else ""


def _absolute(seen_from: str, module: str) -> str:
    """Return the name that dots mean in a module."""
    name = module.lstrip(".")
    package = seen_from.split(".")[: -(len(module) - len(name))]
    return ".".join([*package, *filter(None, [name])])


def _relative(module: str, seen_from: str) -> str:
    """Return the name by dots, as it is written in another module."""
    parts, package = module.split("."), seen_from.split(".")[:-1]
    shared = 0
    while shared < min(len(package), len(parts) - 1) and parts[shared] == package[shared]:
        shared += 1
    return "." * (len(package) - shared + 1) + ".".join(parts[shared:])


def _is_same(name: str, module: str) -> bool:
    """Return whether a name may be that module, also if it counts from a folder further up."""
    return name == module or name.endswith(f".{module}")
