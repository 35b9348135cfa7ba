"""A turn of a conversation that is taken up again, in the blocks that it had when it ran.

Owns which blocks those are. Does not own the state (`transcript.history`).
"""

from typing import TYPE_CHECKING

from vivace.agent.events import turn as turn_events
from vivace.tui.transcript.answer import Answer
from vivace.tui.transcript.blocks import Note, Said, Table, Thinking
from vivace.tui.transcript.view import Transcript

if TYPE_CHECKING:
    from vivace.agent.conversation.transcript.history import Attempt, EditResult, Turn

SHOWN_LINES = 20
SHOWN_CHARS = 4000


def show_past_turn(transcript: Transcript, turn: "Turn") -> None:
    """Show what was said and done in this turn."""
    transcript.add(Said(shortened(turn.text)))
    if turn.code:
        transcript.add(Note(turn_events.CodeRead(turn.code).in_words))
    if turn.memory.in_words:
        transcript.add(Note(turn.memory.in_words))
    for attempt in turn.attempts:
        _show_attempt(transcript, attempt, is_text_shown=turn.kind != "edit")
    if turn.calls:
        transcript.add(Table(turn.calls))
    for edit in turn.edits:
        _show_edit(transcript, edit)
    if turn.error:
        transcript.add(Note(turn.error, style="error"))


def _show_attempt(transcript: Transcript, attempt: "Attempt", *, is_text_shown: bool) -> None:
    if attempt.thoughts:
        transcript.add(Thinking.past(attempt.reasoning))
    if is_text_shown and attempt.text:
        answer = transcript.add(Answer())
        answer.grow(attempt.text)
        if attempt.is_abandoned:
            answer.strike()
    if attempt.steer:
        transcript.add(Said(shortened(attempt.steer), "↪"))


def _show_edit(transcript: Transcript, edit: "EditResult") -> None:
    diff = transcript.add(Answer())
    diff.grow(f"**{edit.path}** {edit.unit} ({edit.outcome.replace('_', ' ')})\n")
    if edit.diff:
        diff.grow(f"```diff\n{edit.diff.rstrip()}\n```\n")


def shortened(text: str) -> str:
    """Return what is shown of a long message; it is sent whole."""
    lines = text.splitlines()
    if len(lines) > SHOWN_LINES:
        return "\n".join([*lines[: SHOWN_LINES - 1], f"… {len(lines) - SHOWN_LINES + 1} lines more"])
    return (
        text
        if len(text) <= SHOWN_CHARS
        else f"{text[:SHOWN_CHARS]} … {len(text) - SHOWN_CHARS} characters more"
    )
