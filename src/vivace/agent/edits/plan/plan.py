"""The units that an edit rewrites, in order, and why each of them.

Owns what a step is and that no two overlap: a class covers its methods. Does not find the units (`planning`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from vivace.agent.edits.find.units import Unit
from vivace.agent.edits.scope import EditScope

MAX_STEPS = 12  # more units than this are no plan: the model chooses one, as without a plan

# must: the user's words or the code say so. may: it is one of those meant, and perhaps needs no change.
# guess: the model's scores alone speak for it.
Need = Literal["must", "may", "guess"]


@dataclass(frozen=True)
class Step:
    """One unit to rewrite, in its file as it was read."""

    scope: EditScope
    unit: Unit
    why: str  # for people, such as "calls load"
    need: Need
    new_text: str | None = None  # if it is known without the model

    @property
    def was_ranked(self) -> bool:
        """Return whether the model chose the unit."""
        return self.why in (CHOSEN, NEAR)


CHOSEN, NEAR, NAMED = "chosen by the model", "nearly chosen by the model", "named"


def without_overlaps(steps: Iterable[Step]) -> list[Step]:
    """Return the steps in their order, without those that another one covers."""
    kept: list[Step] = []
    for step in steps:
        over = [each for each in kept if each.scope.source.path == step.scope.source.path]
        if any(covers(each.unit, step.unit) for each in over):
            continue
        kept = [each for each in kept if each not in over or not covers(step.unit, each.unit)]
        kept.append(step)
    return kept


def covers(outer: Unit, inner: Unit) -> bool:
    """Return whether all lines of `inner` are in `outer`; for a new unit, whether its place is within."""
    first, last = outer.first_line, outer.last_line
    return first <= inner.first_line <= last and first <= inner.last_line <= last


def overlap(one: Unit, other: Unit) -> bool:
    """Return whether one of them covers the other, or they share lines."""
    shares = max(one.first_line, other.first_line) <= min(one.last_line, other.last_line)
    return shares or covers(one, other) or covers(other, one)
