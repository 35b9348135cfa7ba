"""Every node of a Python file with what is around it: which names are local there, whose method it is in.

Owns the walk. What a name may be is decided against a finding: a name that a function binds anywhere, also in
a function inside of it, is taken for a local one.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from vivace.agent.edits.check.faults.surface import Function

# Blocks that expect what is in them to fail, or not to be there.
_EXPECTING = ("raises", "assertRaises", "assertRaisesRegex", "suppress", "warns", "deprecated_call")
_ASKS = ("hasattr", "version_info", "TYPE_CHECKING", "platform", "PY2", "PY3", "find_spec", "os.name")
_FAILURES = {
    "ImportError", "ModuleNotFoundError", "AttributeError", "NameError", "TypeError", "Exception",
    "BaseException", "",
}  # fmt: skip


@dataclass(frozen=True)
class Place:
    inside: str = ""  # the function or method, as a person names it
    local: frozenset[str] = frozenset()
    owner: ast.ClassDef | None = None  # the class whose method this is
    instance: str = ""  # what the method calls its instance; "" if it has none
    caught: frozenset[str] = frozenset()  # failures that are expected here; "" for all
    typed: Mapping[str, str] = field(default_factory=dict)  # parameters, and the one name of their annotation

    def catches(self, *names: str) -> bool:
        return bool(self.caught & {"", *names})


def walk(tree: ast.Module) -> Iterator[tuple[ast.AST, Place]]:
    """Yield all nodes, each with its place."""
    pending: list[tuple[ast.AST, Place]] = [(tree, Place())]
    while pending:
        node, place = pending.pop()
        yield node, place
        for child, inner in _children(node, place):
            pending.append((child, inner))


def _children(node: ast.AST, place: Place) -> Iterator[tuple[ast.AST, Place]]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            inner = _in_function(node, place)
            for child in ast.iter_child_nodes(node):
                yield child, inner if child in node.body else replace(place, local=inner.local)
        case ast.Lambda():
            own = frozenset(each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg))
            for child in ast.iter_child_nodes(node):
                yield child, replace(place, local=place.local | own)
        case ast.ClassDef(name=name):
            for child in ast.iter_child_nodes(node):
                yield child, replace(place, inside=_joined(place.inside, name), owner=node, instance="")
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            for child in ast.iter_child_nodes(node):
                yield child, replace(place, local=place.local | _stored(node))
        case ast.Try() | ast.TryStar():
            caught = place.caught | _caught(node)
            for child in ast.iter_child_nodes(node):
                yield child, replace(place, caught=caught) if child in node.body else place
        case ast.If() | ast.IfExp() | ast.With() | ast.AsyncWith():
            is_expected = _expects(node)
            for child in ast.iter_child_nodes(node):
                yield child, replace(place, caught=place.caught | {""}) if is_expected else place
        case _:
            for child in ast.iter_child_nodes(node):
                yield child, place


def _in_function(node: Function, place: Place) -> Place:
    arguments = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
    names = [each.id for each in node.decorator_list if isinstance(each, ast.Name)]
    is_method = place.owner is not None and node in place.owner.body
    stored = _stored(node)
    instance = place.instance if place.instance not in stored else ""
    if is_method:
        has_instance = bool(arguments) and not {"staticmethod", "classmethod"} & set(names)
        instance = arguments[0] if has_instance else ""
        body = frozenset().union(*(_stored(each) for each in node.body)) if node.body else frozenset()
        instance = "" if instance in body else instance
    typed = {name: kind for name, kind in place.typed.items() if name not in stored} | _typed(node)
    inside = _joined(place.inside, node.name)
    return replace(place, inside=inside, local=place.local | stored, instance=instance, typed=typed)


def _typed(node: Function) -> dict[str, str]:
    """Return the parameters that are never bound again, each with the name that its annotation is."""
    again = frozenset().union(*map(_stored, node.body))
    given = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    return {
        each.arg: name for each in given if each.arg not in again and (name := _one_name(each.annotation))
    }


def _one_name(annotation: ast.expr | None) -> str:
    match annotation:
        case ast.Name(id=name):
            return name
        case ast.Constant(value=str(name)) if name.isidentifier():
            return name
    return ""


def _stored(node: ast.AST) -> frozenset[str]:
    """Return all names that are bound anywhere in a node, but for those that it declares global."""
    found: set[str] = set()
    shared: set[str] = set()
    for each in ast.walk(node):
        match each:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                found.add(name)
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                found.add(name)
            case ast.MatchMapping(rest=str(name)):
                found.add(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found.update(alias.asname or alias.name.partition(".")[0] for alias in names)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                if each is not node:
                    found.add(name)
            case ast.Global(names=declared):
                shared.update(declared)
    return frozenset(found - shared)


def _caught(node: ast.Try | ast.TryStar) -> frozenset[str]:
    """Return the failures that the handlers are for; "" for one that takes all."""
    names = set()
    for handler in node.handlers:
        words = ast.unparse(handler.type) if handler.type else ""
        names |= {name for name in _FAILURES if name in words} if words else {""}
    return frozenset(names - {"", "Exception", "BaseException"} | ({"Exception"} if names else set()))


def _expects(node: ast.If | ast.IfExp | ast.With | ast.AsyncWith) -> bool:
    if isinstance(node, ast.If | ast.IfExp):
        test = ast.unparse(node.test)
        return any(word in test for word in _ASKS)
    return any(word in ast.unparse(item.context_expr) for item in node.items for word in _EXPECTING)


def _joined(outer: str, name: str) -> str:
    return f"{outer}.{name}" if outer else name
