"""What becomes of an answer that newly breaks something: repaired, passed over, or shown with its fault."""

import asyncio
from collections.abc import Callable

import pytest

from tests.agent.edits.repair.conftest import Bench
from tests.agent.edits.test_flow import HANG_S, Recorder
from vivace.agent.edits.find.target import parse_target
from vivace.agent.edits.flow import EditTask, run_edit
from vivace.agent.edits.proposal import Accept
from vivace.agent.edits.scope import read_scope
from vivace.agent.events.edit import EditProposed, RepairStarted
from vivace.errors import EditRejected

OLD = "def double(x):\n    t = None\n    if x:\n        t = x\n    return t\n"
DROPPED = OLD.replace("    t = None\n", "").replace("t = x", "t = 2 * x")
GOOD = OLD.replace("t = x", "t = 2 * x")
FAULT = "`double` reads `t`, which may have no value: an assignment of it is gone."


async def test_a_fault_is_told_and_mended(bench: Callable[..., Bench]) -> None:
    """At medium an answer that drops a needed line is written once more; the sound one is taken."""
    desk = bench(OLD, DROPPED, GOOD)
    await desk.edit("double it", "medium")
    [repair] = [event for event in desk.shown.events if isinstance(event, RepairStarted)]
    assert repair.complaint == f"Your answer cannot run. {FAULT}"
    assert desk.file.read_text() == GOOD


async def test_a_fault_that_stays_is_shown_and_not_written(bench: Callable[..., Bench]) -> None:
    """Yes was said beforehand, to an edit that works."""
    desk = bench(OLD, DROPPED)
    with pytest.raises(EditRejected, match="shown above, would break something: `double` reads `t`"):
        await desk.edit("double it", "medium")
    [proposed] = [event for event in desk.shown.events if isinstance(event, EditProposed)]
    assert proposed.proposal.faults == (FAULT,)
    assert desk.file.read_text() == OLD


async def test_a_person_may_take_it(bench: Callable[..., Bench]) -> None:
    """Whoever is asked sees the fault with the diff, and decides."""
    desk = bench(OLD, DROPPED)
    presenter = Recorder(Accept())
    scope = read_scope(parse_target(f"{desk.file}:double"), to_write=True)
    async with asyncio.timeout(HANG_S):
        await run_edit(EditTask((scope,), "double it", "ask", "low"), desk.model, presenter, desk.journal)
    [asked] = presenter.asked
    assert asked.faults == (FAULT,)
    assert desk.file.read_text() == DROPPED
