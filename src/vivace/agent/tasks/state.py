"""What the lines of a task's log add up to, for people: how it is, what it used, what it did last.

Owns the fold, a pure function that takes any beginning of a log. Whether the task's process lives is not in
the log: `store` adds that. Does not own how a task goes on (`resuming`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from vivace.agent.events.base import Failed
from vivace.agent.events.task import (
    ApprovalAnswered,
    ApprovalAsked,
    CallEnded,
    CallStarted,
    EndReason,
    FilesWritten,
    ModelAnswered,
    PlanUpdated,
    Steered,
    StepBegan,
    TaskEnded,
    TextGrew,
    TurnBegan,
)
from vivace.agent.tasks.records import Line, MessageTaken, RunnerBegan, TaskQueued, TaskTaken

# `interrupted`: it was at work, and its process is gone.
Status = Literal["queued", "running", "waiting", "interrupted", "done", "stopped", "failed", "limit"]
STATUSES: dict[EndReason, Status] = {
    "completed": "done",
    "stopped": "stopped",
    "turns": "limit",
    "tokens": "limit",
    "time": "limit",
    "context": "limit",
    "malformed_calls": "failed",
    "failed": "failed",
}
MAX_LAST = 200  # characters


@dataclass(frozen=True)
class TaskState:
    queued: TaskQueued | None = None  # None: the log has no whole first line
    status: Status = "queued"
    turns: int = 0  # that were begun
    tokens: int = 0
    seconds: float = 0.0  # at work, without waiting for people
    last: str = ""  # what it did last, in a line
    text: str = ""  # the model's last words: at the end, its summary
    reason: EndReason | None = None  # of the last end
    error: Failed | None = None
    exit_code: int = 0
    asked: ApprovalAsked | None = None  # what it waits for
    messages_taken: int = 0  # lines of the inbox
    entries: tuple[int, ...] = ()  # of the task's own journal
    taken: tuple[int, ...] = ()  # entries of the user's journal, by which changes were taken over
    since_s: float | None = None  # Unix time up to which `seconds` counts; None: its time stands still

    @property
    def is_over(self) -> bool:
        return self.status in ("done", "stopped", "failed", "limit")


def state_of(lines: Iterable[Line]) -> TaskState:
    """Return what the lines add up to."""
    state = TaskState()
    for line in lines:
        state = _after(_timed(state, line.at_s), line)
    return state


def _timed(state: TaskState, at_s: float) -> TaskState:
    """Count the time up to this line, if the task is at work. Clocks may be set back."""
    if state.since_s is None:
        return state
    return replace(state, seconds=state.seconds + max(0.0, at_s - state.since_s), since_s=at_s)


def _after(state: TaskState, line: Line) -> TaskState:
    match line.step:
        case TaskQueued() as queued:
            return replace(state, queued=queued, last="queued")
        case RunnerBegan():
            return replace(state, status="running", asked=None, since_s=line.at_s, last="began")
        case TurnBegan(turn=turn):
            return replace(state, turns=turn, last=f"turn {turn}")
        case ModelAnswered(text=text, tokens=tokens):
            last = _short(text) or state.last
            return replace(state, tokens=state.tokens + tokens, text=text or state.text, last=last)
        case TextGrew(text=text):
            return replace(state, last=_short(text) or state.last)
        case CallStarted(tool=tool, title=title):
            return replace(state, last=_short(f"{tool} {title}"))
        case CallEnded(tool=tool, status=status, summary=summary) if status != "done":
            return replace(state, last=_short(f"{tool} {status}: {summary}"))
        case ApprovalAsked(tool=tool, title=title) as asked:
            last = _short(f"asks: {tool} {title}")
            return replace(state, status="waiting", asked=asked, since_s=None, last=last)
        case ApprovalAnswered():
            return replace(state, status="running", asked=None, since_s=line.at_s)
        case PlanUpdated(steps=steps):
            now = next((each.step for each in steps if each.status == "in_progress"), "")
            return replace(state, last=_short(now) or state.last)
        case FilesWritten(paths=paths, entry=entry):
            last = _short(f"wrote {', '.join(paths)}")
            return replace(state, entries=(*state.entries, entry), last=last)
        case StepBegan(key=key, title=title):
            return replace(state, last=_short(f"step {key}: {title}"))
        case Steered(text=text):
            return replace(state, last=_short(f"told: {text}"))
        case MessageTaken(number=number):
            return replace(state, messages_taken=max(state.messages_taken, number))
        case TaskTaken(entry=entry):
            return replace(state, taken=(*state.taken, entry))
        case TaskEnded() as ended:
            return _ended(state, ended)
    return state


def _ended(state: TaskState, ended: TaskEnded) -> TaskState:
    return replace(
        state,
        status=STATUSES[ended.reason],
        reason=ended.reason,
        error=ended.error,
        exit_code=ended.exit_code,
        tokens=max(state.tokens, ended.tokens),
        text=ended.text or state.text,
        asked=None,
        since_s=None,
        last=_short(ended.error.message if ended.error else ended.text) or ended.reason,
    )


def _short(text: str) -> str:
    """Return the first line of a text, of a length that fits into a list."""
    first = text.strip().partition("\n")[0].strip()
    return first if len(first) <= MAX_LAST else f"{first[: MAX_LAST - 1]}…"
