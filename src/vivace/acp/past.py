"""Conversations of before: the list of them, and the updates that show one again.

Owns what an editor sees of a turn that is over. Does not take a conversation up again (`session`).
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from acp import (
    text_block,
    tool_content,
    update_agent_message_text,
    update_agent_thought_text,
    update_user_message_text,
)
from acp.schema import SessionInfo, ToolCallStart

from vivace.acp.presenting.diffs import unified_contents
from vivace.acp.presenting.task_calls import KINDS
from vivace.agent.conversation.past import PastConversation, list_past
from vivace.agent.conversation.transcript.history import EditResult, Turn
from vivace.config import Settings
from vivace.errors import UsageError

PAGE = 50  # sessions in one answer


def list_sessions(
    settings: Settings, cwd: str | None, cursor: str | None
) -> tuple[list[SessionInfo], str | None]:
    """Return a page of the conversations (of a folder), the last used first, and the next cursor."""
    if cursor and not cursor.isdigit():
        raise UsageError(f"{cursor!r} is no cursor of ours.", "Ask for the first page without one.")
    first = int(cursor) if cursor else 0
    after = first + PAGE
    found = list_past(settings, str(Path(cwd).resolve()) if cwd else "", after + 1)
    return [_info(each) for each in found[first:after]], str(after) if after < len(found) else None


def _info(past: PastConversation) -> SessionInfo:
    used = datetime.fromtimestamp(past.used_at_s, UTC).isoformat()
    return SessionInfo(session_id=past.id, cwd=past.folder, title=past.shown_title or None, updated_at=used)


def updates_of(turns: Sequence[Turn], folder: Path) -> Iterator[Any]:
    """Yield what shows these turns again."""
    for turn in turns:
        yield update_user_message_text(turn.text)
        for attempt in turn.attempts:
            if attempt.thoughts:
                yield update_agent_thought_text(attempt.reasoning)
            if turn.kind != "edit" and attempt.text:
                yield update_agent_message_text(attempt.text)
            if attempt.steer:
                yield update_user_message_text(attempt.steer)
        yield from _calls(turn)
        for number, edit in enumerate(turn.edits, 1):
            yield _edit(turn.number, number, edit, folder)
        if turn.error:
            yield update_agent_message_text(f"\n{turn.error}\n")


def _calls(turn: Turn) -> Iterator[ToolCallStart]:
    titles = {step["call_id"]: step["title"] for step in turn.steps if step["type"] == "tool.started"}
    for step in turn.steps:
        if step["type"] == "tool.ended":
            summary = step.get("summary", "")
            yield ToolCallStart(
                session_update="tool_call",
                tool_call_id=step["call_id"],
                title=f"{step['tool']} {titles.get(step['call_id'], '')}".strip(),
                kind=KINDS.get(step["tool"], "other"),
                status="completed" if step["status"] == "done" else "failed",
                content=[tool_content(text_block(summary))] if summary else None,
            )


def _edit(turn: int, number: int, edit: EditResult, folder: Path) -> ToolCallStart:
    words, path = edit.outcome.replace("_", " "), Path(edit.path)
    path = path.relative_to(folder) if path.is_relative_to(folder) else path
    return ToolCallStart(
        session_update="tool_call",
        tool_call_id=f"past-{turn}-{number}",
        title=f"Edit {path}: {edit.unit} ({words})" if edit.unit else f"Edit {path} ({words})",
        kind="edit",
        status="completed" if edit.outcome in ("applied", "undone", "shown_only") else "failed",
        content=list(unified_contents(edit.diff, folder)) or None,
    )
