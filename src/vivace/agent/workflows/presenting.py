"""The events of a step's edit as steps of a task, and its one question by the rules of permissions.

Owns who says yes: nobody where the rules allow it, else a person through the task's face. Does not own the
rules (`permissions.decision`).
"""

from pathlib import Path

from vivace.agent.edit_events import EditApplied
from vivace.agent.edits.proposal import Accept, Decision, Proposal, Reject
from vivace.agent.events import AgentEvent
from vivace.agent.loop.calls import TaskPresenter
from vivace.agent.loop.diffs import unified_diff
from vivace.agent.loop.steps import ApprovalAnswered, ApprovalAsked, TextGrew
from vivace.agent.permissions.decision import Verdict
from vivace.agent.tasks.units import UnitsPresenter


class StepPresenter(UnitsPresenter):
    def __init__(self, face: TaskPresenter, folder: Path, key: str, verdict: Verdict) -> None:
        super().__init__(face, folder)
        self._asking = face
        self._root = folder
        self._key = key
        self._verdict = verdict
        self.diff = ""  # what was written
        self.why_not = ""  # nothing was

    def show(self, event: AgentEvent) -> None:
        if isinstance(event, EditApplied):
            self.diff = self._diff_of(event.proposal)
        super().show(event)

    async def decide(self, proposal: Proposal) -> Decision:
        if self._verdict.kind == "allow":
            return Accept()
        self._asking.show(TextGrew(text=f"{self._diff_of(proposal)}\n"))
        asked = ApprovalAsked(
            call_id=self._key, tool="edit", title=proposal.paths_text, reason=self._verdict.reason
        )
        self._asking.show(asked)
        answer = await self._asking.approve(asked)
        self._asking.show(
            ApprovalAnswered(call_id=self._key, is_allowed=answer.is_allowed, reason=answer.reason)
        )
        if answer.is_allowed:
            return Accept()
        self.why_not = f"The change was not taken. {answer.reason}".rstrip()
        return Reject(answer.reason)

    def _diff_of(self, proposal: Proposal) -> str:
        return "".join(unified_diff(file.change, self._root)[1] for file in proposal.changed)
