"""The steps of a model that calls tools, as the client sees them: tool calls, their diffs, the plan.

Owns which step becomes which update. Does not ask (`presenter`).
"""

import re
from pathlib import Path
from typing import Any

from acp import text_block, tool_content
from acp.schema import (
    AgentPlanUpdate,
    PlanEntry,
    PlanEntryStatus,
    TerminalToolCallContent,
    ToolCallProgress,
    ToolCallStart,
    ToolCallStatus,
    ToolCallUpdate,
    ToolKind,
)

from vivace.acp.presenting.diffs import unified_contents
from vivace.acp.presenting.updates import Updates
from vivace.agent.events import task as steps
from vivace.agent.events.task import AnyStep

KINDS: dict[str, ToolKind] = {
    "read": "read",
    "list": "search",
    "search": "search",
    "edit": "edit",
    "apply_patch": "edit",
    "shell": "execute",
    "update_plan": "think",
}
PLANNED: dict[str, PlanEntryStatus] = {
    "pending": "pending",
    "in_progress": "in_progress",
    "completed": "completed",
}
MAX_OUTPUT_CHARS = 8000  # of a call's output that is shown


class TaskCalls:
    def __init__(self, updates: Updates) -> None:
        self._updates = updates
        self._open: set[str] = set()  # calls that the client knows and that are not over
        self._writing: list[str] = []  # calls whose changes are written together
        self._diffs: list[Any] = []  # of what was written last
        self._running = ""  # the call of a command that began last: they run one after the other
        self._terminals: dict[str, Any] = {}  # that calls have shown

    def show(self, step: AnyStep, folder: Path) -> None:
        match step:
            case steps.TextGrew(text=text):
                self._updates.say(text)
            case steps.CallStarted(call_id=call_id, tool=tool, title=title):
                self._running = call_id if tool == "shell" else self._running
                self._begin(call_id, tool, title, "in_progress")
            case steps.ApprovalAsked(call_id=call_id, tool=tool, title=title):
                self._begin(call_id, tool, title, "pending")
            case steps.WritingBegan(call_ids=call_ids):
                self._writing = list(call_ids)
            case steps.FilesWritten(diff=diff):
                self._diffs = unified_contents(diff, folder)
            case steps.CallEnded():
                self._end(step)
            case steps.ServersOpened(problems=problems):
                self._updates.think("".join(f"{problem}\n" for problem in problems))
            case steps.PlanUpdated(steps=planned):
                entries = [
                    PlanEntry(
                        content=each.step, priority="medium", status=PLANNED.get(each.status, "pending")
                    )
                    for each in planned
                ]
                self._updates.send(AgentPlanUpdate(session_update="plan", entries=entries))

    def question(self, asked: steps.ApprovalAsked) -> ToolCallUpdate:
        """Return the call as a question shows it: all of it, in a block of code that its text cannot end."""
        parts = [_as_code(text) for text in (asked.shown, asked.reason) if text]
        return ToolCallUpdate(
            tool_call_id=asked.call_id,
            title=_title(asked.tool, asked.title),
            kind=KINDS.get(asked.tool, "other"),
            status="pending",
            content=[tool_content(text_block(part)) for part in parts] or None,
        )

    def show_terminal(self, terminal_id: str) -> None:
        """Show the terminal in the call that runs a command."""
        content = TerminalToolCallContent(type="terminal", terminal_id=terminal_id)
        self._progress(self._running, "in_progress", [content])
        self._terminals[self._running] = content

    def abandon(self) -> None:
        """End the calls that were cut off."""
        for call_id in sorted(self._open):
            self._progress(call_id, "failed", None)
        self._open.clear()

    def _begin(self, call_id: str, tool: str, title: str, status: ToolCallStatus) -> None:
        if call_id in self._open:
            self._progress(call_id, status, None)
            return
        self._open.add(call_id)
        self._updates.send(
            ToolCallStart(
                session_update="tool_call",
                tool_call_id=call_id,
                title=_title(tool, title),
                kind=KINDS.get(tool, "other"),
                status=status,
            )
        )

    def _end(self, step: steps.CallEnded) -> None:
        if step.call_id not in self._open:
            self._begin(step.call_id, step.tool, step.summary, "in_progress")
        output = step.output[:MAX_OUTPUT_CHARS]
        content: list[Any] = (
            [tool_content(text_block(output))] if output and step.tool != "update_plan" else []
        )
        if terminal := self._terminals.pop(step.call_id, None):
            content = [terminal]  # which shows the output
        if step.call_id in self._writing:
            content, self._diffs = [*self._diffs, *content], []  # of all calls of the turn, at the first
        self._progress(step.call_id, "completed" if step.status == "done" else "failed", content)
        self._open.discard(step.call_id)

    def _progress(self, call_id: str, status: ToolCallStatus, content: list[Any] | None) -> None:
        self._updates.send(
            ToolCallProgress(
                session_update="tool_call_update",
                tool_call_id=call_id,
                status=status,
                content=content or None,
            )
        )


def _as_code(text: str) -> str:
    """Return text that a client which draws Markdown shows as it is."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _title(tool: str, title: str) -> str:
    return f"{tool} {title}".strip()
