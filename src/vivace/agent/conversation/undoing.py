"""Edits of a conversation, taken back and brought back: the newest, or any one of them by its entry.

Owns which edits of the conversation a request means, and what the conversation calls undone afterwards. Does
not own how files are led back, nor what is refused then (`edits.apply.journal`).
"""

from collections.abc import Sequence

from vivace.agent.conversation.transcript.history import EditResult, Turn
from vivace.agent.edits.apply.journal import Journal
from vivace.errors import NothingToUndo, UsageError

NONE_TO = "There is no edit of this conversation to {}."


def edits_in(turns: Sequence[Turn], outcome: str, *, first: int = 1) -> list[EditResult]:
    """Return the edits of turn `first` and later that ended so, the newest first."""
    edits = [edit for turn in turns if turn.number >= first for edit in turn.edits]
    return [edit for edit in reversed(edits) if edit.outcome == outcome and edit.entry]


def nth_entry(turns: Sequence[Turn], outcome: str, place: str) -> int:
    """Return the entry of an edit that is counted from the newest, which is 1; return 0 for no number."""
    if not place:
        return 0
    entries = list(dict.fromkeys(edit.entry for edit in edits_in(turns, outcome)))
    if not place.isdigit() or not 1 <= int(place) <= len(entries):
        raise UsageError(
            f"{place} is no number of an edit.", f"Name one from 1 (the newest) to {len(entries)}."
        )
    return entries[int(place) - 1]


def take_back(journal: Journal, turns: Sequence[Turn], entry: int) -> list[EditResult]:
    """Take back the files of entry `entry`, or of the newest edit that stands (0). Return their edits.

    Later changes of the same files are kept. An entry that `vivace undo` has taken back is only returned.
    Raise NothingToUndo if there is no such edit, or if later changes are in the same lines.
    """
    standing = journal.standing()
    edits = edits_in(turns, "applied")
    chosen = entry or next((edit.entry for edit in edits if edit.entry in standing), 0)
    meant = [edit for edit in edits if edit.entry == chosen]
    if not meant:
        what = (
            f"Edit {entry} is not one that stands in this conversation." if entry else NONE_TO.format("undo")
        )
        raise NothingToUndo(what)
    if chosen in standing:
        journal.undo(number=chosen)
    return meant


def bring_back(journal: Journal, turns: Sequence[Turn], entry: int) -> list[EditResult]:
    """Bring back entry `entry`, or what was taken back last (0), with all that was taken back with it.

    Return the edits that stand again. Raise NothingToUndo if there is no such edit, or if later changes are
    in the same lines.
    """
    undone = {edit.entry for edit in edits_in(turns, "undone")}
    chosen = entry or _taken_back_last(journal, undone)
    if chosen not in undone:
        what = f"Edit {entry} is not undone in this conversation." if entry else NONE_TO.format("redo")
        raise NothingToUndo(what)
    if chosen not in journal.standing():
        journal.redo(number=chosen)
    standing = journal.standing()
    return [edit for edit in edits_in(turns, "undone") if edit.entry in standing]


def _taken_back_last(journal: Journal, entries: set[int]) -> int:
    """Return one of the entries that the newest standing undo has taken back; 0 if there is none."""
    standing = journal.standing()
    for step in journal.entries():
        if step.kind == "undo" and step.number in standing:
            for number in step.reverses:
                if number in entries:
                    return number
    return 0
