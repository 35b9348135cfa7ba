"""The Python files of a project as one of them would see them after an edit: modules, and what they offer.

Owns finding the file of a dotted name, and following a name through imports. Reads each file once, when it is
needed. Imports nothing of the project. Paths are absolute, with links followed.
"""

import ast
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vivace.agent.edits.apply.files import DISK, Files
from vivace.agent.edits.check.faults.signature import Signature
from vivace.agent.edits.check.faults.surface import Class, Origin, Surface, surface_of
from vivace.agent.edits.plan.import_graph import module_file
from vivace.agent.edits.repair.imports.origins import root_of
from vivace.errors import FileProblem

MAX_HOPS = 6  # of a name that is imported from module to module
UNKNOWN = Surface()


@dataclass(frozen=True)
class Module:
    """A module of the project."""

    path: Path
    surface: Surface


class Project:
    def __init__(
        self, path: Path, texts: Mapping[Path, str], files: Files = DISK, read: "Project | None" = None
    ) -> None:
        """`texts` differ from the disk. `read`: the same project with other texts; it shares what it read."""
        self._texts = texts
        self._files = files
        self.root: Path = read.root if read else root_of(path)
        package = path.parent
        while (package / "__init__.py").exists():
            package = package.parent
        self._bases = [package, *(each for each in (self.root, self.root / "src") if each != package)]
        self._read: dict[Path, tuple[ast.Module | None, Surface]] = read._read if read else {}
        self._own = {each: _parsed(text) for each, text in self._texts.items()}

    def tree(self, path: Path) -> ast.Module | None:
        """Return a file's tree, or None if it cannot be read or does not parse."""
        return self._both(path)[0]

    def surface(self, path: Path) -> Surface:
        return self._both(path)[1]

    def _both(self, path: Path) -> tuple[ast.Module | None, Surface]:
        if path in self._own:
            return self._own[path]
        if path not in self._read:
            try:
                self._read[path] = _parsed(self._files.read(path).text)
            except (OSError, FileProblem):
                self._read[path] = (None, UNKNOWN)
        return self._read[path]

    # ---- modules ----------------------------------------------------------------------------------

    def is_own(self, module: str) -> bool:
        """Return whether an absolute name is one of this project, by its first part, and no other's."""
        first = module.partition(".")[0]
        return first not in sys.stdlib_module_names and self._find(self._bases, [first]) is not None

    def lacks(self, path: Path, origin: Origin) -> bool:
        """Return whether an import surely fails: no file or folder has the module, or that not the name."""
        bases, parts = self._where(path, origin)
        if not bases or not parts:
            return False
        if not origin.level and not self.is_own(origin.module):
            return False
        if not any(_is_there(base, parts) for base in bases):
            return True
        found = self._find(bases, parts)
        if not origin.name or origin.name == "*" or found is None:
            return False  # a folder without a file, or one that is built
        surface = self.surface(found)
        if surface.is_open or origin.name in surface.names or origin.name in _MODULE_NAMES:
            return False
        return not any(_is_there(base, [*parts, origin.name]) for base in bases)

    def module(self, path: Path, origin: Origin) -> Module | None:
        """Return the module that an import binds, if it is one of the project."""
        bases, parts = self._where(path, origin)
        if not bases or (not origin.level and not self.is_own(origin.module)):
            return None
        whole = [*parts, origin.name] if origin.name else parts
        found = self._find(bases, whole) if whole else None
        if found is None:
            return None
        package = self._find(bases, parts) if origin.name else None
        if package and origin.name in self.surface(package).names:
            return None  # the package has a thing of this name, too
        return Module(found, self.surface(found))

    def _where(self, path: Path, origin: Origin) -> tuple[list[Path], list[str]]:
        parts = origin.module.split(".") if origin.module else []
        if not origin.level:
            return self._bases, parts
        parents = path.parents
        if origin.level > len(parents):
            return [], []
        folder = parents[origin.level - 1]
        return ([folder.parent], [folder.name, *parts])

    def _find(self, bases: list[Path], parts: list[str]) -> Path | None:
        return next((found for base in bases if (found := module_file(base, parts, self._texts))), None)

    # ---- what a name is ---------------------------------------------------------------------------

    def function(self, path: Path, name: str, hops: int = MAX_HOPS) -> Signature | None:
        """Return what a function takes that a module has by this name, or the call of a class."""
        path, surface, name = self._home(path, name, hops)
        if name in surface.functions:
            return surface.functions[name]
        if name in surface.classes:
            return self._init(path, surface.classes[name], hops)
        return None

    def class_(self, path: Path, name: str) -> tuple[Path, Class] | None:
        """Return a class that a module has by this name, and the file that declares it."""
        path, surface, name = self._home(path, name, MAX_HOPS)
        return (path, surface.classes[name]) if name in surface.classes else None

    def _home(self, path: Path, name: str, hops: int) -> tuple[Path, Surface, str]:
        """Follow a name to the module that declares it."""
        surface = self.surface(path)
        while hops and (origin := surface.origins.get(name)) and origin.name:
            holder = self.module(path, Origin(origin.module, origin.level, ""))
            if holder is None:
                return path, UNKNOWN, name
            path, surface, name, hops = holder.path, holder.surface, origin.name, hops - 1
        return path, surface, name

    def _init(self, path: Path, found: Class, hops: int) -> Signature | None:
        """Return what a class is called with, if all that decides it can be read."""
        if hops and found.init and all(self._is_plain_base(path, base, hops - 1) for base in found.bases):
            return found.init
        return None

    def _is_plain_base(self, path: Path, base: ast.expr, hops: int) -> bool:
        if not isinstance(base, ast.Name):
            return False
        if base.id == "object":
            return True
        home, surface, name = self._home(path, base.id, hops)
        return name in surface.classes and self._init(home, surface.classes[name], hops) is not None


_MODULE_NAMES = {"__name__", "__file__", "__path__", "__doc__", "__spec__", "__loader__", "__package__"}


def _is_there(base: Path, parts: list[str]) -> bool:
    """Return whether anything on disk may be this module: a folder, a file of any kind."""
    *above, name = parts
    folder = base.joinpath(*above)
    return (folder / name).is_dir() or any(folder.glob(f"{name}.*"))


def _parsed(text: str) -> tuple[ast.Module | None, Surface]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None, UNKNOWN
    return tree, surface_of(tree)
