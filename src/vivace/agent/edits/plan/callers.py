"""Calls that no longer fit a function whose parameters were changed.

Owns how many arguments a declaration takes and a call gives, in any language. A call counts only if it fitted
before: another function of the same name is left alone. Does not rewrite the callers (`edit`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tree_sitter import Node

from vivace.agent.edits.apply.source import SourceFile
from vivace.agent.edits.find.languages import CPP, JAVA, PYTHON, Language
from vivace.agent.edits.find.naming import text_of
from vivace.agent.edits.find.units import Unit
from vivace.agent.edits.plan.uses import nodes_of, units_around

_CONSTRUCTORS = ("__init__", "constructor", "new")
_SELVES = ("self", "cls", "this")
_IGNORED = {"comment", "positional_separator", "keyword_separator", "self_parameter"}


@dataclass(frozen=True)
class Parameters:
    """What a declaration takes."""

    names: tuple[str, ...]  # in order
    positional: int  # of them, that may be given without their names
    required: frozenset[str]  # of them, those without a default
    takes_more: bool  # *args, a rest parameter


def callers_left_behind(
    before: SourceFile, after: SourceFile, language: Language, changed: Unit, units: Sequence[Unit]
) -> list[Unit]:
    """Return the units of `after` whose calls fitted `changed` in `before` and do not fit it now.

    `units` are those of `after`. The changed unit itself is not among the result.
    """
    old = _parameters(before, language, changed)
    new = _parameters(after, language, changed)
    if old is None or new is None or old == new:
        return []
    name = _called_as(changed)
    root = language.parse(after.text).root_node
    is_member = changed.parent is not None and name == changed.name and language not in (JAVA, CPP)
    calls = [node for node in nodes_of(root) if _callee(node) == (name, is_member)]
    misfits = [call for call in calls if _fits(call, old) and not _fits(call, new)]
    own = next((unit for unit in units if unit.qualified_name == changed.qualified_name), changed)
    outside = [call for call in misfits if not own.first_line <= call.start_point.row + 1 <= own.last_line]
    return units_around(outside, after, units)


def _called_as(unit: Unit) -> str:
    if unit.name in _CONSTRUCTORS and unit.parent:
        return unit.parent.rpartition(".")[2]
    return unit.name


def _parameters(source: SourceFile, language: Language, unit: Unit) -> Parameters | None:
    """Return the parameters of the unit's declaration in this text, or None if it is not one function."""
    found = [node for node in nodes_of(language.parse(source.text).root_node) if _declares(node, unit)]
    if len(found) != 1:
        return None
    listed = found[0].child_by_field_name("parameters")
    assert listed is not None
    taken = [node for node in listed.named_children if node.type not in _IGNORED]
    if language is PYTHON and taken and text_of(taken[0]) in _SELVES:
        taken = taken[1:]
    more = [node for node in taken if _takes_more(node)]
    plain = [node for node in taken if node not in more]
    names = tuple(name for node in plain for name in _names(node))
    required = frozenset(name for node in plain if not _is_optional(node) for name in _names(node))
    bar = next((node for node in listed.named_children if _ends_positional(node)), None)
    before = [node for node in plain if bar is None or node.end_byte <= bar.start_byte]
    positional = sum(len(_names(node)) for node in before)
    return Parameters(names, positional, required, bool(more))


def _ends_positional(node: Node) -> bool:
    """Return whether what follows must be given by its name, as behind `*` in Python."""
    return node.type in ("keyword_separator", "list_splat_pattern")


def _declares(node: Node, unit: Unit) -> bool:
    if node.child_by_field_name("parameters") is None:
        return False
    named = node.child_by_field_name("name")
    if named is None and node.parent is not None:  # const load = (path) => …
        named = node.parent.child_by_field_name("name")
    if named is None or text_of(named) != unit.name:
        return False
    owners = _owners(node)
    return unit.parent.rpartition(".")[2] in owners if unit.parent else owners <= {unit.name}


def _owners(node: Node) -> set[str]:
    """Return the names of what the declaration stands in, or of its receiver."""
    receiver = node.child_by_field_name("receiver")
    names = set(text_of(receiver).strip("()").replace("*", " ").split()) if receiver else set()
    above = node.parent
    while above is not None:
        named = above.child_by_field_name("name") or above.child_by_field_name("type")
        names |= {text_of(named)} if named else set()
        above = above.parent
    return names


def _names(node: Node) -> list[str]:
    """Return the names that one node declares; `a, b int` in Go declares two."""
    named = [child for child in node.children_by_field_name("name") if child.is_named]
    if named:
        return [text_of(child) for child in named]
    first = next((leaf for leaf in nodes_of(node) if leaf.child_count == 0 and leaf.is_named), node)
    return [text_of(first)]


def _takes_more(node: Node) -> bool:
    kinds = {node.type, *(child.type for child in node.children)}
    return any(word in kind for kind in kinds for word in ("splat", "rest", "variadic", "spread"))


def _is_optional(node: Node) -> bool:
    return any(word in node.type for word in ("default", "optional", "assignment")) or any(
        child.type in ("=", "?") for child in node.children
    )


def _callee(node: Node) -> tuple[str, bool]:
    """Return the name of what is called, and whether it is called as a member: `mail.send(…)`."""
    called = node.child_by_field_name("function") or node.child_by_field_name("constructor")
    if called is None and node.type == "method_invocation":
        called = node.child_by_field_name("name")
    if called is None or node.child_by_field_name("arguments") is None:
        return "", False
    owner, _, name = text_of(called).replace("::", ".").replace("->", ".").rpartition(".")
    return name, bool(owner)


def _fits(call: Node, parameters: Parameters) -> bool:
    listed = call.child_by_field_name("arguments")
    assert listed is not None
    given = [node for node in listed.named_children if node.type != "comment"]
    if any(_takes_more(node) for node in given):
        return True
    keywords = {_names(node)[0] for node in given if node.type == "keyword_argument"}
    in_order = len(given) - len(keywords)
    if parameters.takes_more:
        return len(given) >= len(parameters.required)
    if in_order > parameters.positional or not keywords <= set(parameters.names[in_order:]):
        return False
    return parameters.required <= keywords | set(parameters.names[:in_order])
