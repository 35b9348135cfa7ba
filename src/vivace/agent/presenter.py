"""What a face implements to show the agent's work and to ask the user about it.

Owns the seam only. The agent knows no terminal, socket or editor; a face knows no model.
"""

from typing import Protocol

from vivace.agent.edits.conflict import Conflict, Resolution
from vivace.agent.edits.proposal import Decision, Proposal
from vivace.agent.events import AgentEvent


class Presenter(Protocol):
    def show(self, event: AgentEvent) -> None:
        """Show what happened. Return at once: the model's text waits for it."""

    async def decide(self, proposal: Proposal) -> Decision:
        """Ask the user about the proposal that was shown last. Cancelled when the edit is interrupted."""
        ...

    async def resolve(self, conflict: Conflict) -> Resolution:
        """Ask what to do about a file that changed meanwhile. Cancelled when the edit is interrupted."""
        ...
