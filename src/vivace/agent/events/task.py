"""The steps of a task, as values that any face can show and any program can read: one JSON object a line.

Owns the shapes; their version is that of all events (`base`). Secrets are taken out where a step becomes a
line, and only there. Does not own the loop (`loop.task`).
"""

from typing import ClassVar, Literal

import msgspec

from vivace.agent.events.base import Event, Failed
from vivace.agent.tools.base import Step
from vivace.redaction import RedactedStream, redact_values

# Why a task ended. Only `completed` is the model's own word.
EndReason = Literal["completed", "stopped", "turns", "tokens", "time", "context", "malformed_calls", "failed"]
CallStatus = Literal["done", "failed", "refused", "malformed"]


class TaskStarted(Event, frozen=True, tag="task.started"):
    """The first line of every task."""

    schema: int  # the version of this format
    id: str  # of the task
    folder: str  # the workspace
    model: str  # that works on it
    task: str  # in the user's words
    access: str  # read-only, workspace-write or full
    asking: str  # ask, on-request or never
    has_sandbox: bool  # commands are walled in
    at_s: float  # Unix time


class MemoryRead(Event, frozen=True, tag="task.memory"):
    """The model reads these instruction files and notes in front of the task."""

    files: tuple[str, ...] = ()  # their names
    notes: tuple[str, ...] = ()  # of the user's, that fit the task
    problem: str = ""  # why the notes could not be read


class ServersOpened(Event, frozen=True, tag="task.servers"):
    """The model has the tools of these MCP servers, each call of which asks."""

    servers: tuple[str, ...] = ()  # their names
    problems: tuple[str, ...] = ()  # why others are missing


class TaskResumed(Event, frozen=True, tag="task.resumed"):
    """A task that was interrupted, or had ended, goes on from its log."""

    turns: int  # that the model has answered
    at_s: float  # Unix time


class TurnBegan(Event, frozen=True, tag="task.turn"):
    """The model is asked what to do next. It is told the outputs of its calls, and these messages."""

    turn: int  # 1 for the first
    messages: tuple[str, ...] = ()  # what the user has said since the last turn, and what was wrong with it


class TextGrew(Event, frozen=True, tag="text.delta"):
    """More of what the model says to the user."""

    is_delta: ClassVar[bool] = True
    text: str


class CallMade(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call as the model wrote it."""

    call_id: str
    name: str  # of the tool
    arguments: str  # JSON; of a custom tool, its input as text
    is_custom: bool = False


class ModelAnswered(Event, frozen=True, tag="task.answered"):
    """The model has said all of a turn. Calls that change something run only after this."""

    turn: int
    response_id: str
    text: str = ""
    calls: tuple[CallMade, ...] = ()
    steers: tuple[str, ...] = ()  # what the user said meanwhile, and the answer knows
    fault: str = ""  # what is wrong with an answer that has no whole call
    tokens: int = 0  # read anew and written
    log_tokens: int = 0  # of all that was said so far, with this


class CallStarted(Event, frozen=True, tag="tool.started"):
    """A tool runs. Tools that only read may start while the model still writes."""

    call_id: str
    tool: str
    title: str  # what it does, in a line


class CallEnded(Event, frozen=True, tag="tool.ended"):
    """A call was answered."""

    call_id: str
    tool: str
    status: CallStatus
    summary: str = ""  # a few words for a person
    output: str = ""  # what the model reads, bounded
    seconds: float = 0.0


class ApprovalAsked(Event, frozen=True, tag="approval.asked"):
    """A person is asked whether a call may run."""

    call_id: str
    tool: str
    title: str  # a line that stands for it
    reason: str  # why it is not simply allowed
    shown: str = ""  # all of what would run, as a person must see it: nothing hidden, nothing cut
    digest: str = ""  # of what would run; a yes names it
    can_be_kept: bool = False  # a yes may count for the same call from now on


class ApprovalAnswered(Event, frozen=True, tag="approval.answered"):
    """The person has answered, or nobody is there to ask."""

    call_id: str
    is_allowed: bool
    reason: str = ""  # of a no


class PlanUpdated(Event, frozen=True, tag="plan.updated"):
    """The model told its plan."""

    steps: list[Step]  # each with step and status


class FileWriting(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is about to be written. The hash None stands for "there is no file"."""

    path: str  # absolute
    before_sha256: str | None
    after_sha256: str | None


class WritingBegan(Event, frozen=True, tag="files.writing"):
    """The changes of these calls are about to be written, all or none."""

    call_ids: list[str]
    files: list[FileWriting]


class FilesWritten(Event, frozen=True, tag="files.written"):
    """The changes of a turn are on disk, as one entry that `vivace undo` takes back."""

    entry: int  # the number in the undo journal
    paths: list[str]
    diff: str  # unified


class Steered(Event, frozen=True, tag="task.steered"):
    """The user said something while the task ran."""

    text: str


class WorkflowStarted(Event, frozen=True, tag="workflow.started"):
    """What runs, as it was read when it began: a file that changes meanwhile changes nothing."""

    name: str
    text: str  # of its file
    inputs: dict[str, str]  # with defaults


class StepBegan(Event, frozen=True, tag="workflow.step.began"):
    """A step of a workflow begins. Without an end behind it, it was cut off."""

    key: str  # such as 3.1 or 3[src/a.py].1
    kind: str
    title: str


class StepEnded(Event, frozen=True, tag="workflow.step.ended"):
    """A step of a workflow is over."""

    key: str
    output: str = ""
    # done, passed_over, failed (the workflow goes on), or fatal (it ends, and a resume does the step again)
    status: str = "done"


class ChangeTakenBack(Event, frozen=True, tag="workflow.change.taken_back"):
    """What a step wrote was undone: its check failed."""

    entry: int  # the number in the undo journal
    problem: str


class TaskEnded(Event, frozen=True, tag="task.ended"):
    """The last line of every task that was not killed."""

    reason: EndReason
    exit_code: int
    text: str = ""  # the model's last words
    turns: int = 0
    tokens: int = 0  # read anew and written, in all turns
    seconds: float = 0.0
    entries: tuple[int, ...] = ()  # of the undo journal
    refused: int = 0  # calls that were not allowed
    error: Failed | None = None  # what went wrong, if it did not complete


AnyStep = (
    TaskStarted
    | MemoryRead
    | ServersOpened
    | TaskResumed
    | TurnBegan
    | ModelAnswered
    | TextGrew
    | CallStarted
    | CallEnded
    | ApprovalAsked
    | ApprovalAnswered
    | PlanUpdated
    | WritingBegan
    | FilesWritten
    | Steered
    | WorkflowStarted
    | StepBegan
    | StepEnded
    | ChangeTakenBack
    | TaskEnded
)


class RedactedSteps:
    """Steps as they may be written down: the end of a text is held back while it may begin a secret."""

    def __init__(self) -> None:
        self._text = RedactedStream()

    def take(self, step: AnyStep) -> list[AnyStep]:
        """Return what can be written now."""
        if isinstance(step, TextGrew):
            text = self._text.grow(step.text)
            return [TextGrew(text=text)] if text else []
        rest = self._text.end()
        return [*([TextGrew(text=rest)] if rest else []), step]


def encode_step(step: AnyStep) -> str:
    """Return the step as a line of JSON, with known secrets taken out."""
    return msgspec.json.encode(redact_values(msgspec.to_builtins(step))).decode()
