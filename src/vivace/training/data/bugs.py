"""Bugs: small wrong changes of one function, as text that takes the place of other text.

Owns what may go wrong and where. What is broken must still parse and differ: `mutations` looks.
"""

import ast
from collections.abc import Callable, Iterator
from typing import NamedTuple

_COMPARISONS = {
    **{ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">")},
    **{ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.In: ("in", "not in"), ast.Is: ("is", "is not")},
    **{ast.NotIn: ("not in", "in"), ast.IsNot: ("is not", "is")},
}
_OPERATORS = {
    **{ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"), ast.Div: ("/", "//")},
    **{ast.FloorDiv: ("//", "/"), ast.Mod: ("%", "//"), ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&")},
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "append": "extend", "extend": "append"}
_NAMES |= {"startswith": "endswith", "endswith": "startswith", "lower": "upper", "upper": "lower"}
_NAMES |= {"find": "rfind", "keys": "values", "values": "keys", "lstrip": "rstrip", "rstrip": "lstrip"}
_WRAPPERS = {
    "abs",
    "sorted",
    "set",
    "list",
    "len",
    "int",
    "str",
    "float",
    "sum",
    "reversed",
    "tuple",
    "round",
}
_POLISHERS = {"strip", "lower", "upper", "copy", "split", "rstrip", "lstrip", "items", "keys", "title"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Bug(NamedTuple):
    """Text that takes the place of another, on one line; or whole lines that go."""

    line: int  # from 1
    start: int  # in characters
    end: int
    new: str
    drops: int = 0  # lines, from this one on

    def applied(self, lines: list[str]) -> list[str]:
        at = self.line - 1
        if self.drops:
            return [*lines[:at], *lines[at + self.drops :]]
        return [*lines[:at], lines[at][: self.start] + self.new + lines[at][self.end :], *lines[at + 1 :]]


def _between(left: ast.expr, right: ast.expr, old: str, new: str, lines: list[str]) -> Iterator[Bug]:
    """Yield a swap of the operator between two operands that stand on one line."""
    if left.end_lineno != right.lineno or left.end_col_offset is None:
        return
    gap = lines[right.lineno - 1][left.end_col_offset : right.col_offset]
    if gap.strip(" ()") == old:
        start = left.end_col_offset + gap.index(old)
        yield Bug(right.lineno, start, start + len(old), new)


def _wrong_comparison(node: Function, lines: list[str]) -> Iterator[Bug]:
    for each in ast.walk(node):
        if isinstance(each, ast.Compare) and len(each.ops) == 1:
            old, new = _COMPARISONS[type(each.ops[0])]
            yield from _between(each.left, each.comparators[0], old, new, lines)


def _wrong_operator(node: Function, lines: list[str]) -> Iterator[Bug]:
    for each in ast.walk(node):
        if isinstance(each, ast.BinOp) and type(each.op) in _OPERATORS:
            is_text = isinstance(each.left, ast.Constant) and isinstance(each.left.value, str)
            if not is_text:  # "…" % is formatting
                yield from _between(each.left, each.right, *_OPERATORS[type(each.op)], lines)
        elif isinstance(each, ast.BoolOp):
            old, new = ("and", "or") if isinstance(each.op, ast.And) else ("or", "and")
            for left, right in zip(each.values, each.values[1:], strict=False):
                yield from _between(left, right, old, new, lines)
        elif isinstance(each, ast.AugAssign) and type(each.op) in _OPERATORS:
            old, new = _OPERATORS[type(each.op)]
            yield from _between(each.target, each.value, f"{old}=", f"{new}=", lines)


def _wrong_constant(node: Function, _lines: list[str]) -> Iterator[Bug]:
    """Yield off-by-ones, and truth values turned around."""
    for each in ast.walk(node):
        if not isinstance(each, ast.Constant) or each.end_col_offset is None:
            continue
        span = (each.lineno, each.col_offset, each.end_col_offset)
        if isinstance(each.value, bool):
            yield Bug(*span, str(not each.value))
        elif isinstance(each.value, int) and 0 <= each.value <= 64 and each.lineno == each.end_lineno:
            yield Bug(*span, str(each.value + 1))
            if each.value:
                yield Bug(*span, str(each.value - 1))


def _wrong_condition(node: Function, _lines: list[str]) -> Iterator[Bug]:
    """Yield conditions that are negated, and negations that are dropped."""
    for each in ast.walk(node):
        if not isinstance(each, (ast.If, ast.While, ast.IfExp)):
            continue
        test = each.test
        if test.lineno != test.end_lineno or test.end_col_offset is None:
            continue
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            yield Bug(test.lineno, test.col_offset, test.operand.col_offset, "")
        elif isinstance(test, (ast.Name, ast.Attribute, ast.Call)):
            yield Bug(test.lineno, test.col_offset, test.col_offset, "not ")


def _wrong_name(node: Function, _lines: list[str]) -> Iterator[Bug]:
    """Yield a local name in place of another, and a method or function in place of its opposite."""
    arguments = node.args
    known = {each.arg for each in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]}
    known |= {
        each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }
    known -= {"self", "cls", "_"}
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load) and each.end_col_offset is not None:
            span = (each.lineno, each.col_offset, each.end_col_offset)
            if each.id in known:
                yield from (Bug(*span, other) for other in sorted(known - {each.id})[:3])
            elif each.id in _NAMES:
                yield Bug(*span, _NAMES[each.id])
        elif isinstance(each, ast.Attribute) and each.attr in _NAMES and each.end_col_offset is not None:
            line = each.end_lineno or each.lineno
            yield Bug(line, each.end_col_offset - len(each.attr), each.end_col_offset, _NAMES[each.attr])


def _swapped_arguments(node: Function, lines: list[str]) -> Iterator[Bug]:
    for each in ast.walk(node):
        if not isinstance(each, ast.Call) or len(each.args) != 2 or each.keywords:
            continue
        first, second = each.args
        if first.lineno != second.end_lineno or any(isinstance(arg, ast.Starred) for arg in each.args):
            continue
        line = lines[first.lineno - 1]
        a, b = line[first.col_offset : first.end_col_offset], line[second.col_offset : second.end_col_offset]
        if second.end_col_offset is not None and a != b:
            gap = line[first.end_col_offset : second.col_offset]
            yield Bug(first.lineno, first.col_offset, second.end_col_offset, b + gap + a)


def _dropped_line(node: Function, lines: list[str]) -> Iterator[Bug]:
    """Yield simple statements that go, from bodies that keep another one."""
    for outer in ast.walk(node):
        for body in (getattr(outer, name, None) for name in ("body", "orelse")):
            if not isinstance(body, list) or len(body) < 2:
                continue
            for each in body:
                is_call = isinstance(each, ast.Expr) and isinstance(each.value, ast.Call)
                if (is_call or isinstance(each, (ast.AugAssign, ast.Continue))) and (
                    each.lineno == each.end_lineno and ";" not in lines[each.lineno - 1]
                ):
                    yield Bug(each.lineno, 0, 0, "", drops=1)


def _dropped_guard(node: Function, _lines: list[str]) -> Iterator[Bug]:
    """Yield cases that are forgotten: an `if` without `else` that only leaves, or goes on."""
    for outer in ast.walk(node):
        body = getattr(outer, "body", None)
        if not isinstance(body, list) or len(body) < 2:
            continue
        for each in body:
            if not isinstance(each, ast.If) or each.orelse or len(each.body) != 1 or not each.end_lineno:
                continue
            if isinstance(each.body[0], (ast.Return, ast.Raise, ast.Continue, ast.Break)):
                yield Bug(each.lineno, 0, 0, "", drops=each.end_lineno - each.lineno + 1)


def _dropped_call(node: Function, lines: list[str]) -> Iterator[Bug]:
    """Yield calls that are forgotten: `abs(x)` becomes `x`, `name.strip()` becomes `name`."""
    for each in ast.walk(node):
        if not isinstance(each, ast.Call) or each.keywords or each.lineno != each.end_lineno:
            continue
        kept: ast.expr | None = None
        if isinstance(each.func, ast.Name) and each.func.id in _WRAPPERS and len(each.args) == 1:
            kept = each.args[0]
        elif isinstance(each.func, ast.Attribute) and each.func.attr in _POLISHERS and not each.args:
            kept = each.func.value
        if kept is not None and kept.end_col_offset is not None and each.end_col_offset is not None:
            new = lines[each.lineno - 1][kept.col_offset : kept.end_col_offset]
            yield Bug(each.lineno, each.col_offset, each.end_col_offset, new)


def _dropped_term(node: Function, lines: list[str]) -> Iterator[Bug]:
    """Yield one side of a sum, a product or a condition that is forgotten."""
    for each in ast.walk(node):
        if isinstance(each, ast.BinOp) and isinstance(each.op, (ast.Add, ast.Sub, ast.Mult)):
            left = each.left
        elif isinstance(each, ast.BoolOp):
            left = each.values[0]
        else:
            continue
        if each.lineno == each.end_lineno and each.end_col_offset is not None:
            new = lines[each.lineno - 1][left.col_offset : left.end_col_offset]
            yield Bug(each.lineno, each.col_offset, each.end_col_offset, new)


MAKERS: tuple[Callable[[Function, list[str]], Iterator[Bug]], ...] = (
    *(_wrong_comparison, _wrong_operator, _wrong_constant, _wrong_condition),
    *(_wrong_name, _swapped_arguments, _dropped_line, _dropped_guard, _dropped_call, _dropped_term),
)
