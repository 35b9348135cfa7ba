"""A unit with names changed in it, exactly and without a model: where an instruction asks for that alone.

Owns the new text. Names are compared, not resolved; a name that is taken already, a local variable and a
parameter are left to the model, which reads what they mean.
"""

import re
from collections.abc import Mapping, Sequence

from tree_sitter import Node

from vivace.agent.edits.find.naming import text_of
from vivace.agent.edits.find.units import Unit
from vivace.agent.edits.plan.uses import nodes_of
from vivace.agent.edits.plan.wording import LOCAL_KINDS, Renaming
from vivace.agent.edits.scope import EditScope


def can_rename(scopes: Sequence[EditScope], renamings: Sequence[Renaming]) -> bool:
    """Return whether these names can be changed by comparing them, in all files."""
    if not renamings or any(each.kind.startswith(LOCAL_KINDS) for each in renamings):
        return False
    new = {each.new for each in renamings}
    if any(text_of(leaf) in new for scope in scopes for leaf in _identifiers(scope)):
        return False
    names = {unit.name for scope in scopes for unit in scope.units}
    members = [each for each in renamings if each.within in names]
    return all(_is_the_only_one(scope, each) for scope in scopes for each in members)


def _is_the_only_one(scope: EditScope, renaming: Renaming) -> bool:
    """Return whether a member of one class is no variable, and no member of another class, in this file."""
    owners = [unit for unit in scope.units if unit.name == renaming.within]
    outside = [leaf for leaf in _identifiers(scope) if not any(_is_in(leaf, owner) for owner in owners)]
    uses = [leaf for leaf in outside if text_of(leaf) == renaming.old]
    declared = re.compile(rf"\s*(?:(?:self|this)\.)?{re.escape(renaming.old)}\b\s*(?::|=(?!=)|[\w*\[])")
    lines = {leaf.start_point.row for leaf in uses}
    return all(_is_member(leaf) for leaf in uses) and not any(
        declared.match(scope.source.lines[line]) for line in lines
    )


def _is_member(leaf: Node) -> bool:
    """Return whether a name is one of something: `item.count`, or `count=` in a call."""
    return leaf.type != "identifier" or (
        leaf.parent is not None and leaf.parent.type in ("attribute", "keyword_argument")
    )


def _is_in(leaf: Node, unit: Unit) -> bool:
    return unit.first_line <= leaf.start_point.row + 1 <= unit.last_line


def renamed(scope: EditScope, unit: Unit, names: Mapping[str, str]) -> str:
    """Return the unit's text with the names changed, each line closed by "\\n"."""
    lines = [line.encode() for line in scope.source.lines]
    for leaf in reversed(_identifiers(scope)):  # from the end: columns before stay right
        row, column = leaf.start_point
        name = text_of(leaf)
        if name in names:
            line = lines[row]
            lines[row] = line[:column] + names[name].encode() + line[column + len(name.encode()) :]
    return "".join(f"{line.decode()}\n" for line in lines[unit.first_line - 1 : unit.last_line])


def _identifiers(scope: EditScope) -> list[Node]:
    """Return all identifiers of the file, in its order."""
    if scope.language is None:
        return []
    root = scope.language.parse(scope.source.text).root_node
    return [node for node in nodes_of(root) if node.child_count == 0 and "identifier" in node.type]
