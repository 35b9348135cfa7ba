"""The conversation's events on the screen: blocks of the transcript and words of the status line.

Owns which block shows what, and which question is open to the user. Called for every token, so it only takes
notes here; drawing is the transcript's. Does not own keys (`controls`) nor the conversation (`session`).
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from vivace.agent import waterfall
from vivace.agent.edits.conflict import Conflict, Resolution
from vivace.agent.edits.proposal import Decision, Proposal
from vivace.agent.events import base as base_events
from vivace.agent.events import edit as edit_events
from vivace.agent.events import talk as talk_events
from vivace.agent.events import turn as turn_events
from vivace.agent.events.every import AgentEvent
from vivace.agent.events.task import ApprovalAsked
from vivace.agent.loop.calls import Approval
from vivace.agent.permissions.modes import mode_of
from vivace.tui.background import question_block
from vivace.tui.presenting.edit_steps import EditSteps, named
from vivace.tui.presenting.past_turns import shortened, show_past_turn
from vivace.tui.presenting.questions import AnyQuestion, ApprovalQuestion, ConflictQuestion, Question, Review
from vivace.tui.presenting.task_steps import TaskSteps
from vivace.tui.status import Status, short_model
from vivace.tui.transcript.answer import Answer
from vivace.tui.transcript.blocks import Note, Said, Thinking, Times, Whole
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
        self._side: Answer | None = None
        self.starts: dict[int, int] = {}  # turn -> the block at which it begins
        self._questions: list[AnyQuestion] = []  # the first one is asked
        self._edit = EditSteps(transcript, folder, self._say)
        self._steps = TaskSteps(transcript, self._say)
        self.queued: Sequence[talk_events.QueuedMessage] = ()

    @property
    def question(self) -> AnyQuestion | None:
        """Return what the user is asked now. Others wait behind it."""
        return self._questions[0] if self._questions else None

    async def decide(self, proposal: Proposal) -> Decision:
        assert self._edit.block is not None, "an edit was shown before"
        return await self._ask(Review(proposal, self._edit.block))

    async def resolve(self, conflict: Conflict) -> Resolution:
        self._show_conflict(conflict)
        return await self._ask(ConflictQuestion(conflict))

    async def approve(self, asked: ApprovalAsked) -> Approval:
        """Ask about just what is shown here: all of it, with every character to be seen."""
        self._transcript.add(question_block(asked))
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

    def announce(self, block: Note | Said | Whole) -> None:
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
            case turn_events.ReasoningGrew(text=delta):
                self._thinking = self._thinking or self._transcript.add(Thinking())
                self._thinking.grow(delta)
                self._say("thinking")
            case turn_events.AnswerGrew(text=delta):
                self._end_thinking()
                self._answer = self._answer or self._transcript.add(Answer())
                self._answer.grow(delta)
                self._say("writing")
            case edit_events.DiffGrew():
                self._edit.grow(event)
            case talk_events.SideGrew(text=delta):
                if self._side is not None:
                    self._side.grow(delta)
            case turn_events.TaskStepped(step=step):
                self._steps.show(step)
            case talk_events.PromptWarmed(warm_tokens=warm, prompt_tokens=whole):
                self._status.warm_percent = round(100 * warm / whole) if whole else None
                self._on_change()
            case talk_events.ModelProgress():
                self._status.progress = event.in_words
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
                self._answer = None
                self._edit.begin()
                self._steps.begin()
                self._status.warm_percent = None
                self._say("thinking")
            case turn_events.AttemptStarted():
                self._end_thinking()
                self._answer = None
                self._say("reading")
            case turn_events.CodeRead() | turn_events.MemoryUsed():
                add(Note(event.in_words))
                self._say("reading")
            case turn_events.AttemptAbandoned(steer=steer, why=why):
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
            case base_events.Failed() as error:
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
                if not self._edit.show(event):
                    self._show_talk(event)

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
            case turn_events.HistoryReplayed(left_out=left_out) if left_out:
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

    def _names(self, paths: Sequence[str]) -> str:
        return ", ".join(named(self._folder, Path(path)) for path in paths)

    def _strike(self) -> None:
        """Show that what stands here was turned around."""
        if self._answer is not None:
            self._answer.strike()
        self._answer = None
        self._edit.strike()

    def _end_thinking(self) -> None:
        if self._thinking is not None:
            self._thinking.end()
        self._thinking = None

    def _end_turn(self, status: str, total_tokens: int) -> None:
        self._end_thinking()
        if status == "stopped":
            self._transcript.add(Note("Stopped. What is there is kept."))
        elif status == "cut":
            self._transcript.add(Note('The answer is as long as it may be. Say "go on" for more.'))
        self._answer = None
        self._edit.begin()
        self._status.context_tokens = total_tokens or self._status.context_tokens
        self._say("")

    def _show_times(self, event: turn_events.TimesMeasured) -> None:
        turns = [(turn.name, turn) for turn in event.turns]
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
        self._answer = self._side = self._thinking = None
        self._edit.begin()
        self._steps.begin()
        self.show_past(turns)

    def show_past(self, turns: "Sequence[Turn]") -> None:
        """Show the turns of a conversation that is taken up again."""
        for turn in turns:
            self.starts[turn.number] = len(self._transcript.blocks)
            show_past_turn(self._transcript, turn)


_GONE = "The server went away. Starting another one, and asking again."
