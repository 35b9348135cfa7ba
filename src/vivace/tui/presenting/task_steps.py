"""The steps of a model that calls tools on the screen: its text, its calls, its plan, what it wrote.

Owns which block shows which step. Text of tools and models has no control characters and no known secrets
here. Does not own the question whether a call may run (`questions`) nor the task (`agent.loop`).
"""

from collections.abc import Callable

from vivace.agent.events import task as steps
from vivace.agent.events.task import AnyStep
from vivace.redaction import redact
from vivace.tui.transcript.answer import Answer
from vivace.tui.transcript.blocks import Note, Said, Table, ToolCall
from vivace.tui.transcript.view import Transcript

PLAN_TOOL = "update_plan"
MARKS = {"completed": "[x]", "in_progress": "[>]", "pending": "[ ]"}
ENDS = {
    "turns": "The model had as many turns as it may have.",
    "tokens": "The model had as many tokens as it may have.",
    "time": "The model had as much time as it may have.",
    "context": "The conversation is too long for the model. /compact makes it shorter.",
    "malformed_calls": "The model called its tools wrongly three times in a row, and was stopped.",
}


class TaskSteps:
    def __init__(self, transcript: Transcript, say: Callable[[str], None]) -> None:
        self._transcript, self._say = transcript, say
        self._text: Answer | None = None
        self._plan: Table | None = None
        self._calls: dict[str, ToolCall] = {}
        self._titles: dict[str, str] = {}  # of calls that asked, which may never start

    def begin(self) -> None:
        """Forget the turn before: the next step belongs to a new one."""
        self._text, self._plan = None, None
        self._calls.clear()
        self._titles.clear()

    def show(self, step: AnyStep) -> None:
        match step:
            case steps.TextGrew(text=text):
                self._text = self._text or self._transcript.add(Answer())
                self._text.grow(text)
                self._say("writing")
            case steps.TurnBegan():
                self._text = None
                self._say("thinking")
            case steps.ServersOpened(servers=servers, problems=problems):
                if servers:
                    self._transcript.add(Note(f"tools of {', '.join(servers)}; each call asks"))
                for problem in problems:
                    self._transcript.add(Note(redact(problem), style="error"))
            case steps.CallStarted(tool=tool) | steps.CallEnded(tool=tool, status="done") if (
                tool == PLAN_TOOL
            ):
                self._text = None  # the plan itself is shown
            case steps.CallStarted(call_id=call_id, tool=tool):
                self._call(call_id, tool, step.title)
                self._say(f"running {tool}")
            case steps.CallEnded(call_id=call_id, tool=tool, status=status, summary=summary):
                self._call(call_id, tool, self._titles.get(call_id, "")).end(status, redact(summary))
            case steps.ApprovalAsked():
                self._text = None
                self._titles[step.call_id] = step.title
            case steps.ApprovalAnswered(is_allowed=is_allowed):
                self._transcript.add(Note("allowed" if is_allowed else "not allowed"))
            case steps.PlanUpdated():
                self._show_plan(step)
            case steps.FilesWritten(diff=diff):
                self._text = None
                self._transcript.add(Answer()).grow(f"```diff\n{redact(diff).rstrip()}\n```\n")
                self._transcript.add(Note("written · /undo takes it back"))
            case steps.Steered(text=text):
                self._text = None
                self._transcript.add(Said(text, "↪"))
            case steps.TaskEnded(reason=reason) if reason in ENDS:
                self._transcript.add(Note(ENDS[reason], style="error"))

    def _call(self, call_id: str, tool: str, title: str) -> ToolCall:
        """Return the block of a call; one that never started is shown where it ends."""
        self._text = None
        if call_id not in self._calls:
            self._calls[call_id] = self._transcript.add(ToolCall(tool, redact(title)))
        return self._calls[call_id]

    def _show_plan(self, step: steps.PlanUpdated) -> None:
        lines = [f"{MARKS.get(each.status, '[ ]')} {redact(each.step)}" for each in step.steps]
        if self._plan is None:
            self._plan = self._transcript.add(Table(lines, "Plan"))
        else:
            self._plan.change(lines)
