"""From the log of a task to where it goes on: the conversation rebuilt, and what an interruption left open.

Owns both, as functions of the lines. A call that was begun and has no end is not run again: its answer says
what is known of it, and the model decides. Files are looked at only to see whether a write was done. Does not
run anything.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from vivace.agent.edits.apply.journal import Journal
from vivace.agent.edits.apply.replacing import read_state, sha256_of
from vivace.agent.events.task import (
    CallEnded,
    CallMade,
    CallStarted,
    CallStatus,
    FilesWritten,
    ModelAnswered,
    Steered,
    TaskEnded,
    TurnBegan,
    WritingBegan,
)
from vivace.agent.loop.calls import Desk
from vivace.agent.loop.checkpoint import Checkpoint, Item, answer_items, new_checkpoint, output_item
from vivace.agent.loop.task import TaskLimits, fault_message
from vivace.agent.prompting import user
from vivace.agent.tasks.records import Line, TaskQueued
from vivace.agent.tasks.state import state_of
from vivace.errors import WriteProblem

NOT_BEGUN = (
    "Interrupted: the task was cut off before this call began. Nothing was done. "
    "Call it again if it is still needed."
)
EFFECT_UNKNOWN = (
    "Interrupted: the task was cut off while this ran, so its effect is unknown. It was not run again. "
    "Look at what is there before you decide whether to call it again."
)
CHANGED_NOTHING = (
    "Interrupted: the task was cut off before this had ended. It changes nothing: "
    "call it again if it is needed."
)
WRITTEN = "The change was written before the task was cut off."
WRITING_UNKNOWN = (
    "Interrupted: the task was cut off while files were written, and they are neither as they were nor as "
    "they should be. Read them before you go on."
)
NOT_WRITTEN = (
    "Interrupted: the change was not written. The file is as it was. Make it again if it is still wanted."
)


@dataclass
class Progress:
    """Where a task stands."""

    queued: TaskQueued
    items: list[Item]  # for the next request, without the outputs of calls
    told: list[Item] = field(default_factory=list)
    previous: str = ""
    turns: int = 0  # that were answered
    tokens: int = 0
    text: str = ""
    faults: int = 0  # answers in a row with something wrong in them
    faults_before: int = 0  # the last answer
    calls: tuple[CallMade, ...] = ()  # of the last answer
    outputs: dict[str, str] = field(default_factory=dict)  # of them, by call id
    started: set[str] = field(default_factory=set)
    writing: list[WritingBegan] = field(default_factory=list)  # since the last answer, without an end
    steers: list[str] = field(default_factory=list)  # that no answered turn knows
    fault: str = ""
    is_tainted: bool = False
    entries: list[int] = field(default_factory=list)
    begun: TurnBegan | None = None  # a turn without an answer
    used: tuple[int, int, float] = (0, 0, 0.0)  # turns, tokens and seconds up to the last end

    @property
    def unanswered(self) -> list[CallMade]:
        """Return the calls of the last answer that have no output."""
        return [call for call in self.calls if call.call_id not in self.outputs]

    @property
    def messages(self) -> list[str]:
        return [*([fault_message(self.fault)] if self.fault else []), *self.steers]


def progress_of(lines: Sequence[Line]) -> Progress:
    """Return where the task stands. The first line is that of `TaskQueued`."""
    queued = lines[0].step
    assert isinstance(queued, TaskQueued)
    progress = Progress(queued, list(new_checkpoint(queued.opening or queued.task, queued.context).items))
    progress.is_tainted = bool(queued.context) or queued.is_tainted
    for number, line in enumerate(lines):
        if isinstance(line.step, TaskEnded):
            progress.used = (progress.turns, progress.tokens, state_of(lines[: number + 1]).seconds)
        else:
            _take(progress, line)
    return progress


def _take(progress: Progress, line: Line) -> None:
    match line.step:
        case TurnBegan() as begun:
            progress.begun = begun
        case ModelAnswered() as answered:
            _take_answer(progress, answered)
        case CallStarted(call_id=call_id):
            progress.started.add(call_id)
            progress.is_tainted = True
        case CallEnded(call_id=call_id, output=output, status=status):
            progress.outputs[call_id] = output
            if status == "malformed":
                progress.faults = progress.faults_before + 1
        case WritingBegan() as writing:
            progress.writing.append(writing)
        case FilesWritten(entry=entry):
            progress.entries.append(entry)
        case Steered(text=text):
            progress.steers.append(text)


def _take_answer(progress: Progress, answered: ModelAnswered) -> None:
    """Put the turn that was answered behind what was told before."""
    begun = progress.begun
    messages = list(begun.messages) if begun and begun.turn == answered.turn else []
    progress.told += [*_with_outputs(progress), *map(user, messages), *answer_items(answered)]
    for text in (*messages, *answered.steers):
        if text in progress.steers:
            progress.steers.remove(text)
    progress.faults_before = progress.faults
    progress.faults = progress.faults + 1 if answered.fault else 0
    progress.items, progress.begun = [], None
    progress.previous, progress.fault = answered.response_id, answered.fault
    progress.turns, progress.tokens = answered.turn, progress.tokens + answered.tokens
    progress.text = answered.text or progress.text
    progress.calls, progress.outputs, progress.writing = answered.calls, {}, []


def _with_outputs(progress: Progress) -> list[Item]:
    outputs = [output_item(call, progress.outputs.get(call.call_id, NOT_BEGUN)) for call in progress.calls]
    return [*progress.items, *outputs]


def checkpoint_of(lines: Sequence[Line]) -> Checkpoint:
    """Return where the task goes on."""
    progress = progress_of(lines)
    return Checkpoint(
        items=tuple(_with_outputs(progress)),
        messages=tuple(progress.messages),
        previous=progress.previous,
        told=tuple(progress.told),
        turns=progress.turns,
        tokens=progress.tokens,
        seconds=state_of(lines).seconds,
        faults=progress.faults,
        text=progress.text,
    )


def limits_of(lines: Sequence[Line]) -> TaskLimits:
    """Return the limits for going on: what was used before the last end does not count."""
    progress = progress_of(lines)
    limits, (turns, tokens, seconds) = progress.queued.limits, progress.used
    return replace(
        limits, turns=limits.turns + turns, tokens=limits.tokens + tokens, seconds=limits.seconds + seconds
    )


def open_calls(progress: Progress, read_only: Iterable[str], staging: Iterable[str]) -> dict[str, str]:
    """Return what is to be said of each call without an end, by its id; "" for a write to be looked at.

    `read_only` and `staging` are the names of tools.
    """
    writing = {call_id for each in progress.writing for call_id in each.call_ids}
    said = {}
    for call in progress.unanswered:
        if call.call_id in writing:
            said[call.call_id] = ""
        elif call.call_id not in progress.started:
            said[call.call_id] = NOT_BEGUN
        elif call.name in read_only:
            said[call.call_id] = CHANGED_NOTHING
        elif call.name in staging:
            said[call.call_id] = NOT_WRITTEN
        else:
            said[call.call_id] = EFFECT_UNKNOWN
    return said


def close_calls(lines: Sequence[Line], desk: Desk) -> None:
    """Answer each call that has no end with what is known of it. Nothing is run again."""
    progress = progress_of(lines)
    read_only = {tool.name for tool in desk.tools if tool.is_read_only}
    staging = {tool.name for tool in desk.tools if tool.stages}
    said = open_calls(progress, read_only, staging)
    for writing in progress.writing:
        if any(call_id in said for call_id in writing.call_ids):
            outcome = look_at(writing, desk.journal, desk.presenter.show)
            said |= {call_id: outcome for call_id in writing.call_ids if call_id in said}
    for call in progress.unanswered:
        output = said[call.call_id]
        status: CallStatus = "done" if output == WRITTEN else "failed"
        desk.presenter.show(
            CallEnded(
                call_id=call.call_id, tool=call.name, status=status, summary="interrupted", output=output
            )
        )


def look_at(writing: WritingBegan, journal: Journal, show: Callable[[FilesWritten], None]) -> str:
    """Return whether files that were being written have their new contents, in words for the model.

    The journal was healed: it has written all of them or none.
    """
    now = [_hash_now(Path(file.path)) for file in writing.files]
    if now == [file.after_sha256 for file in writing.files]:
        entry = next((each.number for each in journal.entries()), 0)
        show(FilesWritten(entry=entry, paths=[Path(file.path).name for file in writing.files], diff=""))
        return WRITTEN
    return NOT_WRITTEN if now == [file.before_sha256 for file in writing.files] else WRITING_UNKNOWN


def _hash_now(path: Path) -> str | None:
    try:
        data = read_state(path)
    except WriteProblem:
        return "unreadable"
    return None if data is None else sha256_of(data)
