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

from vivace.acp.diffs import unified_contents
from vivace.acp.task_calls import KINDS
from vivace.agent.conversation.opening import conversations_dir
from vivace.agent.conversation.transcript.file import file_of, list_conversations, read_records
from vivace.agent.conversation.transcript.history import EditResult, Turn
from vivace.agent.conversation.transcript.talk_records import WasRenamed
from vivace.agent.conversation.transcript.turn_records import TurnBegun
from vivace.config import Settings
from vivace.errors import UsageError

PAGE = 50  # sessions in one answer
TITLE_CHARS = 120


def list_sessions(
    settings: Settings, cwd: str | None, cursor: str | None
) -> tuple[list[SessionInfo], str | None]:
    """Return a page of the conversations (of a folder), the last used first, and the next cursor."""
    folder = conversations_dir(settings)
    wanted = str(Path(cwd).resolve()) if cwd else None
    began = [each for each in list_conversations(folder) if wanted in (None, each.folder)]
    if cursor and not cursor.isdigit():
        raise UsageError(f"{cursor!r} is no cursor of ours.", "Ask for the first page without one.")
    first = int(cursor) if cursor else 0
    page = [_info(file_of(folder, each.id), each.id, each.folder) for each in began[first : first + PAGE]]
    after = first + PAGE
    return page, str(after) if after < len(began) else None


def _info(file: Path, conversation_id: str, folder: str) -> SessionInfo:
    title, first = "", ""
    for record in read_records(file):
        if isinstance(record, WasRenamed):
            title = record.title
        elif isinstance(record, TurnBegun) and not first:
            first = " ".join(record.text.split())[:TITLE_CHARS]
    used = datetime.fromtimestamp(file.stat().st_mtime, UTC).isoformat()
    return SessionInfo(session_id=conversation_id, cwd=folder, title=title or first or None, updated_at=used)


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
