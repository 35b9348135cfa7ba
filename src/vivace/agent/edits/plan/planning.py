"""From an instruction to the units that it needs: by words and code first, then by the model's scores.

Owns which evidence comes first. What words and code say costs no model at all, and an edit of one unit costs
what it did: the scores that choose it say too whether others are near. Does not rewrite (`edit`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from vivace.agent.edits.find.locate import Ranked, Scorer, rank, share_of_best, top_unit
from vivace.agent.edits.find.request import request_in
from vivace.agent.edits.find.units import Unit, new_unit_after
from vivace.agent.edits.plan.plan import CHOSEN, MAX_STEPS, NAMED, NEAR, Need, Step, covers, without_overlaps
from vivace.agent.edits.plan.renaming import can_rename, renamed
from vivace.agent.edits.plan.uses import units_passing, units_using
from vivace.agent.edits.plan.wording import (
    LOCAL_KINDS,
    Renaming,
    adds_and_uses,
    every_unit,
    listed_units,
    names_everywhere,
    only_renames,
    renamings,
    speaks_of_top,
    spoken_units,
    units_of_actors,
)
from vivace.agent.edits.scope import EditScope
from vivace.errors import PlaceUnclear

SPOKEN_NATS = 6.0  # a unit that the instruction names is meant, if the model's score is so near the best
NEAR_NATS = 0.5  # the same for one that it does not name
MAX_NEAR = 2  # of those
CLEAR_SHARE = 0.6  # of all probability, below which the best unit is not clearly best (benchmarks/results)
ASKED_PLACES = 3


async def make_plan(scorer: Scorer, scopes: Sequence[EditScope], instruction: str) -> list[Step]:
    """Return the units to rewrite, in order; at least one."""
    steps = plan_by_evidence(scopes, instruction)
    if not steps:
        for scope in scopes:
            steps += await _plan_by_model(scorer, scope, instruction, is_first=not steps)
    return without_overlaps(steps)


def plan_by_evidence(scopes: Sequence[EditScope], instruction: str) -> list[Step]:
    """Return what the user's own words and the code say, or nothing if they are silent. Asks no model."""
    named = [Step(scope, scope.unit, NAMED, "must") for scope in scopes if scope.unit]
    if named:
        return without_overlaps(named)
    asked = request_in(instruction)
    is_long = any(scope.favoured for scope in scopes)  # names in a long text are a part of its story
    if not is_long and (across := _listed_across(scopes, asked)):
        return without_overlaps(across)
    for find in (_renamed,) if is_long else (_renamed, _listed, _every, _everywhere):
        steps = without_overlaps(step for scope in scopes for step in find(scope, asked))
        if steps:
            steps = _with_texts(scopes, steps, asked) if find is _renamed else steps
            return steps if len(steps) <= MAX_STEPS else []
    return []


def _with_texts(scopes: Sequence[EditScope], steps: list[Step], instruction: str) -> list[Step]:
    """Return the steps of a renaming with their new texts, if it is nothing but a renaming."""
    wanted = renamings(instruction)
    if not only_renames(instruction) or not can_rename(scopes, wanted):
        return steps
    names = {each.old: each.new for each in wanted}
    return [replace(step, new_text=renamed(step.scope, step.unit, names)) for step in steps]


def _renamed(scope: EditScope, instruction: str) -> Iterable[Step]:
    """Yield the units that use a name which is to be changed."""
    for renaming in renamings(instruction):
        for unit in _users(scope, renaming, instruction):
            yield Step(scope, unit, f"uses {renaming.old}", "must")


def _users(scope: EditScope, renaming: Renaming, instruction: str) -> list[Unit]:
    """Return the units that use a name; of a variable or parameter, those inside of what it belongs to."""
    if scope.language is None:
        return []
    users = units_using(scope.source, scope.language, scope.units, renaming.old)
    owners = [each.unit for each in spoken_units(instruction, scope.units) if each.unit.name != renaming.old]
    if not renaming.kind.startswith(LOCAL_KINDS) or not owners:
        return users
    inside = [unit for unit in users if any(_is_in(unit, owner) for owner in owners)]
    if renaming.kind.startswith("variable"):
        return inside
    names = [owner.name for owner in owners]
    passing = units_passing(scope.source, scope.language, scope.units, names, renaming.old)
    return sorted({*inside, *passing}, key=lambda unit: unit.first_line)


def _is_in(unit: Unit, owner: Unit) -> bool:
    return owner.first_line <= unit.first_line and unit.last_line <= owner.last_line


def _listed(scope: EditScope, instruction: str) -> Iterable[Step]:
    listed = listed_units(instruction, spoken_units(instruction, scope.units))
    steps = [Step(scope, unit, NAMED, "must") for unit in listed]
    if steps and adds_and_uses(instruction):
        place = new_unit_after(_above(scope.units, min(unit.first_line for unit in listed)))
        return [Step(scope, place, "new", "must"), *steps]
    return steps


def _listed_across(scopes: Sequence[EditScope], instruction: str) -> list[Step]:
    """Return the units that the instruction lists, where they are in several files."""
    held = {id(unit): scope for scope in scopes for unit in scope.units}
    if len(scopes) < 2 or renamings(instruction):
        return []
    units = [unit for scope in scopes for unit in scope.units]
    listed = listed_units(instruction, spoken_units(instruction, units))
    steps = [Step(held[id(unit)], unit, NAMED, "must") for unit in listed]
    return steps if len({step.scope.source.path for step in steps}) > 1 else []


def _above(units: Sequence[Unit], line: int) -> Unit:
    """Return the outermost unit that ends before a line, or else the first unit of the file."""
    outermost = [unit for unit in units if not unit.parent]
    above = [unit for unit in outermost if unit.last_line < line]
    return above[-1] if above else outermost[0]


def _every(scope: EditScope, instruction: str) -> Iterable[Step]:
    units = every_unit(instruction, scope.units) or units_of_actors(instruction, scope.units)
    return [Step(scope, unit, "one of all", "may") for unit in units] if len(units) > 1 else []


def _everywhere(scope: EditScope, instruction: str) -> Iterable[Step]:
    if scope.language is None:
        return
    top = top_unit(scope.source, scope.units)
    if top and speaks_of_top(instruction) and names_everywhere(instruction):
        yield Step(scope, top, "the top of the file", "may")
    for name in names_everywhere(instruction):
        for unit in units_using(scope.source, scope.language, scope.units, name):
            yield Step(scope, unit, f"uses {name}", "may")


async def _plan_by_model(scorer: Scorer, scope: EditScope, instruction: str, *, is_first: bool) -> list[Step]:
    """Return the unit that scores best, then those that are named or score nearly as well."""
    best, *others = ranked = await rank(scorer, scope.source, scope.units, instruction)
    if scope.is_found:
        _check_clear(scope, ranked, instruction)
    need: Need = "must" if is_first else "may"
    steps = [Step(scope, best.unit, CHOSEN, need)]
    is_new = best.unit.kind == "new"
    asked = request_in(instruction)
    if best.unit.kind == "file" or scope.favoured or (is_new and not adds_and_uses(asked)):
        return steps
    if is_new:
        best = others[0]  # how well the place scores says nothing about the others
        others = [best, *others[1:]]
    spoken = [
        each.unit
        for each in spoken_units(asked, scope.units)
        if not each.is_reference and not (each.is_place and covers(each.unit, best.unit))
    ]
    near = [
        Step(
            scope,
            each.unit,
            NAMED if each.unit in spoken else NEAR,
            "may" if each.unit in spoken else "guess",
        )
        for each in others
        if _is_meant(best, each, is_spoken=each.unit in spoken)
    ]
    named, guessed = (
        [each for each in near if each.need == "may"],
        [each for each in near if each.need == "guess"],
    )
    if steps[0].unit.kind == "lines" and named:
        steps = []  # the top of the file scores well for whatever concerns several units
    return _in_order([*steps, *named, *guessed[:MAX_NEAR]])


def _check_clear(scope: EditScope, ranked: Sequence[Ranked], instruction: str) -> None:
    """Raise `PlaceUnclear` if the best unit is not clearly best.

    A name in a request is clear. In a long text it is not where the words favour other units, nor is a
    class: one of its methods is meant.
    """
    best = ranked[0].unit
    if best.kind in ("new", "file"):
        return
    favoured = [each.unit for each in ranked if each.unit.qualified_name in scope.favoured]
    holds_units = any(each.parent == best.qualified_name for each in scope.units)
    if not scope.favoured or (best in favoured and not holds_units):
        spoken = [each.unit for each in spoken_units(request_in(instruction), scope.units)]
        if best in spoken or share_of_best(ranked) >= CLEAR_SHARE:
            return
    rest = [each.unit for each in ranked if each.unit.kind not in ("new", "file")]
    parts = dict.fromkeys([best, *favoured, *rest])
    places = [_mention(scope, unit) for unit in list(parts)[:ASKED_PLACES]]
    if len(places) > 1:
        raise PlaceUnclear(places)


def _mention(scope: EditScope, unit: Unit) -> str:
    """Return the unit as a user would mention it: by its lines where its name says too little."""
    is_named = [each.qualified_name for each in scope.units].count(unit.qualified_name) == 1
    return f"{scope.source.path}:{unit.qualified_name if is_named else unit.lines_text}"


def _is_meant(best: Ranked, other: Ranked, *, is_spoken: bool) -> bool:
    if other.unit.kind in ("file", "lines") or (covers(other.unit, best.unit) and not is_spoken):
        return False
    return other.nats >= best.nats - (SPOKEN_NATS if is_spoken else NEAR_NATS)


def _in_order(steps: Sequence[Step]) -> list[Step]:
    """Return something new first, since others use it, then the rest from the top of the file."""
    return sorted(steps, key=lambda step: (step.unit.kind != "new", step.unit.first_line))
