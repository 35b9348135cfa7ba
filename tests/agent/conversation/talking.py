"""A face for tests, which keeps what it is shown and can be waited on; and a model that edits `task.py`."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from tests.agent.edits.test_flow import ANSWER
from tests.agent.keeping import KeepingFace
from vivace.agent.conversation.talk import Talk
from vivace.agent.edits.conflict import Conflict, Resolution, Stop
from vivace.agent.edits.proposal import Accept, Decision, Proposal
from vivace.agent.events.every import AgentEvent
from vivace.agent.events.turn import AnswerGrew

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


class Face(KeepingFace):
    def __init__(self) -> None:
        super().__init__()
        self.decisions: list[Decision] = []  # taken in order; then everything is accepted
        self.resolutions: list[Resolution] = []  # of conflicts, in order; then it is stopped
        self.is_thinking = False  # never decide
        self.cancelled = 0  # questions that somebody else answered
        self.conflicts: list[Conflict] = []
        self.before_deciding: Callable[[], None] = lambda: None
        self.talk: Talk | None = None  # the conversation, where it may move

    @property
    def events(self) -> list[AgentEvent]:
        return self.kept

    async def decide(self, proposal: Proposal) -> Decision:
        del proposal
        self.before_deciding()
        if self.is_thinking:
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled += 1
                self._changed.set()
        await asyncio.sleep(0)
        return self.decisions.pop(0) if self.decisions else Accept()

    async def resolve(self, conflict: Conflict) -> Resolution:
        self.conflicts.append(conflict)
        if self.is_thinking:
            await asyncio.Event().wait()
        await asyncio.sleep(0)
        return self.resolutions.pop(0) if self.resolutions else Stop()

    def moved(self, talk: Talk) -> None:
        """Go on with the conversation where it is now."""
        self.talk = talk
        talk.follow()
        self._changed.set()

    @property
    def said(self) -> str:
        return "".join(event.text for event in self.seen(AnswerGrew))
