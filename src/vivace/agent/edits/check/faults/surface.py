"""What a Python module offers at its top level: names, functions and classes, and where the others come from.

Owns the reading of one text. A name that is bound in more than one way is known as a name alone. Does not
find other files (`project`).
"""

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from vivace.agent.edits.check.faults.signature import Signature

Function = ast.FunctionDef | ast.AsyncFunctionDef
# Decorators of a class that leave its own names and its `__init__` as they are.
_PLAIN_DECORATORS = ("final", "total_ordering", "runtime_checkable", "unique")
_BINDING_METHODS = {"staticmethod": False, "classmethod": True}


@dataclass(frozen=True)
class Origin:
    """Where an imported name comes from, as the statement says it."""

    module: str  # without leading dots
    level: int
    name: str  # "": the module itself


@dataclass(frozen=True)
class Class:
    name: str
    bases: tuple[ast.expr, ...]
    names: frozenset[str]  # bound in its body, and assigned to the first argument of its methods
    methods: dict[str, Signature]  # called on an instance; those that are declared once
    init: Signature | None  # None: not known
    is_open: bool  # it may have more names than can be read


@dataclass(frozen=True)
class Surface:
    names: frozenset[str] = frozenset()
    is_open: bool = True  # it may have more names than can be read
    functions: dict[str, Signature] = field(default_factory=dict)
    classes: dict[str, Class] = field(default_factory=dict)
    origins: dict[str, Origin] = field(
        default_factory=dict
    )  # of names that one import binds and nothing else


def surface_of(tree: ast.Module) -> Surface:
    """Read the top level of a module."""
    bindings = list(bound_in(tree.body))
    count = Counter(name for name, _ in bindings)
    count.update(_declared_global(tree))
    once = [(name, node) for name, node in bindings if count[name] == 1]
    functions = {
        name: Signature.of(node)
        for name, node in once
        if isinstance(node, Function) and not node.decorator_list
    }
    classes = {name: class_of(node) for name, node in once if isinstance(node, ast.ClassDef)}
    origins = {name: origin for name, node in once if (origin := _origin(name, node))}
    is_open = "__getattr__" in count or "*" in count or _is_written_to(tree)
    return Surface(frozenset(count), is_open, functions, classes, origins)


def bound_in(body: list[ast.stmt]) -> Iterator[tuple[str, ast.AST]]:
    """Yield each name that statements bind in their own scope, with the node that does it."""
    pending: list[ast.AST] = list(reversed(body))
    while pending:
        node = pending.pop()
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node
                continue
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                for each in names:
                    yield each.asname or each.name.partition(".")[0], node
                continue
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield name, node
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                yield name, node
            case ast.MatchMapping(rest=str(name)):
                yield name, node
            case ast.Lambda():
                continue
            case ast.comprehension():  # its target is bound inside of it
                pending += [node.iter, *node.ifs]
                continue
        pending += reversed(list(ast.iter_child_nodes(node)))


def class_of(node: ast.ClassDef) -> Class:
    """Read a class."""
    bindings = list(bound_in(node.body))
    count = Counter(name for name, _ in bindings)
    assigned, is_written_to = _assigned_to_self(node)
    methods = {}
    for name, each in bindings:
        if isinstance(each, Function) and count[name] == 1 and name not in assigned:
            how = _binding(each)
            if how is not None:
                methods[name] = Signature.of(each, is_bound=how)
    is_plain = not node.keywords and all(last_name(each) in _PLAIN_DECORATORS for each in node.decorator_list)
    is_open = is_written_to or bool(count.keys() & {"__getattr__", "__getattribute__"})
    is_open = is_open or not (is_plain or all(_is_dataclass(each) for each in node.decorator_list))
    init = methods.get("__init__") if is_plain and not count.keys() & {"__new__", "__call__"} else None
    names = frozenset(count) | assigned | _slots(node)
    return Class(node.name, tuple(node.bases), names, methods, init, is_open)


def _slots(node: ast.ClassDef) -> frozenset[str]:
    """Return all strings of the values that `__slots__` is given."""
    given = [
        each.value
        for each in node.body
        if isinstance(each, ast.Assign) and any(last_name(target) == "__slots__" for target in each.targets)
    ]
    parts = [part.value for each in given for part in ast.walk(each) if isinstance(part, ast.Constant)]
    return frozenset(part for part in parts if isinstance(part, str))


def _binding(node: Function) -> bool | None:
    """Return whether a method's first argument is given by the call; None if a decorator hides it."""
    if not node.decorator_list:
        return True
    names = [last_name(each) for each in node.decorator_list if isinstance(each, ast.Name)]
    known = [_BINDING_METHODS[name] for name in names if name in _BINDING_METHODS]
    return known[0] if len(known) == len(node.decorator_list) == 1 else None


def last_name(node: ast.expr) -> str:
    """Return the name of what is called or named, without what it is a part of."""
    if isinstance(node, ast.Call):
        return last_name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_dataclass(node: ast.expr) -> bool:
    return last_name(node) == "dataclass"


def _assigned_to_self(node: ast.ClassDef) -> tuple[frozenset[str], bool]:
    """Return the attributes that the class's own code assigns, and whether it sets others by their names."""
    names, is_written_to = set(), False
    for each in ast.walk(node):
        match each:
            case ast.Attribute(attr=name, ctx=ast.Store()):
                names.add(name)
            case ast.Attribute(attr="__dict__") | ast.Call(func=ast.Name(id="setattr" | "vars")):
                is_written_to = True
            case ast.Attribute(attr="__setattr__" | "update_wrapper"):
                is_written_to = True
    return frozenset(names), is_written_to


def _declared_global(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield from node.names


def _is_written_to(tree: ast.Module) -> bool:
    """Return whether a module makes names of its own by their text: `globals()`, `exec`, `sys.modules`."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id="globals" | "exec" | "vars" | "setattr") | ast.Attribute(attr="modules"):
                return True
    return False


def _origin(name: str, node: ast.AST) -> Origin | None:
    match node:
        case ast.ImportFrom(module=module, names=names, level=level):
            each = next(each for each in names if (each.asname or each.name) == name)
            return Origin(module or "", level, each.name)
        case ast.Import(names=names):
            for each in names:
                if each.asname == name or (each.asname is None and each.name == name):
                    return Origin(each.name, 0, "")
    return None
