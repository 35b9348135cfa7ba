"""Imports as a part of an edit: shown, written and undone with it."""

from collections.abc import Callable

from tests.agent.edits.repair.conftest import Bench
from vivace.agent.events import EditProposed, ImportsAdded

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
