"""What the model reads: the user's message with its files, and what happened since its last answer.

Owns the words around the user's own. The log at the server only grows: a request has what is new, and goes on
from the last response. Does not own when a request is sent (`conversation`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from vivace.agent.conversation.message.mentions import read_mention
from vivace.agent.conversation.message.relevant_code import read_piece
from vivace.agent.conversation.transcript.history import Compaction, EditResult, History, Turn
from vivace.agent.edits.apply.files import DISK, Files
from vivace.agent.edits.write.answer import fence_for
from vivace.agent.events.turn import CodePiece, MemoryUsed
from vivace.agent.memory.recall import NOTHING, Recalled, reminder
from vivace.agent.prompting import Message, read_prompt, user
from vivace.errors import UsageError

OUTCOMES = {  # what was undone later is told by a note
    "applied": "I accepted that change.",
    "rejected": "I rejected that change: the file is as it was before.",
    "shown_only": "That change was only shown: the file is as it was before.",
}
MAX_DIFF_LINES = 60
MAX_RETOLD = 4000  # turns of two items each; a request has at most 10,000 items


@dataclass(frozen=True)
class Asked:
    """A message with all that belongs to it, before it is put into words for the model."""

    text: str
    mentions: tuple[str, ...] = ()
    code: tuple[CodePiece, ...] = ()  # that was found for it
    memory: Recalled = NOTHING  # that fits it, told before or not

    def content(self, folder: Path, files: Files = DISK) -> str:
        """Return the message in the words of the model's prompt, without the rules in front of it."""
        text = "\n\n".join(filter(None, [self.memory.reminder, self.text]))
        return content_of(text, self.mentions, folder, self.code, files=files)


def previous_response(history: History, *, of_task: bool = False) -> str:
    """Return the response to go on from; "" if the model has read nothing yet.

    A log of questions and one of a task's turns (`of_task`) begin differently: neither continues the other.
    """
    answered = (turn for turn in reversed(turns_since_summary(history)) if turn.is_answered)
    last = next(answered, None)
    return last.response_id if last and (last.kind == "task") == of_task else ""


def told_memory(history: History, *, is_new: bool) -> list[MemoryUsed]:
    """Return what of files and notes is in the log of the next request. A new log has pending notes only."""
    told: list[MemoryUsed] = []
    for turn in [] if is_new else turns_since_summary(history):
        if turn.is_retold:  # the log began anew here
            told = []
        if turn.is_answered:
            told.append(msgspec.structs.replace(turn.memory, notes=(*turn.memory.notes, *turn.notes)))
    return [*told, MemoryUsed((), tuple(pending_notes(history)))]


def pending_notes(history: History) -> list[str]:
    """Return what the next request tells in front of the message."""
    return history.turns[-1].notes if history.is_running else history.notes


def next_input(
    history: History, asked: Asked, retold: Sequence[Turn] | None = None, files: Files = DISK
) -> list[Message]:
    """Return the items of the next request. What the message remembers is told as it is: see `told_memory`.

    `retold`: the log begins anew with these turns, for a server that does not know the last response.
    """
    turns = turns_since_summary(history)
    has_log = bool(previous_response(history))
    answered = [index for index, turn in enumerate(turns) if turn.is_answered and has_log]
    is_new = retold is not None or not answered
    untold = (turns if is_new else turns[answered[-1] + 1 :])[-MAX_RETOLD:]
    items = opening(history.compaction) if is_new else []
    said = list(told(untold if retold is None else retold, Path(history.folder), files))
    outcome = _outcome(untold[-1]) if untold and said else ""
    notes = pending_notes(history)
    content = asked.content(Path(history.folder), files)
    return [*items, *said, user("\n\n".join(filter(None, [asked.memory.rules, outcome, *notes, content])))]


def latest_turns(history: History, room_chars: int | None) -> list[Turn]:
    """Return the latest turns that the model can be told again: at most `MAX_RETOLD`, within the room."""
    kept: list[Turn] = []
    for turn in reversed(turns_since_summary(history)):
        size = sum(len(item["content"]) for item in told([turn], Path(history.folder)))
        if len(kept) == MAX_RETOLD or (room_chars is not None and size > room_chars):
            break
        kept.append(turn)
        room_chars = None if room_chars is None else room_chars - size
    return kept[::-1]


def opening(compaction: Compaction | None) -> list[Message]:
    """Return how a log begins."""
    return [*read_prompt("ask"), *opening_summary(compaction)]


def opening_summary(compaction: Compaction | None) -> list[Message]:
    """Return the summary that a log begins with, if there is one."""
    return [user(compaction.summary), _assistant("Understood.")] if compaction else []


def told(turns: Iterable[Turn], folder: Path, files: Files = DISK) -> Iterable[Message]:
    """Yield the turns as the model should remember them."""
    outcome = ""
    for turn in turns:
        answer = _said_by_model(turn)
        if not answer and not turn.attempts:
            continue  # nothing came of it
        notes = reminder(turn.memory.notes) if turn.kind == "question" else ""
        text = "\n\n".join(filter(None, [notes, turn.text]))
        content = content_of(text, turn.mentions, folder, turn.code, is_lenient=True, files=files)
        yield user("\n\n".join(filter(None, [outcome, *turn.notes, content])))
        yield _assistant(answer, is_cut_off=turn.status == "stopped" and turn.kind == "question")
        outcome = _outcome(turn)


def content_of(
    text: str,
    mentions: Sequence[str],
    folder: Path,
    code: Sequence[CodePiece] = (),
    *,
    is_lenient: bool = False,
    files: Files = DISK,
) -> str:
    """Return the message with the files that it mentions, and the code that was found for it.

    They come first: the next message about them finds them in the KV.
    `is_lenient`: pass over files that cannot be read any more.
    """
    readers = [partial(_mentioned, mention, folder, files) for mention in mentions]
    readers += [partial(read_piece, piece, folder, files) for piece in code]
    parts = []
    for read in readers:
        try:
            parts.append(read())
        except UsageError:
            if not is_lenient:
                raise
    return "\n\n".join([*parts, text])


def _mentioned(mention: str, folder: Path, files: Files) -> str:
    name, tag, piece = read_mention(mention, folder, files)
    fence = fence_for(piece)
    return f"{name}\n{fence}{tag}\n{piece}{fence}"


def turns_since_summary(history: History) -> list[Turn]:
    """Return the turns that are over and that the model reads itself."""
    last = history.compaction.turn if history.compaction else 0
    return [turn for turn in history.turns if turn.number > last and turn.status is not None]


def _said_by_model(turn: Turn) -> str:
    if turn.kind == "task":
        return "\n\n".join(filter(None, [turn.answer, *map(_change, turn.edits)]))
    return _report(turn) if turn.kind == "edit" else turn.answer


def _report(turn: Turn) -> str:
    """Return what an edit did, as the model would have said it."""
    return "\n\n".join(_change(edit) for edit in turn.edits) or turn.error or "I changed nothing."


def _change(edit: EditResult) -> str:
    lines = edit.diff.splitlines()
    shown = "\n".join(lines[:MAX_DIFF_LINES] + (["…"] if len(lines) > MAX_DIFF_LINES else []))
    what = f"`{edit.unit}` in {edit.path}" if edit.unit else edit.path
    return f"I changed {what}:\n```diff\n{shown}\n```" if shown else "I changed nothing."


def _outcome(turn: Turn) -> str:
    """Return what the user decided, for the message behind it."""
    if not turn.edits or turn.edits[-1].outcome not in OUTCOMES:
        return ""
    edit = turn.edits[-1]
    why = f" {edit.reason}" if edit.reason else ""
    return f"({OUTCOMES[edit.outcome]}{why})"


def _assistant(content: str, *, is_cut_off: bool = False) -> Message:
    message = {"role": "assistant", "content": content}
    return message | {"status": "incomplete"} if is_cut_off else message
