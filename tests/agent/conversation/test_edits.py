"""Edits as turns: which file and unit, what the model is told of them, and taking them back."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.conversation.talking import EDITING, Face, read, write
from tests.agent.edits.editors import FakeEditor
from tests.agent.edits.test_flow import ANSWER, NEW, OLD
from vivace.agent.conversation.conversation import Conversation
from vivace.agent.conversation.transcript.history import EditResult, Turn
from vivace.agent.conversation.turns.editing import refers_back
from vivace.agent.conversation.undoing import nth_entry
from vivace.agent.edits.apply.files import OpenFiles
from vivace.agent.edits.proposal import Reject
from vivace.agent.events.edit import (
    DiffGrew,
    EditApplied,
    EditProposed,
    UnitLocated,
)
from vivace.agent.events.turn import AttemptAbandoned, FileChosen, IntentDecided
from vivace.errors import FileProblem, NothingToUndo, UsageError

Begin = Callable[..., Conversation]


async def test_an_instruction_becomes_an_edit(begin: Begin, face: Face, task: Path) -> None:
    """A message that asks for a change edits the file that it mentions, and the next answer knows of it."""
    talk = begin(EDITING)
    turn = await talk.send("make @task.py:show shout")
    assert (turn.kind, turn.status, read(task)) == ("edit", "completed", NEW)
    assert face.seen(IntentDecided) == [IntentDecided("edit", "words")]
    assert turn.edits[0].outcome == "applied"
    assert (await talk.send("What did you do?")).answer == "I know it was accepted."


async def test_a_rejected_edit_is_told(begin: Begin, face: Face, task: Path) -> None:
    """A rejection with its reason leaves the file alone, and the next answer and edit know of it."""
    talk = begin(EDITING)
    face.decisions = [Reject("too loud")]
    turn = await talk.send("make @task.py:show shout")
    assert (turn.edits[0].outcome, turn.edits[0].reason, read(task)) == ("rejected", "too loud", OLD)
    assert (await talk.send("What did I say?")).answer == "I know it was rejected."


async def test_the_recent_file_is_edited_again(begin: Begin, face: Face, task: Path, folder: Path) -> None:
    """Without a mention an edit is about the file that was spoken of last."""
    (folder / "other.py").write_text("def other():\n    pass\n")
    talk = begin(EDITING)
    await talk.send("What is @task.py:show for?")
    await talk.send("make it shout")
    assert face.seen(FileChosen) == [FileChosen(str(task), "recent")]
    assert read(task) == NEW


async def test_it_is_what_was_edited_before(begin: Begin, face: Face, task: Path) -> None:
    """An instruction that refers back is about the same unit, and tells the model what was asked before."""
    write(task, OLD + "\n\ndef other():\n    pass\n")
    talk = begin(EDITING)
    face.decisions = [Reject("too loud")]
    await talk.send("make @task.py:show shout")
    turn = await talk.send("do it again")
    assert [edit.unit for edit in turn.edits] == ["show"]
    assert [located.was_ranked for located in face.seen(UnitLocated)] == [False, False]
    told = "do it again\n(Before, I asked: make @task.py:show shout I rejected your change. too loud)"
    assert face.seen(EditApplied)[0].proposal.files[0].instruction == told


@pytest.mark.parametrize(
    ("instruction", "is_so"),
    [
        ("shorten it", True),
        ("no, keep that name", True),
        ("make `load` shorter", False),
        ("add a function that reads it", False),
        ("rename x to y", False),
        ("fix app.py instead", False),
    ],
)
def test_what_refers_back(instruction: str, is_so: bool) -> None:
    """A pronoun refers back, unless something is named."""
    assert refers_back(instruction) is is_so


async def test_the_only_file_with_the_name_is_edited(
    begin: Begin, face: Face, task: Path, folder: Path
) -> None:
    """A name in the instruction finds its file."""
    (folder / "other.py").write_text("def other():\n    pass\n")
    talk = begin(EDITING)
    await talk.send("make `show` shout")
    assert face.seen(FileChosen) == [FileChosen(str(task), "name")]


async def test_an_edit_is_steered(begin: Begin, face: Face, task: Path) -> None:
    """A steer in the middle of an edit begins it again with both messages; the partial is kept."""
    talk = begin(EDITING, step_ms=5)
    sent = asyncio.create_task(talk.send("make @task.py:show shout"))
    await face.until(lambda: bool(face.seen(DiffGrew)))
    await talk.steer("and loudly")
    turn = await sent
    (abandoned,) = face.seen(AttemptAbandoned)
    assert (abandoned.why, abandoned.steer) == ("steered", "and loudly")
    assert turn.attempts[0].is_abandoned
    assert read(task) == NEW
    assert face.seen(EditApplied)[0].proposal.files[0].instruction == "make show shout\nand loudly"


async def test_an_edit_is_stopped_at_the_question(begin: Begin, face: Face, task: Path) -> None:
    """Stopping while the user is asked ends the turn and leaves the file as it was."""
    talk = begin(EDITING)
    face.is_thinking = True
    sent = asyncio.create_task(talk.send("make @task.py:show shout"))
    await face.until(lambda: bool(face.seen(EditProposed)))
    talk.stop()
    turn = await sent
    assert (turn.status, turn.edits[0].outcome, read(task)) == ("stopped", "open", OLD)


async def test_rewinding_takes_code_and_talk_back(begin: Begin, task: Path) -> None:
    """Before the turn again: the file has its old bytes, and the turn is gone."""
    talk = begin(EDITING)
    await talk.send("What is this?")
    await talk.send("make @task.py:show shout")
    rewound = await talk.rewind(2)
    assert (read(task), [turn.number for turn in talk.turns]) == (OLD, [1])
    assert rewound.paths == (str(task),)
    assert (await talk.send("What did you do?")).number == 3


async def test_rewinding_only_code_tells_the_model(begin: Begin, task: Path) -> None:
    """The talk stays, the file is as it was, and the next answer knows it."""
    talk = begin(EDITING)
    await talk.send("make @task.py:show shout")
    await talk.rewind(1, talk=False)
    assert (read(task), talk.turns[0].edits[0].outcome) == (OLD, "undone")
    assert (await talk.send("What did you do?")).answer == "I know it was taken back."


async def test_what_was_rewound_as_one_is_redone_as_one(begin: Begin, task: Path, folder: Path) -> None:
    """Both edits come back with one redo, and the conversation knows it of both."""
    other = folder / "other.py"
    other.write_text(OLD)
    talk = begin(EDITING)
    await talk.send("make @task.py:show shout")
    await talk.send("make @other.py:show shout")
    await talk.rewind(1, talk=False)
    assert (read(task), read(other)) == (OLD, OLD)
    await talk.redo()
    assert (read(task), read(other)) == (NEW, NEW)
    assert [turn.edits[0].outcome for turn in talk.turns] == ["applied", "applied"]
    with pytest.raises(NothingToUndo):
        await talk.redo()


async def test_an_edit_undone_elsewhere_is_passed_over(begin: Begin, task: Path) -> None:
    """After `vivace undo` the conversation has nothing to undo."""
    talk = begin(EDITING)
    await talk.send("make @task.py:show shout")
    talk._journal.undo()
    with pytest.raises(NothingToUndo, match="no edit of this conversation"):
        await talk.undo()
    assert read(task) == OLD


async def test_edits_are_undone_and_redone(begin: Begin, task: Path) -> None:
    """The newest edit is taken back, and brought back again; the model is told."""
    talk = begin(EDITING)
    with pytest.raises(NothingToUndo):
        await talk.undo()
    await talk.send("make @task.py:show shout")
    await talk.undo()
    assert (read(task), talk.turns[0].edits[0].outcome) == (OLD, "undone")
    assert (await talk.send("What did I do?")).answer == "I know it was taken back."
    await talk.redo()
    assert (read(task), talk.turns[0].edits[0].outcome) == (NEW, "applied")
    with pytest.raises(NothingToUndo):
        await talk.redo()


async def test_any_edit_is_undone_and_redone(begin: Begin, task: Path, folder: Path) -> None:
    """An older edit is taken back by its entry, a newer one stays; what was undone last comes back first."""
    other = folder / "other.py"
    write(other, OLD)
    talk = begin(EDITING)
    older = (await talk.send("make @task.py:show shout")).edits[0].entry
    newer = (await talk.send("make @other.py:show shout")).edits[0].entry
    undone = await talk.undo(older)
    assert (undone.paths, undone.entries, read(task), read(other)) == ((str(task),), (older,), OLD, NEW)
    with pytest.raises(NothingToUndo, match="not one that stands"):
        await talk.undo(older)
    await talk.undo(newer)
    assert (await talk.redo()).entries == (newer,), "it was undone last"
    await talk.undo(newer)
    await talk.redo(older)
    assert (read(task), read(other)) == (NEW, OLD)
    assert [turn.edits[0].outcome for turn in talk.turns] == ["applied", "undone"]
    with pytest.raises(NothingToUndo, match="not undone"):
        await talk.redo(older)


async def test_what_came_after_an_undone_edit_is_kept(begin: Begin, task: Path) -> None:
    """A later change elsewhere in the file stays; one in the same lines refuses the undo, and the redo."""
    talk = begin(EDITING)
    entry = (await talk.send("make @task.py:show shout")).edits[0].entry
    write(task, f"# mine\n{NEW}")
    await talk.undo(entry)
    assert read(task) == f"# mine\n{OLD}"
    await talk.redo(entry)
    write(task, NEW.replace("upper()", "lower()"))
    with pytest.raises(NothingToUndo, match="in the same lines"):
        await talk.undo(entry)
    assert (read(task), talk.turns[0].edits[0].outcome) == (NEW.replace("upper()", "lower()"), "applied")


async def test_an_edit_that_was_undone_elsewhere_is_only_told(begin: Begin, task: Path) -> None:
    """After `vivace undo` the conversation calls the edit undone when it is named, and can redo it."""
    talk = begin(EDITING)
    entry = (await talk.send("make @task.py:show shout")).edits[0].entry
    talk._journal.undo()
    assert (await talk.undo(entry)).entries == (entry,)
    assert (read(task), talk.turns[0].edits[0].outcome) == (OLD, "undone")
    await talk.redo(entry)
    assert read(task) == NEW


def test_edits_are_counted_from_the_newest() -> None:
    """Files that were written together count once; no number is the newest, and a wrong one is refused."""
    edits = [EditResult("a", outcome="applied", entry=4), EditResult("b", outcome="applied", entry=4)]
    turns = [Turn(1, "", edits=edits), Turn(2, "", edits=[EditResult("a", outcome="applied", entry=7)])]
    assert [nth_entry(turns, "applied", place) for place in ("", "1", "2")] == [0, 7, 4]
    for wrong in ("0", "3", "x", "-1"):
        with pytest.raises(UsageError, match="no number of an edit"):
            nth_entry(turns, "applied", wrong)


async def test_a_file_that_changed_since_is_not_rewound(begin: Begin, task: Path) -> None:
    """What somebody else wrote is never lost: the talk and the file stay."""
    talk = begin(EDITING)
    await talk.send("make @task.py:show shout")
    write(task, "mine")
    with pytest.raises(NothingToUndo):
        await talk.rewind(1)
    assert (read(task), len(talk.turns)) == ("mine", 1)
    with pytest.raises(UsageError):
        await talk.rewind(7)


async def test_the_open_buffer_is_edited_and_written_by_the_face(begin: Begin, task: Path) -> None:
    """A mention reads what the editor has unsaved, the editor writes the edit, and undo keeps the unsaved."""
    unsaved = f"import os\n\n\n{OLD}"
    editor = FakeEditor({task: unsaved})
    replies = {"Task: ": ANSWER, "import os": "I see the import."} | EDITING
    talk = begin(replies, files=OpenFiles(editor))
    assert (await talk.send("What is in @task.py?")).answer == "I see the import."
    turn = await talk.send("make @task.py:show shout")
    assert (turn.status, turn.edits[0].outcome) == ("completed", "applied")
    assert editor.buffers[task] == read(task) == unsaved.replace(OLD, NEW)
    await talk.undo()
    assert read(task) == unsaved


async def test_a_face_that_cannot_write_fails_the_turn(begin: Begin, face: Face, task: Path) -> None:
    """The turn says why, the file is as it was, and the proposed text is kept."""
    editor = FakeEditor({task: OLD})
    editor.fails_at = 0
    talk = begin(EDITING, files=OpenFiles(editor))
    turn = await talk.send("make @task.py:show shout")
    assert turn.status == "failed"
    assert "locked by the editor" in turn.error
    assert (editor.buffers[task], read(task)) == (OLD, OLD)
    assert not face.seen(EditApplied)


async def test_a_steer_names_a_file(begin: Begin, face: Face, task: Path) -> None:
    """What a steer mentions is changed, too."""
    other = task.with_name("other.py")
    write(other, OLD)
    talk = begin(EDITING, step_ms=5)
    sent = asyncio.create_task(talk.send("make @task.py:show shout"))
    await face.until(lambda: bool(face.seen(DiffGrew)))
    await talk.steer("and in @other.py:show")
    await sent
    chosen = [Path(event.path).name for event in face.seen(FileChosen)]
    assert chosen[-2:] == ["task.py", "other.py"]


async def test_a_mistyped_file_begins_no_turn(begin: Begin, task: Path) -> None:
    """A queued one ends as a turn that failed: nobody is there to correct it."""
    talk = begin(EDITING)
    with pytest.raises(FileProblem):
        await talk.send("make @tsak.py:show shout")
    assert (list(talk.turns), talk.is_running, read(task)) == ([], False, OLD)
    talk.queue.add("make @tsak.py:show shout")
    await talk.run_queue()
    assert ([turn.status for turn in talk.turns], read(task)) == (["failed"], OLD)


async def test_a_file_to_make_may_be_mentioned(begin: Begin, face: Face, task: Path) -> None:
    """It is made, and no other file is changed in its place."""
    talk = begin({**EDITING, "": "```python\nx = 1\n```"})
    await talk.send("create @fresh.py with x = 1", kind="edit")
    assert [Path(event.path).name for event in face.seen(FileChosen)] == ["fresh.py"]
    assert read(task) == OLD
