"""Taking back the edits of a conversation's turns, the newest first.

Owns which edits those are. Does not own how bytes are put back (`edits.apply.journal`): a file that someone
else changed since is left alone, and said.
"""

from collections.abc import Sequence
from pathlib import Path

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
    """Undo one after the other. Return those that were undone, and what stopped it, if anything did."""
    undone: list[EditResult] = []
    for edit in edits:
        try:
            newest = next(journal.entries(Path(edit.path)), None)
            if newest is None or newest.number != edit.entry:
                raise NothingToUndo(
                    f"{edit.path} was edited after this conversation did, or the edit was undone already.",
                    "It was left untouched. `vivace undo` takes the later edit back.",
                )
            journal.undo(Path(edit.path))
        except NothingToUndo as error:
            return undone, error
        undone.append(edit)
    return undone, None
