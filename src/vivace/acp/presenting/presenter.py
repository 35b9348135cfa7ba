"""The conversation's events for an ACP client, and the user's answers from it.

Owns which event becomes which update. Errors of a turn are none: they are the answer to its prompt
(`session`). Does not own how an edit or a task looks (`edit_call`, `task_calls`), nor the rhythm (`updates`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from acp import update_user_message_text
from acp.schema import PermissionOption, SessionInfoUpdate

from vivace.acp.link import SessionLink
from vivace.acp.presenting.edit_call import EditCall
from vivace.acp.presenting.hunks import choose_hunks
from vivace.acp.presenting.task_calls import TaskCalls
from vivace.acp.presenting.terminals import run_in_terminal
from vivace.acp.presenting.updates import Updates
from vivace.agent.edits.conflict import Conflict, Resolution, Stop, TakeEdit, TakeFile
from vivace.agent.edits.proposal import Accept, Decision, Proposal, Reject
from vivace.agent.events import base as base_events
from vivace.agent.events import edit as edit_events
from vivace.agent.events import talk as talk_events
from vivace.agent.events import turn as turn_events
from vivace.agent.events.every import AgentEvent
from vivace.agent.events.task import ApprovalAsked
from vivace.agent.loop.calls import Approval
from vivace.agent.sandbox.plain import run_plainly
from vivace.agent.sandbox.run import Limits, Outcome

ACCEPT = PermissionOption(option_id="accept", name="Accept", kind="allow_once")
ACCEPT_ALL = PermissionOption(
    option_id="accept_all", name="Accept all edits of this session", kind="allow_always"
)
BY_HUNK = PermissionOption(option_id="by_hunk", name="Choose change by change", kind="allow_once")
REJECT = PermissionOption(option_id="reject", name="Reject", kind="reject_once")
ALLOW = PermissionOption(option_id="allow", name="Allow", kind="allow_once")
ALLOW_KEPT = PermissionOption(option_id="allow_kept", name="Allow this call always", kind="allow_always")
REFUSE = PermissionOption(option_id="refuse", name="Refuse", kind="reject_once")
TAKE_EDIT = PermissionOption(option_id="edit", name="Write the edit over it", kind="allow_once")
TAKE_FILE = PermissionOption(option_id="file", name="Leave this file", kind="reject_once")
STOP = PermissionOption(option_id="stop", name="Write nothing", kind="reject_once")
TITLE_CHARS = 120


class AcpPresenter:
    def __init__(
        self, link: SessionLink, updates: Updates, folder: Path, on_options: Callable[[], None]
    ) -> None:
        """`on_options` is called when the options have changed, in whichever face."""
        self._link, self._updates, self._folder = link, updates, folder
        self._on_options = on_options
        self._edit = EditCall(updates, folder)
        self._task = TaskCalls(updates)
        self._turn = 0
        self._is_prompted = False  # the turn that runs is a prompt of this client
        self._was_run = False  # something of the change, in the sandbox
        self._is_loading = False  # that the model is being loaded was said
        self.accepts_all = False  # the user said yes to every edit of this session
        self.error: base_events.Failed | None = None  # with which the turn failed

    @contextmanager
    def prompted(self) -> Iterator[None]:
        """Say that turns meanwhile are the client's own: it knows their messages."""
        self._is_prompted = True
        try:
            yield
        finally:
            self._is_prompted = False

    # ---- questions --------------------------------------------------------------------------------

    async def decide(self, proposal: Proposal) -> Decision:
        if self.accepts_all and not proposal.problems and not proposal.faults:
            return Accept()
        await self._updates.drain()
        by_hunk = [BY_HUNK] if len(proposal.hunks) > 1 else []
        chosen = await self._link.ask(self._edit.question, [ACCEPT, ACCEPT_ALL, *by_hunk, REJECT])
        if chosen == BY_HUNK.option_id:
            return await choose_hunks(
                self._link, self._updates, proposal, edit_id=self._edit.id, folder=self._folder
            )
        self.accepts_all = chosen == ACCEPT_ALL.option_id
        return Accept() if chosen in (ACCEPT.option_id, ACCEPT_ALL.option_id) else Reject()

    async def resolve(self, conflict: Conflict) -> Resolution:
        self._updates.say_line(conflict.message)
        await self._updates.drain()
        chosen = await self._link.ask(self._edit.question, [TAKE_EDIT, TAKE_FILE, STOP])
        if chosen == TAKE_EDIT.option_id:
            return TakeEdit()
        return TakeFile() if chosen == TAKE_FILE.option_id else Stop()

    async def approve(self, asked: ApprovalAsked) -> Approval:
        await self._updates.drain()
        options = [ALLOW, *([ALLOW_KEPT] if asked.can_be_kept else []), REFUSE]
        chosen = await self._link.ask(self._task.question(asked), options)
        return Approval(
            is_allowed=chosen in (ALLOW.option_id, ALLOW_KEPT.option_id),
            is_kept=chosen == ALLOW_KEPT.option_id,
            digest=asked.digest,
        )

    async def run_command(self, command: Sequence[str], folder: Path, limits: Limits) -> Outcome:
        """Run a command that left the sandbox: in a terminal of the editor's, if it offers any."""
        if not self._link.has_terminals:
            return await run_plainly(command, folder, limits)
        return await run_in_terminal(self._link, command, folder, limits, self._task.show_terminal)

    # ---- events -----------------------------------------------------------------------------------

    def show(self, event: AgentEvent) -> None:
        match event:
            case turn_events.AnswerGrew(text=delta) | talk_events.SideGrew(text=delta):
                self._updates.say(delta)
            case turn_events.ReasoningGrew(text=delta):
                self._updates.think(delta)
            case edit_events.DiffGrew():
                self._edit.grow(event)
            case turn_events.TaskStepped(step=step, folder=folder):
                self._task.show(step, folder)
            case _:
                self._show_turn(event)

    def _show_turn(self, event: AgentEvent) -> None:
        match event:
            case turn_events.TurnStarted(turn=turn, text=text):
                self._turn, self._was_run, self.error = turn, False, None
                if not self._is_prompted:
                    self._updates.send(update_user_message_text(text))
                if turn == 1:
                    self._tell_title(" ".join(text.split())[:TITLE_CHARS])
                self._updates.begin_message()
            case turn_events.AttemptAbandoned(why=why):
                self._edit.end("failed")
                self._task.abandon()
                gone = "The server went away; this is the answer from its beginning."
                self._updates.say_line(gone if why == "server_gone" else "")
            case turn_events.SteerQueued():
                self._updates.say_line("The answer was over: your message comes next.")
            case talk_events.ModelProgress(is_loading=is_loading):
                if is_loading and not self._is_loading:
                    self._note(event.in_words)
                self._is_loading = is_loading
            case turn_events.CodeRead() | turn_events.MemoryUsed():
                self._note(event.in_words)
            case turn_events.HistoryReplayed(left_out=left_out) if left_out:
                self._note(event.in_words)
            case base_events.Failed():
                self.error = event
                self._edit.end("failed")
            case turn_events.TurnEnded():
                self._edit.end("failed")  # no effect behind its own end
                self._task.abandon()
            case _:
                self._show_edit(event)

    def _show_edit(self, event: AgentEvent) -> None:
        match event:
            case edit_events.EditStarted():
                self._edit.begin(self._turn, event)
            case edit_events.UnitLocated():
                self._edit.locate(event)
            case edit_events.EditPlanned():
                self._edit.plan(event)
            case edit_events.AnswersCompared() | edit_events.UserTestsEnded():
                self._was_run = self._was_run or event.was_run
                self._note(event.in_words)
            case edit_events.UnitLeft() | edit_events.ImportsAdded() | edit_events.NamesUndefined():
                self._note(event.in_words)
            case edit_events.EditProposed(proposal=proposal):
                self._edit.propose(proposal)
                for problem in (*proposal.problems, *proposal.faults):
                    self._updates.say_line(f"Look twice: {problem}")
                for missing in proposal.missing:
                    self._updates.say_line(f"Left out: {missing}")
            case edit_events.EditApplied():
                self._show_written(event)
            case edit_events.EditNotApplied(reason=reason):
                self._edit.end("failed" if reason == "rejected" else "completed")
                self._updates.say_line(
                    "Nothing to change." if reason == "nothing_to_change" else "Not written."
                )
            case _:
                self._show_talk(event)

    def _show_written(self, event: edit_events.EditApplied) -> None:
        self._edit.take(event.proposal)
        self._edit.end("completed")
        run = "" if self._was_run else ", not run"
        names = self._names([str(file.source.path) for file in event.proposal.changed])
        back = "/undo takes it back" if event.entry else "the editor's undo takes it back"
        self._updates.say_line(f"Wrote {names}{run}: {back}.")
        for path in event.merged_paths:
            self._updates.say_line(
                f"{self._names([path])} had changed meanwhile: both changes are in it now."
            )

    def _show_talk(self, event: AgentEvent) -> None:
        match event:
            case talk_events.CompactionStarted():
                self._note("summarising the conversation")
            case talk_events.Compacted(before_tokens=before):
                self._updates.say_line(f"Summarised {before} tokens. `/compact undo` brings them back.")
            case talk_events.CompactionUndone():
                self._updates.say_line("The model reads the whole conversation again.")
            case talk_events.EditsUndone(paths=paths):
                self._updates.say_line(f"Took back the change to {self._names(paths)}. /redo brings it back.")
            case talk_events.EditsRedone(paths=paths):
                self._updates.say_line(f"Brought back the change to {self._names(paths)}.")
            case talk_events.Rewound(turn=turn, paths=paths):
                files = f": {self._names(paths)}" if paths else "."
                self._updates.say_line(f"Back to before turn {turn}{files}")
            case talk_events.Renamed(title=title) if title:
                self._tell_title(title)
            case talk_events.OptionsChanged() | talk_events.ModelChanged():
                self._on_options()

    def _tell_title(self, title: str) -> None:
        self._updates.send(SessionInfoUpdate(session_update="session_info_update", title=title))

    def _note(self, words: str) -> None:
        self._updates.think(f"{words}\n")

    def _names(self, paths: Sequence[str]) -> str:
        """Return the files as a person in this folder writes them."""
        inside = [Path(path) for path in paths]
        return ", ".join(
            str(path.relative_to(self._folder) if path.is_relative_to(self._folder) else path)
            for path in inside
        )
