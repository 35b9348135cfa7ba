"""A conversation as Markdown, to read, to keep or to send to somebody.

Owns how turns look in Markdown. Does not own the state (`history`).
"""

import time

from vivace.agent.conversation.transcript.history import Attempt, EditResult, History, Side, Turn

OUTCOMES = {
    "applied": "Written.",
    "undone": "Written, and taken back later.",
    "rejected": "Rejected.",
    "shown_only": "Shown, not written.",
    "nothing_to_change": "Nothing to change.",
}


def to_markdown(history: History) -> str:
    """Return all turns that stand."""
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(history.started_at_s))
    parts = [f"# Conversation {history.id}", f"{when} · {history.folder} · {history.model}"]
    parts += [_side(side) for side in history.sides if side.after_turn == 0]
    for turn in history.turns:
        parts.append(_turn(turn))
        parts += [_side(side) for side in history.sides if side.after_turn == turn.number]
    return "\n\n".join(parts) + "\n"


def _turn(turn: Turn) -> str:
    parts = [f"## {turn.number}. You", turn.text, "### Vivace"]
    if turn.kind == "edit":
        parts += [f"> {attempt.steer}" for attempt in turn.attempts if attempt.steer]
    else:
        parts += [_attempt(attempt) for attempt in turn.attempts]
    parts.append("\n".join(f"- {line}" for line in turn.calls))
    parts += [_edit(edit) for edit in turn.edits]
    if turn.error:
        parts.append(f"*Failed: {turn.error}*")
    if turn.status in ("stopped", "cut"):
        parts.append("*Stopped here.*" if turn.status == "stopped" else "*Cut at the limit of its length.*")
    return "\n\n".join(filter(None, parts))


def _attempt(attempt: Attempt) -> str:
    thoughts = attempt.reasoning.strip()
    thought = f"<details><summary>Thinking</summary>\n\n{thoughts}\n\n</details>" if thoughts else ""
    if not attempt.is_abandoned:
        return "\n\n".join(filter(None, [thought, attempt.text]))
    struck = "\n".join(f"> {line}" for line in attempt.text.splitlines())
    return "\n\n".join(filter(None, [thought, "*Abandoned:*", struck, f"**You:** {attempt.steer}"]))


def _edit(edit: EditResult) -> str:
    fence = "`" * max(3, _longest_run(edit.diff) + 1)
    problems = [f"- {problem}" for problem in edit.problems]
    outcome = OUTCOMES.get(edit.outcome, "Not decided.")
    reason = f" {edit.reason}" if edit.reason else ""
    shown = f"{fence}diff\n{edit.diff}{fence}" if edit.diff else ""
    where = ", ".join(f"`{name}`" for name in (edit.path, edit.unit) if name)
    parts = [where, shown, "\n".join(problems), outcome + reason]
    return "\n\n".join(filter(None, parts))


def _side(side: Side) -> str:
    return f"### Beside\n\n**You:** {side.question}\n\n{side.answer}"


def _longest_run(text: str) -> int:
    """Return how many backticks follow each other at most."""
    longest = current = 0
    for character in text:
        current = current + 1 if character == "`" else 0
        longest = max(longest, current)
    return longest
