"""One exact change of a function's lines, and how its request is worded.

Owns replacing spans and putting lines in, by the places that a syntax tree gives. Knows no request.
"""

import ast
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from vivace.training.data.bugs import Function


class Span(NamedTuple):
    """Text that takes the place of other text on one line."""

    line: int  # of the file, from 1
    start: int
    end: int
    new: str


@dataclass(frozen=True)
class Lines:
    """The lines of one function, and where they begin in their file."""

    text: list[str]
    first: int

    def of(self, node: ast.expr | ast.arg) -> str:
        """Return the text of what stands on one line; empty if it is on several."""
        if node.lineno != node.end_lineno:
            return ""
        return self.text[node.lineno - self.first][node.col_offset : node.end_col_offset]

    def replaced(self, spans: Iterable[Span]) -> list[str]:
        lines = list(self.text)
        for span in sorted(spans, reverse=True):
            at = span.line - self.first
            lines[at] = lines[at][: span.start] + span.new + lines[at][span.end :]
        return lines

    def inserted(self, line: int, new: Sequence[str]) -> list[str]:
        """Return the lines with others before the line of this number."""
        at = line - self.first
        return [*self.text[:at], *new, *self.text[at:]]


@dataclass(frozen=True)
class Exact:
    """What was there before, what is there after, and wordings with {name} for the function's name."""

    before: Sequence[str]
    after: Sequence[str]
    wordings: Sequence[str]

    def instruction(self, name: str, chance: random.Random) -> str:
        return chance.choice(self.wordings).replace("{name}", name)


def span(node: ast.expr | ast.arg, new: str) -> Span:
    return Span(node.lineno, node.col_offset, node.end_col_offset or node.col_offset, new)


def statements(node: Function) -> list[ast.stmt]:
    """Return the body without its docstring."""
    return node.body[1:] if ast.get_docstring(node) is not None else node.body


def indent(statement: ast.stmt) -> str:
    return " " * statement.col_offset


def only_return(node: Function) -> ast.Return | None:
    """Return the one `return` of a function, if it stands at its end and says something on one line."""
    found = [each for each in ast.walk(node) if isinstance(each, (ast.Return, ast.Yield, ast.YieldFrom))]
    last = node.body[-1]
    if found == [last] and isinstance(last, ast.Return) and last.value is not None:
        return last if last.value.lineno == last.value.end_lineno else None
    return None


def plain_arguments(node: Function) -> list[ast.arg]:
    return [each for each in node.args.args if each.arg not in ("self", "cls")]
