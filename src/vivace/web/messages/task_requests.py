"""What a face asks about background tasks.

Owns the shapes. Does not own what a task is (`agent.tasks`).
"""

from vivace.web.messages.request import Request


class TasksList(Request, frozen=True, tag="tasks.list"):
    """List the background tasks, the newest first."""


class TasksStart(Request, frozen=True, tag="tasks.start"):
    """Begin a task in a copy of the face's folder."""

    instruction: str
    policy: str = "workspace"  # a permission mode
    conversation: str = ""  # whose talk it is told


class TaskRequest(Request, frozen=True, kw_only=True):
    """What all requests about a task are."""

    task: str


class TasksLog(TaskRequest, frozen=True, tag="tasks.log"):
    """Return lines of a task's log."""

    after: int = 0  # lines that the face has already


class TasksDiff(TaskRequest, frozen=True, tag="tasks.diff"):
    """Return what a task has changed, as a unified diff."""


class TasksSteer(TaskRequest, frozen=True, tag="tasks.steer"):
    """Tell a running task something."""

    text: str


class TasksAnswer(TaskRequest, frozen=True, tag="tasks.answer"):
    """Answer what a task asks."""

    is_allowed: bool
    digest: str = ""  # of what the person saw; a yes needs it
    reason: str = ""


class TasksStop(TaskRequest, frozen=True, tag="tasks.stop"):
    """End a task. What it wrote stays in its copy."""


class TasksResume(TaskRequest, frozen=True, tag="tasks.resume"):
    """Let a task go on."""

    text: str = ""  # what more to do


class TasksTake(TaskRequest, frozen=True, tag="tasks.take"):
    """Offer what a task has changed as an edit of this conversation."""

    conversation: str
