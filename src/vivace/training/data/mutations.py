"""Functions of real projects with one bug put in: the answer is the function as its authors wrote it.

Owns the bugs and where they go. A mutated function parses and differs in its syntax tree; nothing is run, so
some bugs cannot be told from the code alone. Python only.
"""

import ast
import random
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

from vivace.agent.edits.find.units import Unit
from vivace.training.data.commits import Commit
from vivace.training.data.pairs import Outlined, Pair

LINES = range(4, 41)
WORDINGS = (
    "Fix the bug in {name}.",
    "There is a bug in {name}. Fix it.",
    "{name} returns wrong results, please fix it",
    "fix {name}",
    "{name} is broken. Make it correct.",
)
DESCRIBED = (
    "Fix the bug in {name}. It should do this:\n{said}",
    "{name} does not do what it should: {said}",
)
MAX_DOC_CHARS = 600
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

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Bug(NamedTuple):
    """Text that takes the place of another, on one line."""

    line: int  # from 1
    start: int  # in characters
    end: int
    new: str  # None of it: the whole line goes if `drops_line`
    drops_line: bool = False


def break_functions(commit: Commit, chance: random.Random, most: int = 2) -> Iterator[Pair]:
    """Yield functions of the commit's first file, each with one bug, at most `most` of them."""
    changed = commit.files[0]
    tree = _parsed(changed.before)
    if tree is None or not changed.path.endswith(".py") or not changed.before.isascii():
        return
    file = Outlined(changed.path, changed.before)
    functions = {_first_line(node): node for node in ast.walk(tree) if isinstance(node, Function)}
    units = [unit for unit in file.units if unit.kind in ("function", "method")]
    units = [unit for unit in units if unit.last_line - unit.first_line + 1 in LINES]
    chance.shuffle(units)
    found = 0
    for unit in units:
        node = functions.get(unit.first_line)
        if node is None or node.name.startswith("__") or not _computes(node):
            continue
        if pair := _broken(commit, file, unit, node, chance):
            yield pair
            found += 1
            if found == most:
                return


def _broken(commit: Commit, file: Outlined, unit: Unit, node: Function, chance: random.Random) -> Pair | None:
    lines = list(file.source.lines)
    right = file.source.text_of(unit.first_line, unit.last_line)
    makers = list(_MAKERS)
    chance.shuffle(makers)
    for make in makers:
        bugs = [bug for bug in make(node, lines) if bug.line > node.body[0].lineno - 1]
        if not bugs:
            continue
        broken = _applied(lines, chance.choice(bugs))
        tree = _parsed("\n".join(broken) + "\n")
        if tree is None or broken == lines:
            continue
        removed = len(lines) - len(broken)
        instruction = _instruction(node, chance)
        pair = Pair(
            *(commit.repo, commit.licence, commit.commit, commit.split, "mutation"),
            path=commit.files[0].path,
            file="\n".join(broken) + "\n",
            unit=unit.qualified_name,
            first_line=unit.first_line,
            last_line=unit.last_line - removed,
            instruction=instruction,
            after=right,
        )
        again = Outlined(pair.path, pair.file)
        spans = {(each.first_line, each.last_line): each for each in again.units}
        same = spans.get((pair.first_line, pair.last_line))
        if same is not None and again.can_begin(same, instruction, right):
            return pair
    return None


def _instruction(node: Function, chance: random.Random) -> str:
    said = ast.get_docstring(node) or ""
    if said and len(said) <= MAX_DOC_CHARS and chance.random() < 0.5:
        return chance.choice(DESCRIBED).format(name=node.name, said=said)
    return chance.choice(WORDINGS).format(name=node.name)


def _computes(node: Function) -> bool:
    """Return whether a function has something in it that can be wrong."""
    kinds = (ast.Return, ast.Yield, ast.Assign, ast.AugAssign, ast.If, ast.For, ast.While)
    return sum(isinstance(each, kinds) for each in ast.walk(node)) >= 2


def _parsed(text: str) -> ast.Module | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def _first_line(node: Function) -> int:
    return min([node.lineno, *(each.lineno for each in node.decorator_list)])


def _applied(lines: list[str], bug: Bug) -> list[str]:
    at = bug.line - 1
    if bug.drops_line:
        return [*lines[:at], *lines[at + 1 :]]
    return [*lines[:at], lines[at][: bug.start] + bug.new + lines[at][bug.end :], *lines[at + 1 :]]


# ---- the bugs --------------------------------------------------------------------------------------


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
                    yield Bug(each.lineno, 0, 0, "", drops_line=True)


_MAKERS: tuple[Callable[[Function, list[str]], Iterator[Bug]], ...] = (
    *(_wrong_comparison, _wrong_operator, _wrong_constant, _wrong_condition),
    *(_wrong_name, _swapped_arguments, _dropped_line),
)
