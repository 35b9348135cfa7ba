"""Edits through an editor: a tool call with a growing diff, a question, the file written by the client."""

import asyncio
from pathlib import Path

import pytest
from acp import RequestError, resource_block
from acp.helpers import embedded_text_resource, resource_link_block
from acp.schema import FileEditToolCallContent

from tests.acp.conftest import Open, Wire
from tests.acp.editor import FILES
from tests.agent.conversation.talking import EDITING, read, write
from tests.agent.edits.test_flow import ANSWER, FIRST_ONLY, NEW, OLD


@pytest.fixture
def task(folder: Path) -> Path:
    file = folder / "task.py"
    file.write_text(OLD)
    return file


def diffs(wire: Wire) -> list[FileEditToolCallContent]:
    """The last diff that each call has shown."""
    shown = []
    for updates in wire.client.calls.values():
        content = [each.content for each in updates if each.content]
        shown += [each for each in (content[-1] if content else []) if each.type == "diff"]
    return shown


async def test_an_edit_is_shown_asked_about_and_written(open_wire: Open, task: Path) -> None:
    """One tool call from its beginning to its end; the question shows the whole diff; undo takes it back."""
    wire = await open_wire(EDITING)
    assert await wire.prompt("make @task.py:show shout") == "end_turn"
    assert read(task) == NEW
    ((updates),) = wire.client.calls.values()
    assert updates[0].status == "in_progress"
    assert updates[-1].status == "completed"
    assert updates[-1].title == "Edit task.py: show"
    assert updates[0].kind == "edit"
    (shown,) = diffs(wire)
    assert (shown.path, shown.old_text, shown.new_text) == (str(task), OLD, NEW)
    ((call, options),) = wire.client.asked
    assert call.tool_call_id == updates[0].tool_call_id
    assert [option.option_id for option in options] == ["accept", "accept_all", "by_hunk", "reject"]
    assert "Wrote task.py, not run: /undo takes it back." in wire.client.said
    assert await wire.prompt("/undo") == "end_turn"
    assert read(task) == OLD
    assert "Took back the change to task.py" in wire.client.said


async def test_a_place_that_is_not_clear_is_chosen_by_a_number(open_wire: Open, folder: Path) -> None:
    """The places are said, and the prompt ends like any other; the next one is a number, and edits there."""
    for name in ("ant", "bee", "cat", "dog"):
        (folder / name).mkdir()
        write(folder / name / "task.py", OLD)
    wire = await open_wire(EDITING)
    assert await wire.prompt("make `show` shout") == "end_turn"
    assert "Answer with a number" in wire.client.said
    second = wire.client.said.partition("2. ")[2].partition(";")[0].partition(":")[0]
    assert await wire.prompt("2") == "end_turn"
    assert read(folder / second) == NEW


@pytest.mark.parametrize("answer", ["reject_once", "cancelled"])
async def test_a_rejected_edit_leaves_the_file(open_wire: Open, task: Path, answer: str) -> None:
    """The call has failed, and the turn ends as any other."""
    wire = await open_wire(EDITING)
    wire.client.answers = [answer]
    assert await wire.prompt("make @task.py:show shout") == "end_turn"
    assert read(task) == OLD
    ((updates),) = wire.client.calls.values()
    assert updates[-1].status == "failed"


async def test_yes_to_all_asks_once(open_wire: Open, task: Path) -> None:
    """The second edit of the session is written without a question."""
    wire = await open_wire(EDITING)
    wire.client.answers = ["allow_always"]
    await wire.prompt("make @task.py:show shout")
    await wire.prompt("/undo")
    await wire.prompt("make @task.py:show shout")
    assert read(task) == NEW
    assert len(wire.client.asked) == 1


async def test_the_client_writes_the_file(open_wire: Open, task: Path) -> None:
    """Its unsaved text is what is edited, and it writes: so an editor can offer keep and reject."""
    wire = await open_wire(EDITING, FILES)
    unsaved = f"import os\n\n\n{OLD}"
    wire.client.buffers[str(task)] = unsaved
    assert await wire.prompt("make @task.py:show shout") == "end_turn"
    assert wire.client.written == [str(task)]
    assert wire.client.buffers[str(task)] == read(task) == unsaved.replace(OLD, NEW)
    await wire.prompt("/undo")
    assert read(task) == unsaved


async def test_a_client_that_does_not_write_is_an_error(open_wire: Open, task: Path) -> None:
    """The prompt fails with the client's words; the file is as it was."""
    wire = await open_wire(EDITING, FILES)
    wire.client.refuses_writes = True
    with pytest.raises(RequestError, match="the buffer is read-only"):
        await wire.prompt("make @task.py:show shout")
    assert read(task) == OLD
    ((updates),) = wire.client.calls.values()
    assert updates[-1].status == "failed"


async def test_cancel_at_the_question_leaves_the_file(open_wire: Open, task: Path) -> None:
    """A client that cancels while it asks need not answer; the call has failed."""
    wire = await open_wire(EDITING)
    wire.client.never_answers = True
    running = asyncio.create_task(wire.prompt("make @task.py:show shout"))
    await wire.client.until(lambda: bool(wire.client.asked))
    await wire.agent.cancel(session_id=wire.session)
    assert await running == "cancelled"
    assert read(task) == OLD
    ((updates),) = wire.client.calls.values()
    assert updates[-1].status == "failed"


async def test_a_conflict_is_asked_about(open_wire: Open, task: Path) -> None:
    """A file that changed in the same lines meanwhile is left, if the user says so."""
    wire = await open_wire(EDITING)
    mine = OLD.replace("print(task.title)", "print(mine)")
    wire.client.answers = ["accept", "file"]
    wire.client.on_asked = lambda: write(task, mine)
    assert await wire.prompt("make @task.py:show shout") == "end_turn"
    assert len(wire.client.asked) == 2
    assert "same lines" in wire.client.said
    assert read(task) == mine


async def test_a_link_and_an_embedded_file_are_mentions(open_wire: Open, task: Path) -> None:
    """A linked file is read from disk; an embedded one counts as it was sent, also for an edit."""
    replies = {"Task: ": ANSWER, "import os": "I see the import.", "def show": "I see show."} | EDITING
    wire = await open_wire(replies)
    assert await wire.prompt("What is in ", resource_link_block("task.py", task.as_uri())) == "end_turn"
    assert wire.client.said == "I see show."
    wire.client.updates.clear()
    sent = resource_block(embedded_text_resource(task.as_uri(), f"import os\n\n\n{OLD}"))
    await wire.prompt("What is in this now: ", sent)
    assert wire.client.said == "I see the import."


@pytest.mark.usefixtures("task")
async def test_a_growing_diff_is_whole_in_each_update(
    open_wire: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every update has the old lines that were passed and all new ones so far."""
    monkeypatch.setattr("vivace.acp.presenting.edit_call.GROWS_S", 0.0)
    wire = await open_wire(EDITING, step_ms=20)  # a slow machine may put quick ones together
    await wire.prompt("make @task.py:show shout")
    ((updates),) = wire.client.calls.values()
    texts = [each.content[0].new_text for each in updates if each.content]
    assert len(texts) > 3
    assert [text for text in texts if not NEW.startswith(text.removesuffix("\n"))] == []
    assert texts[-1] == NEW


SECOND_ONLY = NEW.replace("print(task.title.upper())", "print(task.title)", 1)


@pytest.mark.parametrize(
    ("answers", "result", "statuses"),
    [
        (["keep", "leave"], FIRST_ONLY, ["completed", "failed"]),
        (["leave", "keep"], SECOND_ONLY, ["failed", "completed"]),
        (["keep_rest"], NEW, ["completed"]),
        (["keep", "keep"], NEW, ["completed", "completed"]),
        (["leave_rest"], OLD, ["failed"]),
        (["keep", "cancelled"], OLD, ["completed", "failed"]),
    ],
)
async def test_an_edit_is_reviewed_by_hunk(
    open_wire: Open, task: Path, answers: list[str], result: str, statuses: list[str]
) -> None:
    """Each change is a call with a diff and a question of its own; only what is kept is written."""
    wire = await open_wire(EDITING)
    wire.client.answers = ["by_hunk", *answers]
    assert await wire.prompt("make @task.py:show shout") == "end_turn"
    assert read(task) == result
    whole, *hunks = wire.client.calls.values()
    assert [updates[-1].status for updates in hunks] == statuses
    assert hunks[0][0].title == "Change 1 of 2: task.py, line 2"
    (first,) = hunks[0][0].content
    assert (first.path, "upper" in first.old_text, "upper" in first.new_text) == (str(task), False, True)
    assert whole[-1].status == ("failed" if result == OLD else "completed")
    if result != OLD:
        assert whole[-1].content[0].new_text == result


async def test_an_edit_with_one_change_is_not_offered_by_hunk(open_wire: Open, task: Path) -> None:
    """There is nothing to choose from."""
    wire = await open_wire(EDITING | {"Task: ": ANSWER.replace(NEW, FIRST_ONLY)})
    assert await wire.prompt("make @task.py:show shout") == "end_turn"
    ((_, options),) = wire.client.asked
    assert "by_hunk" not in [option.option_id for option in options]
    assert read(task) == FIRST_ONLY
