"""The lines of a task's log: the steps of its loop, and what is only said in the background.

Owns the shapes that the loop does not know: how a task was given, that a process began to work on it, what
people said to it, and that its changes were taken over. Does not own the file (`log`), nor what the lines
add up to (`state`, `resuming`).
"""

from typing import Any, Literal

import msgspec

from vivace.agent.events.base import Event
from vivace.agent.events.task import AnyStep
from vivace.agent.loop.task import TaskLimits
from vivace.agent.permissions.policy import Access, Asking

SCHEMA = 1
# A model that calls tools, a small one that rewrites units by a plan, or the steps of a workflow.
Way = Literal["tools", "units", "workflow"]


class TaskQueued(Event, frozen=True, tag="task.queued"):
    """The first line of every log. The workplace is there."""

    schema: int  # the version of this format
    id: str  # of the task
    folder: str  # the user's
    workspace: str  # where the task works: a worktree of Git's or a copy
    way: Way
    model: str
    task: str  # in the user's words
    access: Access
    asking: Asking
    limits: TaskLimits
    at_s: float  # Unix time
    context: tuple[dict[str, Any], ...] = ()  # what was said before, as items of a request
    opening: str = ""  # the task with what is remembered about it; "": the task as it is
    is_tainted: bool = False  # a part of that was not written by the user
    uses_project: bool = False  # with the MCP servers that the folder names, if they are trusted


class RunnerBegan(Event, frozen=True, tag="runner.started"):
    """A process is started that works on the task. Without an end behind it, it was killed or still works."""


class MessageTaken(Event, frozen=True, tag="message.taken"):
    """The process has read what a person said to the task."""

    number: int  # of the line in the inbox
    kind: str  # steer, answer or stop


class TaskTaken(Event, frozen=True, tag="task.taken"):
    """Changes of the task were taken over into the user's folder."""

    entry: int  # the number in the undo journal
    paths: tuple[str, ...]


AnyRecord = AnyStep | TaskQueued | RunnerBegan | MessageTaken | TaskTaken


class Line(msgspec.Struct, frozen=True):
    at_s: float  # Unix time
    step: AnyRecord
