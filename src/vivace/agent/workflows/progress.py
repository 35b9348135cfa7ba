"""How far an earlier process came with a workflow, from the lines of its log.

Owns the fold. Does not own the lines (`events.task`) nor the file (`tasks.log`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from vivace.agent.events.task import (
    ChangeTakenBack,
    FilesWritten,
    Steered,
    StepBegan,
    StepEnded,
    WorkflowStarted,
    WritingBegan,
)


@dataclass
class Progress:
    started: WorkflowStarted | None = None
    ended: dict[str, StepEnded] = field(default_factory=dict)  # by key
    open: dict[str, StepBegan] = field(default_factory=dict)  # begun and not ended, by key
    writing: dict[str, WritingBegan] = field(default_factory=dict)  # the last write of an open step
    diffs: dict[int, str] = field(default_factory=dict)  # what was written and stands, by entry
    steers: list[str] = field(default_factory=list)


def progress_of(steps: Iterable[object]) -> Progress:
    """Return how far the lines go."""
    progress, last = Progress(), ""
    for step in steps:
        match step:
            case WorkflowStarted():
                progress.started = step
            case StepBegan(key=key):
                progress.open[key], last = step, key
                progress.writing.pop(key, None)
            case StepEnded(key=key, status=status):
                progress.open.pop(key, None)
                if status != "fatal":
                    progress.ended[key] = step
            case WritingBegan() if last:
                progress.writing[last] = step
            case FilesWritten(diff=diff, entry=entry):
                progress.diffs[entry] = diff
            case ChangeTakenBack(entry=entry):
                progress.diffs.pop(entry, None)
                progress.writing.pop(last, None)
            case Steered(text=text):
                progress.steers.append(text)
    return progress
