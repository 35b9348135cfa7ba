"""A long unit in parts of a few lines each, cut where its syntax tree is least deep.

Owns which units are long, and where one part ends and the next begins: parts cover the unit in order, without
a gap, in whole lines. Any language with a grammar will do, since only rows of nodes are compared. Does not
choose among parts (`part_ranking`), nor what the model sees of them (`write.part`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tree_sitter import Node

from vivace.agent.edits.apply.source import SourceFile
from vivace.agent.edits.check.substance import is_docstring
from vivace.agent.edits.find.evidence import nats_for_file
from vivace.agent.edits.find.languages import Language
from vivace.agent.edits.find.units import Unit, indent_of

LONG_LINES = 60  # a unit of more is not written whole
WHOLE_LINES = 150  # not even where all of it is meant: "everywhere"
USUAL_LINES = 8  # of a part
MOST_LINES = 30
WORTH_OF_LINES = 5.0  # lines off the usual count that cost as much as one level of depth
TEXT_COST = 4.0  # a cut inside a docstring or a comment
LIST_COST = 3.0  # a cut inside a list of parameters
BODY_COST = 2.0  # between what opens a block and the block, or between a block and what closes it
DOCSTRING_LINES = 3  # of a docstring that had better be a part of its own
DOCSTRING_GAIN = 2.0  # above it, and below it
CLAUSE_COST = 0.5  # before `else` and its like
ATTACHED_COST = 1.5  # below a comment or a decorator
BLANK_GAIN = 0.5  # behind an empty line
_CLAUSE = re.compile(r"\s*+(?:\}\s*+)?+(?:else|elif|except|finally|catch|case|default|when)\b")
_CLOSING = re.compile(r"\s*(?:[}\])]|(?:end|fi|done|esac)\b)")
_ATTACHED = re.compile(r"\s*(?:#|//|/\*|\*|@|--)")
_QUOTES = re.compile(r"\s*[rR]?(?:\"{3}|'{3})")  # a docstring may be a part of its own
_TEXT = ("string", "comment", "heredoc", "template")


@dataclass(frozen=True)
class Part:
    first_line: int  # 1-based
    last_line: int  # inclusive
    is_words: bool = False  # nothing but lines of a docstring or of comments

    @property
    def lines(self) -> int:
        return self.last_line - self.first_line + 1


def is_long(unit: Unit, language: Language | None, instruction: str) -> bool:
    """Return whether a unit is written part by part. Prose and whole files are not."""
    lines = unit.last_line - unit.first_line + 1
    if language is None or unit.kind in ("file", "new") or lines <= LONG_LINES:
        return False
    return lines > WHOLE_LINES or not nats_for_file(instruction)


def parts_of(source: SourceFile, language: Language | None, unit: Unit) -> list[Part]:
    """Return the parts of a unit, in order; at least one."""
    costs, is_words = _cut_costs(source, language, unit)
    total = len(costs)
    best, begins = [0.0] * (total + 1), [0] * (total + 1)
    for end in range(1, total + 1):
        starts = range(max(0, end - MOST_LINES), end)
        prices = [best[start] + costs[start] + _price(end - start) for start in starts]
        best[end] = min(prices)
        begins[end] = starts[prices.index(best[end])]
    cuts = [total]
    while cuts[-1]:
        cuts.append(begins[cuts[-1]])
    cuts.reverse()
    first = unit.first_line
    return [Part(first + start, first + end - 1, all(is_words[start:end])) for start, end in pairwise(cuts)]


def _price(lines: int) -> float:
    return ((lines - USUAL_LINES) / WORTH_OF_LINES) ** 2


def _cut_costs(source: SourceFile, language: Language | None, unit: Unit) -> tuple[list[float], list[bool]]:
    """Return what a cut before each line of the unit costs, and which lines are words."""
    lines = source.lines[unit.first_line - 1 : unit.last_line]
    depths, is_words = [0.0] * len(lines), [not line.strip() for line in lines]
    edges = set[int]()
    if language is not None:
        edges = _read_tree(language.parse(source.text).root_node, unit, depths, is_words)
    least = min(depths[1:], default=0.0)
    costs = [depth - least + _cost_of_look(lines, at) for at, depth in enumerate(depths)]
    costs = [cost - DOCSTRING_GAIN * (at in edges) for at, cost in enumerate(costs)]
    return [0.0, *costs[1:]], is_words


def _read_tree(root: Node, unit: Unit, depths: list[float], is_words: list[bool]) -> set[int]:
    """Count for each line the nodes of different rows that hold both it and the line above; mark words.

    Return where a docstring of some lines begins, and what stands below it.
    """
    first, last = unit.first_line - 1, unit.last_line - 1  # rows
    edges = set[int]()
    pending: list[tuple[Node, tuple[int, int]]] = [(root, (-1, -1))]
    while pending:
        node, around = pending.pop()
        rows = (node.start_point.row, _last_row(node))
        if rows[1] < first or rows[0] > last:
            continue
        is_text = any(word in node.type for word in _TEXT)
        if "comment" in node.type or is_docstring(node):
            for row in range(max(rows[0], first), min(rows[1], last) + 1):
                is_words[row - first] = row > rows[0] or _begins_its_line(node)
            if rows[1] - rows[0] >= DOCSTRING_LINES and "comment" not in node.type:
                edges |= {rows[0] - first, rows[1] + 1 - first}
        if rows[0] == rows[1]:
            pending += [(child, rows) for child in node.children if "comment" in child.type]
            continue
        if rows != around or is_text:
            cost = TEXT_COST if is_text else LIST_COST if "parameters" in node.type else 1.0
            for row in range(max(rows[0] + 1, first), min(rows[1], last) + 1):
                depths[row - first] += cost
        if not is_text:
            pending += [(child, rows) for child in node.children]
    return edges


def _begins_its_line(node: Node) -> bool:
    above = node.prev_sibling
    while above is None and node.parent is not None and node.parent.start_byte == node.start_byte:
        node = node.parent
        above = node.prev_sibling
    return above is None or above.end_point.row < node.start_point.row


def _last_row(node: Node) -> int:
    row, column = node.end_point
    return row - 1 if column == 0 and row > node.start_point.row else row


def _cost_of_look(lines: Sequence[str], at: int) -> float:
    """Return what speaks against a cut before a line, by its look and that of the line above."""
    if not at:
        return 0.0
    line, above = lines[at], lines[at - 1]
    if not line.strip():
        return BODY_COST
    cost = -BLANK_GAIN if not above.strip() else 0.0
    shown = next((each for each in reversed(lines[:at]) if each.strip()), "")
    if len(indent_of(line)) > len(indent_of(shown)) and not _QUOTES.match(line):
        cost += BODY_COST
    if _CLOSING.match(line):
        cost += BODY_COST
    elif _CLAUSE.match(line):
        cost += CLAUSE_COST
    if _ATTACHED.match(above):
        cost += ATTACHED_COST
    return cost
