"""A face for tests, which keeps what it is shown and can be waited on; and a model that edits `task.py`."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tests.agent.edits.test_flow import ANSWER
from vivace.agent.edits.conflict import Conflict, Resolution, Stop
from vivace.agent.edits.proposal import Accept, Decision, Proposal
from vivace.agent.events import AgentEvent
from vivace.agent.turn_events import AnswerGrew

HANG_S = 60.0
E = TypeVar("E")
EDITING = {
    "You locate code": "`show`",
    "accepted that change": "I know it was accepted.",
    "rejected that change": "I know it was rejected.",
    "took back": "I know it was taken back.",
    "Task: ": ANSWER,
    "": "Hello there.",
}


def read(path: Path) -> str:
    return path.read_text()


def write(path: Path, text: str) -> None:
    path.write_text(text)


class Face:
    def __init__(self) -> None:
        self.events: list[AgentEvent] = []
        self.decisions: list[Decision] = []  # taken in order; then everything is accepted
        self.resolutions: list[Resolution] = []  # of conflicts, in order; then it is stopped
        self.is_thinking = False  # never decide
        self._changed = asyncio.Event()

    def show(self, event: AgentEvent) -> None:
        self.events.append(event)
        self._changed.set()

    async def decide(self, proposal: Proposal) -> Decision:
        del proposal
        if self.is_thinking:
            await asyncio.Event().wait()
        await asyncio.sleep(0)
        return self.decisions.pop(0) if self.decisions else Accept()

    async def resolve(self, conflict: Conflict) -> Resolution:
        del conflict
        await asyncio.sleep(0)
        return self.resolutions.pop(0) if self.resolutions else Stop()

    def seen(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def said(self) -> str:
        return "".join(event.delta for event in self.seen(AnswerGrew))

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(HANG_S):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()
