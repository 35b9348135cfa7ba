"""What a face implements to show the agent's work and to ask the user about it.

Owns the seam only. The agent knows no terminal, socket or editor; a face knows no model.
"""

from typing import Protocol, runtime_checkable

from vivace.agent.edits.conflict import Conflict, Resolution
from vivace.agent.edits.proposal import Decision, Proposal
from vivace.agent.events.every import AgentEvent
from vivace.agent.events.task import ApprovalAsked
from vivace.agent.loop.calls import Approval

NOBODY = "Nobody is here to ask."


class Presenter(Protocol):
    def show(self, event: AgentEvent) -> None:
        """Show what happened. Return at once: the model's text waits for it."""

    async def decide(self, proposal: Proposal) -> Decision:
        """Ask the user about the proposal that was shown last. Cancelled when the edit is interrupted."""
        ...

    async def resolve(self, conflict: Conflict) -> Resolution:
        """Ask what to do about a file that changed meanwhile. Cancelled when the edit is interrupted."""
        ...


@runtime_checkable
class ApprovingPresenter(Presenter, Protocol):
    """A face that can also ask about a call of a tool. Where it cannot, the answer is no."""

    async def approve(self, asked: ApprovalAsked) -> Approval:
        """Ask the user whether the call may run. Cancelled when the turn is stopped."""
        ...
