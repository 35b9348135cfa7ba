"""The names that a Python file uses and nobody defines: neither the file nor the language.

Owns the reading of scopes. Says nothing where it cannot know: a file that does not parse, or one with
`import *`. Does not know where a name could come from (`origins`).
"""

import ast
import builtins
import symtable
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

BUILT_IN = frozenset(dir(builtins)) | {
    "__file__",
    "__path__",
    "__class__",
    "__annotations__",
    "__builtins__",
}


@dataclass(frozen=True)
class Use:
    """How a name is used."""

    attributes: frozenset[str]  # `name.attribute`
    is_called: bool


@dataclass(frozen=True)
class Names:
    bound: frozenset[str]  # at the top level
    free: frozenset[str]  # used and bound nowhere in the text: the language's own, and undefined ones


def undefined_names(text: str) -> frozenset[str] | None:
    """Return the names that are used and not defined anywhere in the text, or None if it cannot be known."""
    names = names_in(text)
    return names.free - BUILT_IN if names else None


def names_in(text: str) -> Names | None:
    """Return the names that a text binds and uses, or None if it cannot be known."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            top = symtable.symtable(text, "<edit>", "exec")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in ast.walk(tree)):
        return None
    defined = {each.get_name() for each in top.get_symbols() if _is_bound(each)}
    used = set()
    for scope in _scopes(top):
        for symbol in scope.get_symbols():
            if symbol.is_declared_global() and _is_bound(symbol):
                defined.add(symbol.get_name())
            elif symbol.is_referenced() and (symbol.is_global() or scope is top):
                used.add(symbol.get_name())
    return Names(frozenset(defined), frozenset(used - defined))


def undefined_in_words(names: Sequence[str]) -> str:
    """Return a sentence's beginning: "`a` and `b` are not defined"."""
    *some, last = [f"`{name}`" for name in names]
    return f"{', '.join(some)} and {last} are not defined" if some else f"{last} is not defined"


def use_of(text: str, name: str) -> Use:
    """Return how the name is used in a text that parses."""
    attributes, is_called = set(), False
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Attribute(value=ast.Name(id=found), attr=attribute) if found == name:
                attributes.add(attribute)
            case ast.Call(func=ast.Name(id=found)) if found == name:
                is_called = True
    return Use(frozenset(attributes), is_called)


def _is_bound(symbol: symtable.Symbol) -> bool:
    return symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()


def _scopes(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _scopes(child)
