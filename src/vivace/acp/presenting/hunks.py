"""A proposal reviewed hunk by hunk: a tool call with its own diff and its own question for each.

The protocol knows no hunks; calls and questions every client can show. Owns their order and what comes of
the answers. Does not ask about the whole (`presenter`).
"""

from collections.abc import Iterator
from pathlib import Path

from acp.schema import (
    PermissionOption,
    ToolCallLocation,
    ToolCallProgress,
    ToolCallStart,
    ToolCallStatus,
    ToolCallUpdate,
)

from vivace.acp.link import SessionLink
from vivace.acp.presenting.diffs import rows_content
from vivace.acp.presenting.updates import Updates
from vivace.agent.edits.proposal import Accept, AcceptHunks, Decision, Proposal, Reject
from vivace.agent.edits.write.live_diff import Hunk

KEEP = PermissionOption(option_id="keep", name="Keep", kind="allow_once")
KEEP_REST = PermissionOption(option_id="keep_rest", name="Keep this and the rest", kind="allow_once")
LEAVE = PermissionOption(option_id="leave", name="Leave out", kind="reject_once")
LEAVE_REST = PermissionOption(option_id="leave_rest", name="Leave this and the rest out", kind="reject_once")


async def choose_hunks(
    link: SessionLink, updates: Updates, proposal: Proposal, *, edit_id: str, folder: Path
) -> Decision:
    """Ask about one hunk after the other. Without an answer nothing is taken."""
    calls = list(_calls(proposal, edit_id, folder))
    kept: set[int] = set()
    for index, call in enumerate(calls):
        status: ToolCallStatus = "failed"
        updates.send(ToolCallStart(session_update="tool_call", **call.model_dump()))
        try:
            await updates.drain()
            chosen = await link.ask(call, [KEEP, KEEP_REST, LEAVE, LEAVE_REST])
            status = "completed" if chosen in (KEEP.option_id, KEEP_REST.option_id) else "failed"
        finally:
            updates.send(
                ToolCallProgress(
                    session_update="tool_call_update", tool_call_id=call.tool_call_id, status=status
                )
            )
        if not chosen:
            return Reject()
        if chosen == KEEP_REST.option_id:
            kept.update(range(index, len(calls)))
        elif chosen == KEEP.option_id:
            kept.add(index)
        if chosen in (KEEP_REST.option_id, LEAVE_REST.option_id):
            break
    if len(kept) == len(calls):
        return Accept()
    return AcceptHunks(frozenset(kept)) if kept else Reject()


def _calls(proposal: Proposal, edit_id: str, folder: Path) -> Iterator[ToolCallUpdate]:
    hunks = [(file.source.path.absolute(), hunk) for file in proposal.files for hunk in file.hunks]
    for number, (path, hunk) in enumerate(hunks, 1):
        line = _first_changed_line(hunk)
        named = path.relative_to(folder) if path.is_relative_to(folder) else path
        yield ToolCallUpdate(
            tool_call_id=f"{edit_id}-{number}",
            title=f"Change {number} of {len(hunks)}: {named}, line {line}",
            kind="edit",
            status="pending",
            content=[rows_content(path, hunk.rows)],
            locations=[ToolCallLocation(path=str(path), line=line)],
        )


def _first_changed_line(hunk: Hunk) -> int:
    """Return the line of the old file at which the change begins."""
    tags = [row.tag for row in hunk.rows]
    return hunk.old_first + next((index for index, tag in enumerate(tags) if tag != " "), 0)
