"""Taking back the edits of a conversation's turns, all or none.

Owns which edits those are. Does not own how bytes are put back (`edits.apply.journal`): what someone else
changed since is kept, and where that cannot be done nothing is undone.
"""

from collections.abc import Sequence

from vivace.agent.conversation.transcript.history import EditResult, Turn
from vivace.agent.edits.apply.journal import Journal
from vivace.errors import NothingToUndo


def applied_edits(turns: Sequence[Turn], first: int) -> list[EditResult]:
    """Return the edits of turn `first` and later that are in their files, the newest first."""
    edits = [edit for turn in turns if turn.number >= first for edit in turn.edits]
    return [edit for edit in reversed(edits) if edit.outcome == "applied"]


def undo_edits(
    journal: Journal, edits: Sequence[EditResult]
) -> tuple[list[EditResult], NothingToUndo | None]:
    """Undo them as one step, which can be redone as one. Return what was undone, or why nothing was."""
    if not edits:
        return [], None
    try:
        journal.undo_all({edit.entry for edit in edits})
    except NothingToUndo as error:
        return [], error
    return list(edits), None
