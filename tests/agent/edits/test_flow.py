"""The flow of one edit, shown to a presenter that keeps everything: a real server, a scripted model."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.server.serving import script, status_of, until
from vivace.agent.ask import read_question, run_ask
from vivace.agent.edits.apply.journal import Journal
from vivace.agent.edits.conflict import Conflict, Resolution, Stop, TakeEdit, TakeFile, TakeText
from vivace.agent.edits.find.target import parse_target
from vivace.agent.edits.flow import EditTask, run_edit
from vivace.agent.edits.proposal import Accept, AcceptHunks, Decision, Proposal, Reject, UseText
from vivace.agent.edits.scope import read_scope
from vivace.agent.events.edit import (
    DiffGrew,
    EditApplied,
    EditDecided,
    EditNotApplied,
    EditProposed,
    EditStarted,
    UnitLocated,
)
from vivace.agent.events.every import AgentEvent
from vivace.agent.events.turn import (
    AnswerGrew,
    AttemptStarted,
    TimesMeasured,
    WritingEnded,
)
from vivace.agent.model import Model
from vivace.agent.options import Approval
from vivace.client.responses import ResponsesClient
from vivace.client.warm import ServerAddress
from vivace.config import Settings
from vivace.errors import APPROVAL_NEEDED, EditConflict, EditRejected, NothingToUndo, UsageError

OLD = """def show(task):
    print(task.title)
    one()
    two()
    three()
    four()
    five()
    six()
    seven()
    print(task.title)
"""
NEW = OLD.replace("print(task.title)", "print(task.title.upper())")
ANSWER = f"```python\n{NEW}```"
FIRST_ONLY = OLD.replace("print(task.title)", "print(task.title.upper())", 1)
BROKEN = OLD.replace("print(task.title)", "print(task.title")
HANG_S = 60.0


class Recorder:
    """A presenter that keeps what it is shown, gives prepared decisions, and may stop the flow."""

    def __init__(self, *decisions: Decision) -> None:
        self.events: list[AgentEvent] = []
        self.rows: list[str] = []
        self.asked: list[Proposal] = []
        self.stop_at: type | None = None
        self._decisions = list(decisions)
        self.conflicts: list[Conflict] = []
        self.resolutions: list[Resolution] = []  # in order; then it is stopped

    def show(self, event: AgentEvent) -> None:
        self.events.append(event)
        if isinstance(event, DiffGrew):
            self.rows = ["".join(row) for row in event.rows]
        if self.stop_at and isinstance(event, self.stop_at):
            task = asyncio.current_task()
            assert task is not None
            task.cancel()

    async def decide(self, proposal: Proposal) -> Decision:
        self.asked.append(proposal)
        await asyncio.sleep(0)
        return self._decisions.pop(0)

    async def resolve(self, conflict: Conflict) -> Resolution:
        self.conflicts.append(conflict)
        await asyncio.sleep(0)
        return self.resolutions.pop(0) if self.resolutions else Stop()

    @property
    def kinds(self) -> list[type]:
        """The kinds of the events, those that repeat only once."""
        kinds = [type(event) for event in self.events]
        return [kind for index, kind in enumerate(kinds) if kind not in kinds[max(0, index - 1) : index]]


class Desk:
    """One file, one journal and one model."""

    def __init__(self, folder: Path, model: Model) -> None:
        self.file = folder / "task.py"
        self.file.write_text(OLD)
        self.journal = Journal(folder / "undo")
        self.model = model

    async def edit(self, presenter: Recorder, approval: Approval = "ask", target: str = ":show") -> object:
        scope = read_scope(parse_target(f"{self.file}{target}"), to_write=True)
        task = EditTask((scope,), "shout", approval)
        async with asyncio.timeout(HANG_S):
            return await run_edit(task, self.model, presenter, self.journal)

    def undo(self) -> str:
        self.journal.undo()
        return self.file.read_text()


@pytest.fixture
async def client(address: ServerAddress) -> AsyncIterator[ResponsesClient]:
    async with ResponsesClient(address) as client:
        yield client


@pytest.fixture
def play(client: ResponsesClient, tmp_path: Path) -> Callable[..., Desk]:
    """A desk whose model gives this answer."""

    def play(answer: str = ANSWER, **options: object) -> Desk:
        replies = {"You locate code": "`show`", "Task: shout": answer, "": "Hello."}
        model = script(tmp_path, replies=replies, context_tokens=20000, **options)  # type: ignore[arg-type]
        return Desk(tmp_path, Model(client, model))

    return play


async def test_the_events_of_an_accepted_edit(play: Callable[..., Desk]) -> None:
    """Started, located, grew, ended, proposed, measured, decided, applied: and undo gives the old bytes."""
    desk, presenter = play(), Recorder(Accept())
    await desk.edit(presenter, target="")
    assert presenter.kinds == [
        EditStarted,
        UnitLocated,
        DiffGrew,
        WritingEnded,
        EditProposed,
        TimesMeasured,
        EditDecided,
        EditApplied,
    ]
    assert desk.file.read_text() == NEW
    assert presenter.rows[1:3] == ["-    print(task.title)", "+    print(task.title.upper())"]
    times = next(event for event in presenter.events if isinstance(event, TimesMeasured))
    assert [turn.name for turn in times.turns] == ["locate", "rewrite"]
    assert times.first_token_ms > 0
    assert desk.undo() == OLD


async def test_only_the_chosen_hunks_are_written(play: Callable[..., Desk]) -> None:
    """Of two hunks the first is taken; the second stays as it was."""
    desk, presenter = play(), Recorder(AcceptHunks(frozenset({0})))
    await desk.edit(presenter)
    assert len(presenter.asked[0].hunks) == 2
    assert desk.file.read_text() == FIRST_ONLY
    assert desk.undo() == OLD


async def test_the_users_own_text_is_checked_and_asked_about_again(play: Callable[..., Desk]) -> None:
    """An edited text comes back as a proposal with its problems, and is written when the user insists."""
    desk, presenter = play(), Recorder(UseText((BROKEN.encode(),)), Accept())
    await desk.edit(presenter)
    assert [bool(proposal.problems) for proposal in presenter.asked] == [False, True]
    assert desk.file.read_text() == BROKEN


async def test_the_old_text_again_is_nothing_to_change(play: Callable[..., Desk]) -> None:
    """Accepting a text that is the file's own writes nothing and records nothing."""
    desk, presenter = play(), Recorder(UseText((OLD.encode(),)), Accept())
    assert await desk.edit(presenter) is None
    assert isinstance(presenter.events[-1], EditNotApplied)
    assert presenter.events[-1].reason == "nothing_to_change"
    with pytest.raises(NothingToUndo):
        desk.undo()


@pytest.mark.parametrize(("approval", "reason"), [("ask", "rejected"), ("never", "shown_only")])
async def test_what_is_not_accepted_is_not_written(
    play: Callable[..., Desk], approval: Approval, reason: str
) -> None:
    """A rejected proposal, and one that was only to be shown, leave the file alone."""
    desk, presenter = play(), Recorder(Reject())
    assert await desk.edit(presenter, approval) is None
    assert isinstance(presenter.events[-1], EditNotApplied)
    assert presenter.events[-1].reason == reason
    assert desk.file.read_text() == OLD


async def test_a_yes_said_beforehand_asks_nobody(play: Callable[..., Desk]) -> None:
    """With the approval `always` the presenter is not asked."""
    desk, presenter = play(), Recorder()
    await desk.edit(presenter, "always")
    assert presenter.asked == []
    assert desk.file.read_text() == NEW


async def test_an_answer_with_problems_is_shown_and_refused(play: Callable[..., Desk]) -> None:
    """It is proposed with its problems, raised as `EditRejected`, and nobody is asked."""
    desk, presenter = play(f"```python\n{BROKEN}```"), Recorder(Accept())
    with pytest.raises(EditRejected):
        await desk.edit(presenter)
    assert isinstance(presenter.events[-1], EditProposed)
    assert presenter.asked == []
    assert desk.file.read_text() == OLD


@pytest.mark.parametrize(
    "kind", [EditStarted, UnitLocated, DiffGrew, WritingEnded, EditProposed, TimesMeasured]
)
async def test_an_interrupt_at_any_event_leaves_nothing_half_done(
    play: Callable[..., Desk], served: Settings, kind: type
) -> None:
    """Cancelled at this event: the file and the journal are untouched, and the model's turn ends."""
    desk, presenter = play(step_ms=1), Recorder(Accept())
    presenter.stop_at = kind
    with pytest.raises(asyncio.CancelledError):
        await desk.edit(presenter)
    assert any(isinstance(event, WritingEnded) for event in presenter.events), "live parts are taken away"
    assert desk.file.read_text() == OLD
    with pytest.raises(NothingToUndo):
        desk.undo()
    await asyncio.to_thread(until, lambda: status_of(served).engine.turns == 0)


async def test_a_change_of_comments_alone_is_shown_and_refused(play: Callable[..., Desk]) -> None:
    """It does nothing that was asked: the nearest try is shown, nobody is asked, and nothing is written."""
    words = OLD.replace("    one()", "    one()  # shout")
    desk, presenter = play(f"```python\n{words}```"), Recorder()
    with pytest.raises(EditRejected, match="Nothing was found"):
        await desk.edit(presenter, "always")
    shown = next(event for event in presenter.events if isinstance(event, EditProposed))
    assert [row.text for row in shown.proposal.hunks[0].rows if "# shout" in row.text]
    assert desk.file.read_text() == OLD


@pytest.mark.parametrize("kind", [TimesMeasured, EditDecided])
async def test_a_yes_said_beforehand_can_still_be_interrupted(play: Callable[..., Desk], kind: type) -> None:
    """Cancelled after the proposal, without a question in between: nothing is written."""
    desk, presenter = play(), Recorder()
    presenter.stop_at = kind
    with pytest.raises(asyncio.CancelledError):
        await desk.edit(presenter, "always")
    assert desk.file.read_text() == OLD


class Meanwhile(Recorder):
    """A presenter that lets the user change the file while the question is open."""

    def __init__(self, file: Path, text: str) -> None:
        super().__init__(Accept())
        self._file, self._text = file, text

    async def decide(self, proposal: Proposal) -> Decision:
        self._file.write_text(self._text)
        return await super().decide(proposal)


async def test_what_the_user_changes_meanwhile_is_merged(play: Callable[..., Desk]) -> None:
    """Both changes are in the file, the event says so, and undo leaves the user's."""
    desk = play()
    presenter = Meanwhile(desk.file, "import os\n\n" + OLD)
    await desk.edit(presenter)
    assert desk.file.read_text() == "import os\n\n" + NEW
    applied = presenter.events[-1]
    assert isinstance(applied, EditApplied)
    assert applied.entry.files[0].is_merged
    assert desk.undo() == "import os\n\n" + OLD


async def test_what_cannot_be_merged_is_kept(play: Callable[..., Desk]) -> None:
    """The same line by the user: their file stays, and the error names a file with the proposed text."""
    desk = play()
    theirs = OLD.replace("print(task.title)", "log(task.title)")
    with pytest.raises(EditConflict) as error:
        await desk.edit(Meanwhile(desk.file, theirs))
    assert desk.file.read_text() == theirs
    assert [path.read_text() for path in error.value.kept] == [NEW]


THEIRS = "import os\n\n" + OLD.replace("print(task.title)", "log(task.title)")
BOTH = "import os\n\n" + OLD.replace("print(task.title)", "log(task.title.upper())")


async def test_a_conflict_is_a_question(play: Callable[..., Desk]) -> None:
    """Both changes are shown. The edit is taken over the same lines only, and undo brings back the file."""
    desk = play()
    presenter = Meanwhile(desk.file, THEIRS)
    presenter.resolutions = [TakeEdit()]
    await desk.edit(presenter)
    assert desk.file.read_text() == "import os\n\n" + NEW
    (conflict,) = presenter.conflicts
    assert [row.text for row in conflict.file_rows if row.tag == "+"][-1].strip() == "log(task.title)"
    assert {row.text.strip() for row in conflict.edit_rows if row.tag == "+"} == {"print(task.title.upper())"}
    assert isinstance(presenter.events[-1], EditApplied)
    assert desk.undo() == THEIRS


async def test_the_file_can_be_left_as_it_is(play: Callable[..., Desk]) -> None:
    """The user's text stays, and the edit ends as one that was rejected."""
    desk = play()
    presenter = Meanwhile(desk.file, THEIRS)
    presenter.resolutions = [TakeFile()]
    await desk.edit(presenter)
    assert desk.file.read_text() == THEIRS
    assert isinstance(presenter.events[-1], EditNotApplied)


async def test_both_can_be_merged_by_hand(play: Callable[..., Desk]) -> None:
    """The text has both between markers; with a marker left in it, it is asked again about the same text."""
    desk = play()
    presenter = Meanwhile(desk.file, THEIRS)
    half = BOTH.encode() + b"=======\n"
    presenter.resolutions = [TakeText(half), TakeText(BOTH.encode())]
    await desk.edit(presenter)
    first, second = presenter.conflicts
    assert first.marked.decode().splitlines()[3:8] == [
        "<<<<<<< the edit",
        "    print(task.title.upper())",
        "=======",
        "    log(task.title)",
        ">>>>>>> the file",
    ]
    assert second.marked == half
    assert desk.file.read_text() == BOTH
    assert desk.undo() == THEIRS


class Restless(Meanwhile):
    """A user who changes the file once more while the question stands."""

    async def resolve(self, conflict: Conflict) -> Resolution:
        if not self.conflicts:
            self._file.write_text(self._text.replace("log(", "trace("))
        return await super().resolve(conflict)


async def test_what_changes_while_it_is_asked_is_asked_again(play: Callable[..., Desk]) -> None:
    """The answer was about another text: nothing is overwritten that the user was not shown."""
    desk = play()
    presenter = Restless(desk.file, THEIRS)
    presenter.resolutions = [TakeEdit(), TakeFile()]
    await desk.edit(presenter)
    assert len(presenter.conflicts) == 2
    assert desk.file.read_text() == THEIRS.replace("log(", "trace(")


async def test_a_file_that_is_gone_can_be_made_again(play: Callable[..., Desk]) -> None:
    """Taking the edit writes the file anew."""

    class Removing(Recorder):
        async def decide(self, proposal: Proposal) -> Decision:
            desk.file.unlink()
            return await super().decide(proposal)

    desk, presenter = play(), Removing(Accept())
    presenter.resolutions = [TakeEdit()]
    await desk.edit(presenter)
    assert desk.file.read_text() == NEW


async def test_without_a_person_a_conflict_needs_one(play: Callable[..., Desk]) -> None:
    """Yes was said beforehand, but not to this: nothing is asked or written, and the exit code says so."""
    desk = play()

    class Changing(Recorder):
        def show(self, event: AgentEvent) -> None:
            super().show(event)
            if isinstance(event, EditProposed):
                desk.file.write_text(THEIRS)

    presenter = Changing()
    with pytest.raises(EditConflict) as error:
        await desk.edit(presenter, "always")
    assert error.value.exit_code == APPROVAL_NEEDED
    assert desk.file.read_text() == THEIRS
    assert not presenter.conflicts


async def test_a_question_is_answered_as_it_is_written(play: Callable[..., Desk]) -> None:
    """Started, grew, ended, measured; the file is in the prompt."""
    desk, presenter = play(), Recorder()
    question = read_question("What is this?", [desk.file])
    assert OLD in question.messages[-1]["content"]
    await run_ask(question, desk.model, presenter)
    assert presenter.kinds == [AttemptStarted, AnswerGrew, WritingEnded, TimesMeasured]
    said = "".join(event.text for event in presenter.events if isinstance(event, AnswerGrew))
    assert said == "Hello."


def test_an_empty_question_is_refused_before_a_model_is_needed() -> None:
    """Nothing to ask is a usage error."""
    with pytest.raises(UsageError):
        read_question("  ", [])
