"""Where a name is used: the identifiers of a syntax tree, and the units or statements around them.

Owns the walk. A comment or a string is no use. Does not tell two things of one name apart: a unit that turns
out to need no change drops out of the plan later.
"""

from collections.abc import Iterator, Sequence

from tree_sitter import Node

from vivace.agent.edits.apply.source import SourceFile
from vivace.agent.edits.find.languages import Language
from vivace.agent.edits.find.naming import text_of
from vivace.agent.edits.find.units import Unit, lines_unit

SMALL_CLASS_LINES = 40  # a class this short is rewritten as a whole if its own lines are meant


def nodes_of(root: Node) -> Iterator[Node]:
    """Yield all nodes of a tree, in the order of the text."""
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        pending += reversed(node.children)


def units_using(source: SourceFile, language: Language, units: Sequence[Unit], name: str) -> list[Unit]:
    """Return the smallest units that use a name, with the statements outside of any unit, in file order."""
    root = language.parse(source.text).root_node
    return units_around([leaf for leaf in nodes_of(root) if _is_use(leaf, name)], source, units)


def units_passing(
    source: SourceFile, language: Language, units: Sequence[Unit], functions: Sequence[str], keyword: str
) -> list[Unit]:
    """Return the units that pass an argument by this name to one of the functions."""
    root = language.parse(source.text).root_node
    found = [node for node in nodes_of(root) if _keyword_of(node) == keyword and _called(node) in functions]
    return units_around(found, source, units)


def units_around(nodes: Sequence[Node], source: SourceFile, units: Sequence[Unit]) -> list[Unit]:
    """Return the smallest unit around each node, or the statement that it stands in; none overlap."""
    found: list[Unit] = []
    for node in nodes:
        row = node.start_point.row + 1
        if any(unit.first_line <= row <= unit.last_line for unit in found):
            continue
        around = [unit for unit in units if unit.first_line <= row <= unit.last_line]
        unit = max(around, key=lambda each: each.first_line, default=None)
        if unit is None or (unit.kind == "class" and _lines(unit) > SMALL_CLASS_LINES):
            unit = _statement(node, source, unit)
        found = [each for each in found if not unit.first_line <= each.first_line <= unit.last_line]
        found.append(unit)
    return _joined(sorted(found, key=lambda each: each.first_line), source)


def _is_use(leaf: Node, name: str) -> bool:
    return leaf.child_count == 0 and "identifier" in leaf.type and text_of(leaf) == name


def _keyword_of(node: Node) -> str:
    named = node.child_by_field_name("name") if node.type == "keyword_argument" else None
    return text_of(named) if named else ""


def _called(argument: Node) -> str:
    """Return the last name of what is called with this argument."""
    call = argument.parent.parent if argument.parent else None
    called = call.child_by_field_name("function") if call else None
    return text_of(called).rpartition(".")[2] if called else ""


def _lines(unit: Unit) -> int:
    return unit.last_line - unit.first_line + 1


def _statement(node: Node, source: SourceFile, around: Unit | None) -> Unit:
    """Return the lines of the statement of the file, or of the class `around`, in which a node stands."""
    inside: list[Node] = []  # the innermost first
    while node.parent is not None:
        inside.append(node)
        node = node.parent
    if around is not None:
        rows = range(around.first_line - 1, around.last_line)
        inside = [each for each in inside if each.start_point.row in rows and each.end_point.row in rows]
        bodies = [index for index, each in enumerate(inside) if _is_class_body(each)]
        if not bodies or not bodies[-1]:
            return around  # its head: the bases, a decorator
        inside = inside[: bodies[-1]]
    outermost = inside[-1]
    row, column = outermost.end_point
    last = row if column == 0 and row > outermost.start_point.row else row + 1
    return lines_unit(source, outermost.start_point.row + 1, min(last, len(source.lines)))


def _is_class_body(node: Node) -> bool:
    parent = node.parent
    return parent is not None and "class" in parent.type and parent.child_by_field_name("body") == node


def _joined(units: list[Unit], source: SourceFile) -> list[Unit]:
    """Join statements that follow each other, such as imports."""
    joined: list[Unit] = []
    for unit in units:
        last = joined[-1] if joined else None
        if last and last.kind == unit.kind == "lines" and unit.first_line <= last.last_line + 1:
            joined[-1] = lines_unit(source, last.first_line, max(last.last_line, unit.last_line))
        else:
            joined.append(unit)
    return joined
