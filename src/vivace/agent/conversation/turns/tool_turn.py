"""A message to a model that can call tools, as a turn of a conversation: its loop, steered and stopped.

Owns what the conversation adds to the loop: it goes on from the response before, has the permission mode of
the conversation, and remembers which calls the user allowed for good. Does not own the loop (`loop.task`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vivace.agent.conversation.connection import Connection
from vivace.agent.conversation.message.prompt import (
    opening_summary,
    previous_response,
    told,
    turns_since_summary,
)
from vivace.agent.conversation.transcript.file import new_id
from vivace.agent.conversation.transcript.history import History, Turn
from vivace.agent.conversation.turns.answering import Ending
from vivace.agent.edits.apply.files import DISK, Files
from vivace.agent.edits.apply.journal import Journal
from vivace.agent.events.base import Failed
from vivace.agent.events.task import AnyStep, ApprovalAsked, EndReason, ModelAnswered, TaskEnded
from vivace.agent.events.turn import AttemptStarted, ResponseBegan, TaskStepped, TurnStatus, WritingEnded
from vivace.agent.loop.calls import Approval, Desk, KeptCall
from vivace.agent.loop.checkpoint import Checkpoint, Item
from vivace.agent.loop.opening import open_desk
from vivace.agent.loop.task import Task, TaskLimits
from vivace.agent.permissions.policy import Policy
from vivace.agent.presenter import NOBODY, ApprovingPresenter, Presenter
from vivace.agent.prompting import read_prompt, user
from vivace.agent.sandbox.plain import Terminal
from vivace.agent.tools.base import Tool
from vivace.errors import TurnFault

STATUSES: dict[EndReason, TurnStatus] = {
    "completed": "completed",
    "stopped": "stopped",
    "malformed_calls": "failed",
    "failed": "failed",
}


@dataclass
class ToolRules:
    """What calls of this conversation may do by themselves."""

    policy: Policy = field(default_factory=Policy)
    kept: set[KeptCall] = field(default_factory=set)  # calls that the user allowed for good


class StepPresenter:
    """Shows the steps of the loop as events of the conversation, and lets its face answer questions."""

    def __init__(self, face: Presenter, folder: Path) -> None:
        self._face, self._folder = face, folder
        self.response_id, self.log_tokens = "", 0  # of the last answer

    def show(self, step: AnyStep) -> None:
        if isinstance(step, ModelAnswered) and step.response_id:
            self._face.show(ResponseBegan(step.response_id))
            self.response_id, self.log_tokens = step.response_id, step.log_tokens
        self._face.show(TaskStepped(step, self._folder))

    async def approve(self, asked: ApprovalAsked) -> Approval:
        if isinstance(self._face, ApprovingPresenter):
            return await self._face.approve(asked)
        return Approval(is_allowed=False, reason=NOBODY)


class ToolTurn:
    def __init__(self, task: Task, desk: Desk, shown: StepPresenter, presenter: Presenter) -> None:
        self._task, self._desk, self._shown, self._presenter = task, desk, shown, presenter

    async def run(self) -> Ending:
        """Work on the message to its end."""
        self._presenter.show(AttemptStarted())
        ended = await self._task.run()
        self._presenter.show(WritingEnded())
        if ended.error or ended.reason == "malformed_calls":
            self._presenter.show(Failed.of(_fault(ended)))
        status = STATUSES.get(ended.reason, "cut")
        return Ending(status, self._shown.response_id, self._shown.log_tokens)

    async def steer(self, text: str) -> bool:
        return await self._task.steer(text)

    def stop(self) -> None:
        self._task.stop()

    def use_policy(self, policy: Policy) -> None:
        """Let calls from now on do what this policy says. The project's own stays beside it."""
        self._desk.context.policies = (policy, *self._desk.context.policies[1:])


async def open_tool_turn(
    history: History,
    connection: Connection,
    presenter: Presenter,
    journal: Journal,
    rules: ToolRules,
    *,
    content: str,
    has_strangers_text: bool,
    retold: Sequence[Turn],
    files: Files = DISK,
    foreign_tools: Sequence[Tool] = (),
) -> ToolTurn:
    """Return the turn that works on a message. `retold`: what the model is told where it has no log."""
    folder = Path(history.folder)
    shown = StepPresenter(presenter, folder)
    message = history.turns[-1].text
    desk = await open_desk(folder, message, shown, rules.policy, journal, foreign_tools=foreign_tools)
    desk.context.writes.files = files
    desk.context.terminal = presenter if isinstance(presenter, Terminal) else None
    desk.kept = rules.kept
    desk.is_tainted |= has_strangers_text or any(turn.steps for turn in history.turns)
    before: tuple[Item, ...] = (
        *read_prompt("task"),
        *opening_summary(history.compaction),
        *told(retold, folder),
    )
    previous = previous_response(history, of_task=True)
    checkpoint = (
        Checkpoint((*told(_untold(history), folder), user(content)), previous=previous, told=before)
        if previous
        else Checkpoint((*before, user(content)))
    )
    task = Task(new_id(), connection, history.model, desk, TaskLimits(), checkpoint)
    return ToolTurn(task, desk, shown, presenter)


def _untold(history: History) -> list[Turn]:
    """Return the turns since the response that is continued: stopped early, or no turns of the model's."""
    turns = turns_since_summary(history)
    answered = [index for index, turn in enumerate(turns) if turn.is_answered]
    return turns[answered[-1] + 1 :] if answered else turns


def _fault(ended: TaskEnded) -> TurnFault:
    if ended.error:
        return TurnFault(ended.error.message, ended.error.hint)
    return TurnFault("The model called its tools wrongly three times in a row.", "Say it differently.")
