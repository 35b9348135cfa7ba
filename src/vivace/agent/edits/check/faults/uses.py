"""Calls with wrong arguments, attributes that are not there and imports that fail, in one file of a project.

Owns what is looked at. Says nothing where anything is in doubt: a decorator, a base class or a name that
cannot be read, a block that expects the failure.
"""

import ast
import builtins
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FunctionType

from vivace.agent.edits.check.faults.finding import Finding
from vivace.agent.edits.check.faults.project import Module, Project
from vivace.agent.edits.check.faults.signature import Signature
from vivace.agent.edits.check.faults.surface import Class, Origin, Surface, class_of, last_name
from vivace.agent.edits.check.faults.walk import Place, walk
from vivace.agent.edits.repair.imports.origins import UNWANTED

# Base classes that add no names that a subclass would use by accident.
_BARE_BASES = {"object", "ABC", "Generic", "Protocol"}
_OF_OBJECTS = frozenset(dir(object)) | {
    "__dict__",
    "__module__",
    "__weakref__",
    "__annotations__",
    "__slots__",
}


def misuses(project: Project, path: Path) -> list[Finding]:
    """Return what is wrong with the uses of other things in a file, in the order of the walk."""
    tree = project.tree(path)
    return list(_Uses(project, path, tree).findings(tree)) if tree else []


class _Uses:
    def __init__(self, project: Project, path: Path, tree: ast.Module) -> None:
        self._project = project
        self._path = path
        self._surface = project.surface(path)
        self._classes: dict[ast.ClassDef, Class] = {}
        self._assigned = {
            each.attr for each in ast.walk(tree) if isinstance(each, ast.Attribute) and _is_stored(each)
        }

    def findings(self, tree: ast.Module) -> Iterator[Finding]:
        for node, place in walk(tree):
            what = about = ""
            match node:
                case ast.Call() if not place.catches("TypeError"):
                    what, about = self._call(node, place), last_name(node.func)
                case ast.Attribute(ctx=ast.Load()) if not place.catches("AttributeError", "Exception"):
                    what, about = self._attribute(node, place), node.attr
                case ast.Import() | ast.ImportFrom() if not place.catches("ImportError", "Exception"):
                    for origin in self._failing(node):
                        name = origin.name or origin.module.rpartition(".")[2]
                        yield Finding(f"cannot import: `{_in_words(origin)}`", place.inside, name)
            if what:
                yield Finding(what, place.inside, about)

    # ---- calls ------------------------------------------------------------------------------------

    def _call(self, call: ast.Call, place: Place) -> str:
        match call.func:
            case ast.Name(id=name) if name not in place.local:
                signature = self._project.function(self._path, name)
            case ast.Attribute(value=ast.Name(id=name), attr=member) if (
                name == place.instance and place.owner
            ):
                methods = self._class(place.owner).methods
                signature = methods.get(member) if member not in self._assigned else None
            case ast.Attribute(value=ast.Call() as made, attr=member):
                found = self._instance(made, place)
                misfit = (
                    signature.misfit(call) if found and (signature := self._method(found, member)) else ""
                )
                return f"calls `{found[1].name}.{member}` {misfit}" if found and misfit else ""
            case ast.Attribute(value=ast.Name(id=name), attr=member) if name not in place.local:
                module = self._module(name)
                signature = self._project.function(module.path, member) if module else None
            case _:
                return ""
        misfit = signature.misfit(call) if signature else ""
        return f"calls `{ast.unparse(call.func)}` {misfit}" if misfit else ""

    def _instance(self, node: ast.expr, place: Place) -> tuple[Path, Class] | None:
        """Return the class of a new object, or the one that a parameter is annotated with."""
        match node:
            case ast.Call(func=ast.Name(id=name)) if name not in place.local:
                pass
            case ast.Name(id=variable) if variable in place.typed and variable != place.instance:
                name = place.typed[variable]
            case _:
                return None
        found = self._project.class_(self._path, name)
        if found is None or found[1].is_open or "__new__" in found[1].names:
            return None
        return None if found[1].name.endswith("Mixin") else found

    def _method(self, found: tuple[Path, Class], member: str, hops: int = 8) -> Signature | None:
        """Return what a method of a class takes, also one that it inherits within the project."""
        path, known = found
        if member in known.names or member in self._assigned or not hops:
            return known.methods.get(member)
        for base in known.bases:
            above = self._project.class_(path, base.id) if isinstance(base, ast.Name) else None
            if above is None or above[1].is_open:
                return None
            if signature := self._method(above, member, hops - 1):
                return signature
        return None

    def _class(self, node: ast.ClassDef) -> Class:
        if node not in self._classes:
            self._classes[node] = class_of(node)
        return self._classes[node]

    def _module(self, name: str) -> Module | None:
        origin = self._surface.origins.get(name)
        return self._project.module(self._path, origin) if origin else None

    # ---- attributes -------------------------------------------------------------------------------

    def _attribute(self, node: ast.Attribute, place: Place) -> str:
        if found := self._instance(node.value, place):
            is_there = self._object_has(found, node.attr, is_new=isinstance(node.value, ast.Call))
            return "" if is_there else f"uses `{found[1].name}.{node.attr}`, which nothing defines"
        if not isinstance(node.value, ast.Name):
            return ""
        name, attribute = node.value.id, node.attr
        if name == place.instance and place.owner:
            return (
                ""
                if self._has(place.owner, attribute)
                else f"uses `{name}.{attribute}`, which nothing defines"
            )
        if name in place.local or name not in self._surface.origins:
            return ""
        origin = self._surface.origins[name]
        if (module := self._project.module(self._path, origin)) is not None:
            is_there = self._offers(module.path, module.surface, attribute)
        elif not origin.level and not origin.name and not self._project.is_own(origin.module):
            is_there = attribute in self._assigned or standard_has(origin.module, attribute)
        else:
            return ""
        return "" if is_there else f"uses `{name}.{attribute}`, which is not in that module"

    def _object_has(self, found: tuple[Path, Class], attribute: str, *, is_new: bool) -> bool:
        """Return whether an object may have an attribute. One that was not made here may be of a subclass."""
        if attribute in self._assigned or attribute in _OF_OBJECTS or attribute.startswith("__"):
            return True
        if not is_new and any(attribute in each.names for each in self._heirs(found)):
            return True
        return self._may_have(*found, attribute, 8)

    def _heirs(self, found: tuple[Path, Class]) -> list[Class]:
        """Return the classes of this file and of the class's own that derive from it, by their names."""
        near = (self._surface, self._project.surface(found[0]))
        classes = [each for surface in near for each in surface.classes.values()]
        names = {found[1].name}
        while more := {each.name for each in classes if names & set(map(_base_name, each.bases))} - names:
            names |= more
        return [each for each in classes if each.name in names]

    def _has(self, node: ast.ClassDef, attribute: str) -> bool:
        """Return whether an instance of a class may have an attribute."""
        if attribute in self._assigned or attribute in _OF_OBJECTS or attribute.startswith("__"):
            return True
        own = self._class(node)
        if node.name.endswith("Mixin") or node.keywords or self._surface.classes.get(node.name) is None:
            return True
        return self._may_have(self._path, own, attribute, 8)

    def _may_have(self, path: Path, found: Class, attribute: str, hops: int) -> bool:
        if found.is_open or attribute in found.names or not hops:
            return True
        for base in found.bases:
            name = _base_name(base)
            if name in _BARE_BASES:
                continue
            if isinstance(base, ast.Name) and self._is_built_in(path, name):
                if hasattr(getattr(builtins, name), attribute):
                    return True
                continue
            known = self._project.class_(path, name) if isinstance(base, ast.Name) else None
            if known is None and (standard := self._standard_class(path, base)):
                if hasattr(standard, attribute):
                    return True
                continue
            if known is None or self._may_have(*known, attribute, hops - 1):
                return True
        return False

    def _standard_class(self, path: Path, base: ast.expr) -> type | None:
        """Return a class of the standard library whose objects have no other names than the class."""
        if not isinstance(base, ast.Name):
            return None
        origin = self._project.surface(path).origins.get(base.id)
        if origin is None or origin.level or not origin.name or self._project.is_own(origin.module):
            return None
        return _class_in_c(origin.module, origin.name)

    def _is_built_in(self, path: Path, name: str) -> bool:
        surface = self._project.surface(path)
        return (
            isinstance(getattr(builtins, name, None), type)
            and name not in surface.names
            and not surface.is_open
        )

    def _offers(self, path: Path, surface: Surface, attribute: str) -> bool:
        if surface.is_open or attribute in surface.names or attribute.startswith("__"):
            return True
        is_package = path.name == "__init__.py"
        folder = path.parent
        return is_package and ((folder / attribute).is_dir() or any(folder.glob(f"{attribute}.*")))

    # ---- imports ----------------------------------------------------------------------------------

    def _failing(self, node: ast.Import | ast.ImportFrom) -> Iterator[Origin]:
        if isinstance(node, ast.Import):
            origins = [Origin(each.name, 0, "") for each in node.names]
        else:
            origins = [Origin(node.module or "", node.level, each.name) for each in node.names]
        for origin in origins:
            if self._project.lacks(self._path, origin) or _standard_lacks(self._project, origin):
                yield origin


def _is_stored(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Store | ast.Del)


def _base_name(base: ast.expr) -> str:
    return last_name(base.value if isinstance(base, ast.Subscript) else base)


def _in_words(origin: Origin) -> str:
    module = "." * origin.level + origin.module
    return f"from {module} import {origin.name}" if origin.name else f"import {module}"


@cache
def _class_in_c(module: str, name: str) -> type | None:
    """Return a class of the standard library, if no code in Python makes its objects: that may add names."""
    first = module.partition(".")[0]
    if first not in sys.stdlib_module_names or first in UNWANTED or first.startswith("_"):
        return None
    try:
        found = getattr(importlib.import_module(module), name, None)
    except (ImportError, ValueError, OSError):  # not on this system
        return None
    if not isinstance(found, type) or type(found) is not type or hasattr(found, "__getattr__"):
        return None
    makers = [vars(kind).get(name) for kind in found.__mro__ for name in ("__init__", "__new__")]
    return None if any(isinstance(each, FunctionType | staticmethod) for each in makers) else found


def _standard_lacks(project: Project, origin: Origin) -> bool:
    """Return whether a name is imported from a module of the standard library that has none such."""
    if origin.level or origin.name == "*" or project.is_own(origin.module):
        return False
    if not origin.name:
        return False
    return not standard_has(origin.module, origin.name)


@cache
def standard_has(module: str, attribute: str) -> bool:
    """Return whether a module may have an attribute; True if it is not one of the standard library."""
    first = module.partition(".")[0]
    if first not in sys.stdlib_module_names or first in UNWANTED or first.startswith("_"):
        return True
    try:
        found = importlib.import_module(module)
        if hasattr(found, attribute) or attribute.startswith("__"):
            return True
        return importlib.util.find_spec(f"{module}.{attribute}") is not None
    except (ImportError, AttributeError, ValueError, OSError):  # not on this system, or no package
        return not hasattr(sys.modules.get(module), "__name__")
