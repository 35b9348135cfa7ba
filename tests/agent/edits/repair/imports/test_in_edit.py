"""Imports as a part of an edit: shown, written and undone with it."""

from collections.abc import Callable

import pytest

from tests.agent.edits.repair.conftest import Bench
from vivace.agent.events.edit import EditProposed, ImportsAdded
from vivace.errors import EditRejected

OLD = '"""Numbers."""\n\nimport os\n\n\ndef other():\n    return os\n\n\ndef double(x):\n    return x\n'


async def test_an_import_is_a_part_of_the_proposal(bench: Callable[..., Bench]) -> None:
    """The unit and the import block are two hunks of one proposal, and one undo takes both back."""
    desk = bench(OLD, "def double(x):\n    return json.loads(x)\n")
    await desk.edit("read it as JSON", "low")
    new = desk.file.read_text()
    assert new == OLD.replace("import os", "import json\nimport os").replace(
        "return x", "return json.loads(x)"
    )
    [added] = [event for event in desk.shown.events if isinstance(event, ImportsAdded)]
    assert added.lines == ("import json",)
    [proposed] = [event for event in desk.shown.events if isinstance(event, EditProposed)]
    assert len(proposed.proposal.hunks) == 2
    desk.journal.undo()
    assert desk.file.read_text() == OLD


async def test_the_hunk_of_the_unit_can_be_taken_alone(bench: Callable[..., Bench]) -> None:
    """A user who imports the name in another way leaves the import's hunk."""
    desk = bench(OLD, "def double(x):\n    return json.loads(x)\n")
    await desk.edit("read it as JSON", "low")
    [proposed] = [event for event in desk.shown.events if isinstance(event, EditProposed)]
    alone = proposed.proposal.with_hunks(frozenset({1}))
    assert alone.problems == ()
    assert alone.files[0].new_bytes.decode() == OLD.replace("return x", "return json.loads(x)")


async def test_names_that_stay_undefined_are_told_and_not_written(bench: Callable[..., Bench]) -> None:
    """A name without a known import is a fault: the edit is shown with it, and `--yes` does not write it."""
    desk = bench(OLD, "def double(x):\n    return json.loads(frobnicate(x))\n")
    with pytest.raises(EditRejected, match=r"`frobnicate` is not defined in app\.py"):
        await desk.edit("read it as JSON", "low")
    [proposed] = [event for event in desk.shown.events if isinstance(event, EditProposed)]
    assert proposed.proposal.faults == ("`frobnicate` is not defined in app.py.",)
    assert desk.file.read_text() == OLD


async def test_names_that_were_undefined_before_are_not_told(bench: Callable[..., Bench]) -> None:
    """What the file lacked before the edit is not the edit's fault."""
    desk = bench(OLD.replace("return os", "return os, elsewhere"), "def double(x):\n    return 2 * x\n")
    await desk.edit("double it", "low")
    [proposed] = [event for event in desk.shown.events if isinstance(event, EditProposed)]
    assert proposed.proposal.faults == ()
