"""The conversation's events on the screen: blocks of the transcript and words of the status line.

Owns which block shows what, and which question is open to the user. Called for every token, so it only takes
notes here; drawing is the transcript's. Does not own keys (`controls`) nor the conversation (`session`).
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from vivace.agent import edit_events, talk_events, turn_events, waterfall
from vivace.agent.edits.conflict import Conflict, Resolution
from vivace.agent.edits.proposal import Decision, Proposal
from vivace.agent.events import AgentEvent
from vivace.agent.loop.calls import Approval
from vivace.agent.loop.steps import ApprovalAsked
from vivace.agent.permissions.modes import mode_of
from vivace.tui.questions import AnyQuestion, ApprovalQuestion, ConflictQuestion, Question, Review
from vivace.tui.status import Status, short_model
from vivace.tui.task_steps import TaskSteps
from vivace.tui.transcript.answer import Answer
from vivace.tui.transcript.blocks import Note, Said, Table, Thinking, Times
from vivace.tui.transcript.diff import EditBlock
from vivace.tui.transcript.view import Transcript

if TYPE_CHECKING:
    from vivace.agent.conversation.transcript.history import Turn


A = TypeVar("A")


class ScreenPresenter:
    def __init__(
        self, transcript: Transcript, status: Status, folder: Path, on_change: Callable[[], None]
    ) -> None:
        self._transcript, self._status, self._folder = transcript, status, folder
        self._on_change = on_change
        self._answer: Answer | None = None
        self._thinking: Thinking | None = None  # while the model thinks
        self._edit: EditBlock | None = None
        self._side: Answer | None = None
        self.starts: dict[int, int] = {}  # turn -> the block at which it begins
        self._was_run = False  # in the sandbox, for the edit at hand
        self._questions: list[AnyQuestion] = []  # the first one is asked
        self._steps = TaskSteps(transcript, self._say)
        self.queued: Sequence[talk_events.QueuedMessage] = ()

    @property
    def question(self) -> AnyQuestion | None:
        """Return what the user is asked now. Others wait behind it."""
        return self._questions[0] if self._questions else None

    async def decide(self, proposal: Proposal) -> Decision:
        assert self._edit is not None, "an edit was shown before"
        return await self._ask(Review(proposal, self._edit))

    async def resolve(self, conflict: Conflict) -> Resolution:
        self._show_conflict(conflict)
        return await self._ask(ConflictQuestion(conflict))

    async def approve(self, asked: ApprovalAsked) -> Approval:
        return await self._ask(ApprovalQuestion(asked))

    async def _ask(self, question: Question[A]) -> A:
        """Ask the user, after the questions that are open already."""
        self._questions.append(question)
        self._say("your decision")
        self._on_change()
        try:
            return await question.answer
        finally:
            self._questions.remove(question)
            if self._questions:
                self._questions[0].shown_s = time.monotonic()
            self._on_change()

    def announce(self, block: Note | Said) -> None:
        """Show something that no turn has to do with."""
        self._transcript.add(block)
        self._transcript.touch()

    def _show_conflict(self, conflict: Conflict) -> None:
        """Show both changes, one below the other."""
        self._transcript.add(Note(conflict.message, style="error"))
        shown = self._transcript.add(Answer())
        sides = [
            ("changed meanwhile", conflict.file_rows),
            ("what the edit would change", conflict.edit_rows),
        ]
        for title, rows in sides:
            lines = [row.text if row.tag == "@" else row.tag + row.text for row in rows]
            shown.grow("\n".join([f"**{conflict.path.name}, {title}**", "```diff", *lines, "```", ""]))

    def show(self, event: AgentEvent) -> None:
        match event:
            case turn_events.ReasoningGrew(delta=delta):
                self._thinking = self._thinking or self._transcript.add(Thinking())
                self._thinking.grow(delta)
                self._say("thinking")
            case turn_events.AnswerGrew(delta=delta):
                self._end_thinking()
                self._answer = self._answer or self._transcript.add(Answer())
                self._answer.grow(delta)
                self._say("writing")
            case edit_events.DiffGrew(diff=diff, partial=partial):
                if self._edit is not None:
                    self._edit.grow(diff, partial)
                self._say("writing")
            case talk_events.SideGrew(delta=delta):
                if self._side is not None:
                    self._side.grow(delta)
            case turn_events.TaskStepped(step=step):
                self._steps.show(step)
            case talk_events.PromptWarmed(warm_tokens=warm, prompt_tokens=whole):
                self._status.warm_percent = round(100 * warm / whole) if whole else None
                self._on_change()
            case _:
                self._show_step(event)
                self._on_change()
        self._transcript.touch()

    def _say(self, activity: str) -> None:
        if self._status.activity != activity:
            self._status.activity = activity
            self._on_change()

    def _show_step(self, event: AgentEvent) -> None:
        """Show what is no text of the model's."""
        add = self._transcript.add
        match event:
            case turn_events.TurnStarted(turn=turn, text=text):
                self.starts[turn] = len(self._transcript.blocks)
                add(Said(shortened(text)))
                self._answer = self._edit = None
                self._steps.begin()
                self._status.warm_percent = None
                self._say("thinking")
            case turn_events.AnswerStarted():
                self._end_thinking()
                self._answer = None
                self._say("reading")
            case turn_events.CodeRead() | turn_events.MemoryUsed():
                add(Note(event.in_words))
                self._say("reading")
            case turn_events.Abandoned(steer=steer, why=why):
                self._strike()
                add(
                    Said(shortened(steer), "↪")
                    if steer
                    else Note(_GONE if why == "server_gone" else "turned around")
                )
            case turn_events.SteerQueued():
                add(Note("The answer was over: this comes next."))
            case turn_events.TurnEnded(status=status, total_tokens=total):
                self._end_turn(status, total)
            case talk_events.QueueChanged(messages=messages):
                self.queued, self._status.queued = messages, len(messages)
            case turn_events.TimesMeasured():
                self._show_times(event)
            case turn_events.Failed(error=error):
                add(Note(error.message, error.hint, "error"))
            case talk_events.FacesChanged(others=others):
                self._status.others = others
            case talk_events.ModelChanged(model=model):
                self._status.model = short_model(model)
            case talk_events.OptionsChanged(options=options):
                self._status.effort, self._status.mode = options.effort, mode_of(options.policy).name
            case talk_events.NoteAdded(text=text):
                add(Said(text, "#", "dim"))
            case _:
                self._show_edit(event)

    def _show_edit(self, event: AgentEvent) -> None:
        match event:
            case turn_events.FileChosen(path=path):
                self._say(f"reading {path.name}")
            case edit_events.EditStarted(source=source):
                self._was_run = False
                self._edit = self._transcript.add(EditBlock(self._named(source.path), source.path.suffix))
                self._say("choosing the part to change")
            case edit_events.EditPlanned(units=units):
                self._show_plan(units)
            case edit_events.UnitLeft():
                self._transcript.add(Note(event.in_words))
            case edit_events.UnitLocated(source=source, unit=unit):
                if self._edit is not None:
                    title = f"{self._named(source.path)}:{unit.lines_text}  {unit.qualified_name}"
                    self._edit.locate(title, unit.first_line)
                self._say(f"reading {unit.qualified_name}")
            case edit_events.ComparingAnswers():
                self._say("trying other answers")
            case edit_events.AnswersCompared():
                self._was_run = event.was_run
                self._transcript.add(Note(event.in_words))
            case edit_events.RepairStarted(complaint=complaint):
                self._transcript.add(Note(complaint))
                self._say("telling the model what is wrong")
            case edit_events.UserTestsStarted(command=command):
                self._say(f"running {command}")
            case edit_events.UserTestsEnded():
                self._was_run = self._was_run or event.was_run
                self._transcript.add(Note(event.in_words))
            case edit_events.ImportsAdded() | edit_events.NamesUndefined():
                self._transcript.add(Note(event.in_words))
            case edit_events.EditProposed(proposal=proposal):
                if self._edit is not None:
                    self._edit.propose(proposal)
            case edit_events.EditApplied():
                self._end_edit(f"written{'' if self._was_run else ', not run'} · /undo takes it back")
            case edit_events.EditNotApplied(reason=reason):
                self._end_edit("nothing to change" if reason == "nothing_to_change" else "not written")
            case _:
                self._show_talk(event)

    def _show_plan(self, units: Sequence[edit_events.PlannedUnit]) -> None:
        if self._edit is not None:
            self._edit.plan(
                [f"{self._named(each.path)}:{each.unit.lines_text}  {each.in_words}" for each in units]
            )

    def _show_talk(self, event: AgentEvent) -> None:
        add = self._transcript.add
        match event:
            case talk_events.CompactionStarted(why=why):
                add(
                    Note(
                        "Summarising the conversation"
                        + (": its window is nearly full." if why == "window" else ".")
                    )
                )
                self._say("summarising")
            case talk_events.Compacted(before_tokens=before):
                add(Note(f"Summarised {before} tokens. /compact undo brings them back."))
            case turn_events.Retold(left_out=left_out) if left_out:
                add(Note(event.in_words))
            case talk_events.CompactionUndone():
                add(Note("The model reads the whole conversation again."))
            case talk_events.EditsUndone(paths=paths):
                add(Note(f"Took back the change to {self._names(paths)}. /redo brings it back."))
            case talk_events.EditsRedone(paths=paths):
                add(Note(f"Brought back the change to {self._names(paths)}. /undo takes it back."))
            case talk_events.Rewound():
                self._rewind(event)
            case talk_events.SideStarted(question=question):
                add(Said(question, "?"))
                self._side = add(Answer())
            case talk_events.SideEnded():
                self._side = None

    def _named(self, path: Path) -> str:
        """Return the path as a person in this folder writes it."""
        return str(path.relative_to(self._folder)) if path.is_relative_to(self._folder) else str(path)

    def _names(self, paths: Sequence[str]) -> str:
        return ", ".join(self._named(Path(path)) for path in paths)

    def _strike(self) -> None:
        """Show that what stands here was turned around."""
        for block in (self._answer, self._edit):
            if block is not None:
                block.strike()
        self._answer = self._edit = None

    def _end_thinking(self) -> None:
        if self._thinking is not None:
            self._thinking.end()
        self._thinking = None

    def _end_edit(self, words: str) -> None:
        if self._edit is not None:
            self._edit.end(words)
        self._edit = None

    def _end_turn(self, status: str, total_tokens: int) -> None:
        self._end_thinking()
        if status == "stopped":
            self._transcript.add(Note("Stopped. What is there is kept."))
        elif status == "cut":
            self._transcript.add(Note('The answer is as long as it may be. Say "go on" for more.'))
        self._answer = self._edit = None
        self._status.context_tokens = total_tokens or self._status.context_tokens
        self._say("")

    def _show_times(self, event: turn_events.TimesMeasured) -> None:
        turns = [(turn.name, turn.waterfall) for turn in event.turns]
        line = waterfall.numbers([each for _, each in turns], event.first_token_ms)
        self._transcript.add(Times(line, waterfall.table(turns, event.first_token_ms, None)))
        last = turns[-1][1] if turns else None
        if last and last.output_tokens > 1 and last.decode_ms > 0:
            self._status.tokens_per_second = (last.output_tokens - 1) / last.decode_ms * 1e3

    def _rewind(self, event: talk_events.Rewound) -> None:
        if event.is_talk:
            self._transcript.cut(self.starts.get(event.turn, len(self._transcript.blocks)))
        what = " and ".join(
            name for name, is_so in (("talk", event.is_talk), ("code", event.is_code)) if is_so
        )
        files = f": {self._names(event.paths)}" if event.paths else "."
        self._transcript.add(Note(f"Back to before turn {event.turn}, {what}{files}"))

    def begin_again(self, turns: "Sequence[Turn]") -> None:
        """Show these turns in place of all that was shown."""
        self._transcript.clear()
        self.starts.clear()
        self._answer = self._edit = self._side = self._thinking = None
        self._steps.begin()
        self.show_past(turns)

    def show_past(self, turns: "Sequence[Turn]") -> None:
        """Show the turns of a conversation that is taken up again."""
        for turn in turns:
            self.starts[turn.number] = len(self._transcript.blocks)
            self._transcript.add(Said(shortened(turn.text)))
            if turn.code:
                self._transcript.add(Note(turn_events.CodeRead(turn.code).in_words))
            if turn.memory.in_words:
                self._transcript.add(Note(turn.memory.in_words))
            for attempt in turn.attempts:
                if attempt.thoughts:
                    self._transcript.add(Thinking.past(attempt.reasoning))
                if turn.kind != "edit" and attempt.text:
                    answer = self._transcript.add(Answer())
                    answer.grow(attempt.text)
                    if attempt.is_abandoned:
                        answer.strike()
                if attempt.steer:
                    self._transcript.add(Said(shortened(attempt.steer), "↪"))
            if turn.calls:
                self._transcript.add(Table(turn.calls))
            for edit in turn.edits:
                diff = self._transcript.add(Answer())
                diff.grow(f"**{edit.path}** {edit.unit} ({edit.outcome.replace('_', ' ')})\n")
                if edit.diff:
                    diff.grow(f"```diff\n{edit.diff.rstrip()}\n```\n")
            if turn.error:
                self._transcript.add(Note(turn.error, style="error"))


_GONE = "The server went away. Starting another one, and asking again."
_SHOWN_LINES = 20


def shortened(text: str) -> str:
    """Return what is shown of a long message; it is sent whole."""
    lines = text.splitlines()
    if len(lines) > _SHOWN_LINES:
        return "\n".join([*lines[: _SHOWN_LINES - 1], f"… {len(lines) - _SHOWN_LINES + 1} lines more"])
    return text if len(text) <= 4000 else f"{text[:4000]} … {len(text) - 4000} characters more"
