"""The list of background tasks, for people and for programs.

Owns the columns and the keys. Does not own what is in them (`agent.tasks.state`).
"""

import shutil
from collections.abc import Sequence

import msgspec

from vivace.agent.tasks.state import TaskState
from vivace.agent.tasks.store import TaskFolder
from vivace.cli.show.screen import clean
from vivace.redaction import redact

HEADINGS = ("ID", "STATE", "MODEL", "TURNS", "TOKENS", "TIME", "TASK")
MAX_MODEL = 24  # characters


def table(found: Sequence[tuple[TaskFolder, TaskState]]) -> str:
    """Return two lines a task: its numbers, and what it did last."""
    width = shutil.get_terminal_size((100, 24)).columns
    rows = [_row(task, state) for task, state in found]
    widths = [max(len(row[at]) for row in [HEADINGS, *rows]) for at in range(len(HEADINGS) - 1)]
    lines = [_joined(HEADINGS, widths, width)]
    for row, (_, state) in zip(rows, found, strict=True):
        lines.append(_joined(row, widths, width))
        if state.last:
            lines.append(_cut(f"  {_one_line(state.last)}", width))
    return "\n".join(lines)


def as_json(task: TaskFolder, state: TaskState) -> str:
    """Return a task as an object on one line."""
    assert state.queued is not None
    told = {
        "id": task.id,
        "state": state.status,
        "model": state.queued.model,
        "task": redact(state.queued.task),
        "folder": state.queued.folder,
        "workspace": state.queued.workspace,
        "turns": state.turns,
        "tokens": state.tokens,
        "seconds": round(state.seconds, 1),
        "last": redact(state.last),
        "asks": None if state.asked is None else msgspec.to_builtins(state.asked),
        "summary": redact(state.text) if state.is_over else "",
        "error": None if state.error is None else msgspec.to_builtins(state.error),
        "taken": list(state.taken),
    }
    return msgspec.json.encode(told).decode()


def _row(task: TaskFolder, state: TaskState) -> tuple[str, ...]:
    assert state.queued is not None
    model = state.queued.model.rpartition("/")[2]
    status = f"{state.status}, taken" if state.taken else state.status
    numbers = (str(state.turns), _tokens(state.tokens), _time(state.seconds))
    return (task.id, status, model[-MAX_MODEL:], *numbers, _one_line(state.queued.task))


def _joined(row: Sequence[str], widths: Sequence[int], width: int) -> str:
    cells = [cell.ljust(each) for cell, each in zip(row, [*widths, 0], strict=True)]
    return _cut("  ".join(cells).rstrip(), width)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(1, width - 1)]}…"


def _one_line(text: str) -> str:
    return clean(redact(" ".join(text.split())))


def _tokens(count: int) -> str:
    return str(count) if count < 10_000 else f"{count / 1000:.0f}k"


def _time(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s"
