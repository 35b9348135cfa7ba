"""The events of a step's edit as steps of a task, with the verdict on it, and the diff that it left.

Does not own the question (`tasks.units`), nor the rules (`permissions.decision`).
"""

from pathlib import Path

from vivace.agent.events.edit import EditApplied
from vivace.agent.events.every import AgentEvent
from vivace.agent.loop.calls import TaskPresenter
from vivace.agent.permissions.decision import Verdict
from vivace.agent.tasks.units import UnitsPresenter


class StepPresenter(UnitsPresenter):
    def __init__(self, face: TaskPresenter, folder: Path, key: str, verdict: Verdict) -> None:
        super().__init__(face, folder, key, lambda _: verdict)
        self.diff = ""  # what was written

    def show(self, event: AgentEvent) -> None:
        if isinstance(event, EditApplied):
            self.diff = self.diff_of(event.proposal)
        super().show(event)
