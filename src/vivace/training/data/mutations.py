"""Functions of real projects with one bug put in: the answer is the function as its authors wrote it.

Owns which functions are broken and what is asked. A mutated function parses and differs; nothing is run, so
some bugs cannot be told from the code alone. Python only.
"""

import ast
import random
import warnings
from collections.abc import Iterator

from vivace.agent.edits.find.units import Unit
from vivace.training.data.bugs import MAKERS, Function
from vivace.training.data.pairs import Origin, Outlined, Pair

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


def break_functions(origin: Origin, chance: random.Random, most: int = 2) -> Iterator[Pair]:
    """Yield functions of a file, each with one bug, at most `most` of them."""
    found = 0
    for file, unit, node in functions_of(origin, chance):
        if pair := _broken(origin, file, unit, node, chance):
            yield pair
            found += 1
            if found == most:
                return


def functions_of(origin: Origin, chance: random.Random) -> Iterator[tuple[Outlined, Unit, Function]]:
    """Yield the functions of a file that have something in them that can be wrong, in random order."""
    tree = parsed(origin.text)
    if tree is None or not origin.path.endswith(".py") or not origin.text.isascii():
        return
    file = Outlined(origin.path, origin.text)
    functions = {_first_line(node): node for node in ast.walk(tree) if isinstance(node, Function)}
    units = [unit for unit in file.units if unit.kind in ("function", "method")]
    units = [unit for unit in units if unit.last_line - unit.first_line + 1 in LINES]
    chance.shuffle(units)
    for unit in units:
        node = functions.get(unit.first_line)
        if node is not None and not node.name.startswith("__") and _computes(node):
            yield file, unit, node


def _broken(origin: Origin, file: Outlined, unit: Unit, node: Function, chance: random.Random) -> Pair | None:
    lines = list(file.source.lines)
    right = file.source.text_of(unit.first_line, unit.last_line)
    makers = list(MAKERS)
    chance.shuffle(makers)
    for make in makers:
        bugs = [bug for bug in make(node, lines) if bug.line > node.body[0].lineno - 1]
        if not bugs:
            continue
        broken = chance.choice(bugs).applied(lines)
        tree = parsed("\n".join(broken) + "\n")
        if tree is None or broken == lines:
            continue
        removed = len(lines) - len(broken)
        instruction = _instruction(node, origin.said, chance)
        pair = Pair(
            *(origin.repo, origin.licence, origin.name, origin.split, "mutation"),
            path=origin.path,
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


def _instruction(node: Function, said: str, chance: random.Random) -> str:
    said = said or ast.get_docstring(node) or ""
    if said and len(said) <= MAX_DOC_CHARS and chance.random() < 0.5:
        return chance.choice(DESCRIBED).format(name=node.name, said=said)
    return chance.choice(WORDINGS).format(name=node.name)


def _computes(node: Function) -> bool:
    """Return whether a function has something in it that can be wrong."""
    kinds = (ast.Return, ast.Yield, ast.Assign, ast.AugAssign, ast.If, ast.For, ast.While)
    return sum(isinstance(each, kinds) for each in ast.walk(node)) >= 2


def parsed(text: str) -> ast.Module | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def _first_line(node: Function) -> int:
    return min([node.lineno, *(each.lineno for each in node.decorator_list)])
