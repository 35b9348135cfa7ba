"""Requests that a program can carry out to the letter: the target is exact, the wordings are several.

Owns the requests, their wordings and their targets. Some are made backwards: the function as it is, is the
target, and what was there before is made. Python only; nothing is run.
"""

import random
from collections.abc import Callable, Iterator

from vivace.agent.edits.find.units import Unit
from vivace.training.data.bugs import Function
from vivace.training.data.edits_of_bodies import EDITS_OF_BODIES
from vivace.training.data.edits_of_signatures import EDITS_OF_SIGNATURES
from vivace.training.data.exact import Exact, Lines
from vivace.training.data.mutations import functions_of, parsed
from vivace.training.data.pairs import Kind, Origin, Outlined, Pair

Maker = Callable[[Function, Lines, random.Random], Iterator[Exact]]
MAKERS: tuple[Maker, ...] = (*EDITS_OF_BODIES, *EDITS_OF_SIGNATURES)
OPEN = (
    *("Optimize {name}.", "Add error handling to {name}.", "Add comments to {name}.", "Simplify {name}."),
    *("{name} should handle empty input", "Validate the arguments of {name}.", "Add type hints to {name}."),
    *("Make {name} easier to read.", "Use clearer variable names in {name}.", "Add a docstring to {name}."),
    *("Rewrite {name} without a loop if that is possible.", "Return early in {name} where it helps."),
    *("Make {name} raise ValueError for invalid input.", "{name} should also accept None"),
    *("Refactor {name} so that it is shorter.", "Make {name} faster without changing what it returns."),
)


def edit_functions(origin: Origin, chance: random.Random, most: int = 2) -> Iterator[Pair]:
    """Yield functions of a file with a request that has one exact answer, at most `most` of them."""
    found = 0
    for file, unit, node in functions_of(origin, chance):
        if pair := _edited(origin, file, unit, node, chance):
            yield pair
            found += 1
            if found == most:
                return


def ask_openly(origin: Origin, chance: random.Random) -> Iterator[Pair]:
    """Yield one function of a file with a request that has many answers; its `after` is its text as it is."""
    for file, unit, node in functions_of(origin, chance):
        text = file.source.text_of(unit.first_line, unit.last_line)
        instruction = chance.choice(OPEN).format(name=node.name)
        if file.can_begin(unit, instruction, text):
            yield _pair(origin, "open", file.source.text, unit, unit.last_line, instruction, text)
        return


def _edited(origin: Origin, file: Outlined, unit: Unit, node: Function, chance: random.Random) -> Pair | None:
    lines = Lines(list(file.source.lines[unit.first_line - 1 : unit.last_line]), unit.first_line)
    makers = list(MAKERS)
    chance.shuffle(makers)
    for make in makers:
        found = list(make(node, lines, chance))
        if not found:
            continue
        exact = chance.choice(found)
        text = "".join(f"{line}\n" for line in exact.after)
        old = file.source.lines
        before = [*old[: unit.first_line - 1], *exact.before, *old[unit.last_line :]]
        whole = "\n".join(before) + "\n"
        changed = [*old[: unit.first_line - 1], *exact.after, *old[unit.last_line :]]
        if list(exact.before) == list(exact.after) or not _parse(whole, "\n".join(changed) + "\n"):
            continue
        last = unit.first_line + len(exact.before) - 1
        again = Outlined(origin.path, whole)
        spans = {(each.first_line, each.last_line): each for each in again.units}
        same = spans.get((unit.first_line, last))
        instruction = exact.instruction(node.name, chance)
        if same is not None and again.can_begin(same, instruction, text):
            return _pair(origin, "edit", whole, same, last, instruction, text)
    return None


def _parse(*texts: str) -> bool:
    return all(parsed(text) is not None for text in texts)


def _pair(origin: Origin, kind: Kind, file: str, unit: Unit, last: int, instruction: str, after: str) -> Pair:
    return Pair(
        *(origin.repo, origin.licence, origin.name, origin.split, kind),
        path=origin.path,
        file=file,
        unit=unit.qualified_name,
        first_line=unit.first_line,
        last_line=last,
        instruction=instruction,
        after=after,
    )
