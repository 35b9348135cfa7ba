"""All faces of one conversation as one presenter: what happens is shown to each, and the first answer counts.

Owns who is told what, the open questions, and what a face that joins in the middle of a turn has missed. One
face is this process's own; the others are links. Does not own the socket (`holding`).
"""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from vivace.agent.conversation.transcript.record_log import RecordLog
from vivace.agent.edits.conflict import Conflict, Resolution
from vivace.agent.edits.proposal import Decision, Proposal
from vivace.agent.events.every import AgentEvent
from vivace.agent.events.talk import FacesChanged, ModelProgress, PromptWarmed, SideEnded, SideStarted
from vivace.agent.events.task import ApprovalAsked
from vivace.agent.events.turn import TurnEnded, TurnStarted
from vivace.agent.loop.calls import Approval
from vivace.agent.presenter import NOBODY, ApprovingPresenter, Presenter
from vivace.agent.sandbox.plain import Terminal, run_plainly
from vivace.agent.sandbox.run import Limits, Outcome

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Question:
    """Something that the user is asked in all faces."""

    id: str
    about: Proposal | Conflict | ApprovalAsked
    answer: "asyncio.Future[Any]"  # of another face than this process's own

    def resolve(self, answer: Decision | Resolution | Approval) -> None:
        """Answer it. No effect if that was done before."""
        if not self.answer.done():
            self.answer.set_result(answer)


class Link(Protocol):
    """A face of another process."""

    @property
    def name(self) -> str: ...

    def show(self, event: AgentEvent) -> None: ...

    def ask(self, question: Question) -> None: ...

    def close_question(self, question: Question) -> None: ...

    def at_rest(self) -> None: ...


class Faces:
    def __init__(self, own: Presenter, log: RecordLog) -> None:
        self._own, self._log = own, log
        self._links: list[Link] = []
        self._is_alone = asyncio.Event()  # set while there are no links
        self._is_alone.set()
        self._running = 0  # turns, and questions beside
        self._asked = 0  # questions so far
        self.name = ""  # of this process's own face; "" while no other face can join
        self.rest_count = len(log)  # of records, when nothing ran
        self.since_rest: list[AgentEvent] = []
        self.questions: list[Question] = []  # that are open
        self.typist: Link | None = None  # the face whose draft is prefilled; None: this process's own

    @property
    def others(self) -> tuple[str, ...]:
        """Return the names of the linked faces."""
        return tuple(link.name for link in self._links)

    def add(self, link: Link) -> None:
        self._links.append(link)
        self._is_alone.clear()
        self._tell_names()

    def remove(self, link: Link) -> None:
        """Forget a face that went away. What it has begun goes on."""
        if link in self._links:
            self._links.remove(link)
            self.typist = None if self.typist is link else self.typist
            if not self._links:
                self._is_alone.set()
            self._tell_names()

    def _tell_names(self) -> None:
        self._own.show(FacesChanged(self.others))
        for link in self._links:
            others = [each.name for each in self._links if each is not link]
            link.show(FacesChanged((self.name, *others)))

    def show(self, event: AgentEvent) -> None:
        if isinstance(event, PromptWarmed):
            (self.typist or self._own).show(event)
            return
        self._own.show(event)
        for link in list(self._links):
            link.show(event)
        if isinstance(event, TurnStarted | SideStarted):
            self._running += 1
        elif isinstance(event, TurnEnded | SideEnded):
            self._running -= 1
        if self._running <= 0:
            self._rest()
        elif self.name and not isinstance(event, ModelProgress):
            self.since_rest.append(event)

    def _rest(self) -> None:
        had_run, self._running = bool(self.since_rest), 0
        self.rest_count = len(self._log)
        self.since_rest.clear()
        if had_run:
            for link in list(self._links):
                link.at_rest()

    # ---- questions --------------------------------------------------------------------------------

    async def decide(self, proposal: Proposal) -> Decision:
        return await self._ask(proposal, self._own.decide(proposal))

    async def resolve(self, conflict: Conflict) -> Resolution:
        return await self._ask(conflict, self._own.resolve(conflict))

    async def approve(self, asked: ApprovalAsked) -> Approval:
        return await self._ask(asked, self._approve(asked))

    async def run_command(self, command: Sequence[str], folder: Path, limits: Limits) -> Outcome:
        """Let this process's own face run a command in a terminal of its own, if it has any."""
        run = self._own.run_command if isinstance(self._own, Terminal) else run_plainly
        return await run(command, folder, limits)

    async def _approve(self, asked: ApprovalAsked) -> Approval:
        if isinstance(self._own, ApprovingPresenter):
            return await self._own.approve(asked)
        await self._is_alone.wait()  # one of the links answers before
        return Approval(is_allowed=False, reason=NOBODY)

    async def _ask(self, about: Proposal | Conflict | ApprovalAsked, own: Coroutine[Any, Any, T]) -> T:
        """Ask in all faces. Return the first answer, and close the question in the others."""
        self._asked += 1
        question = Question(f"q{self._asked}", about, asyncio.get_running_loop().create_future())
        self.questions.append(question)
        asking = asyncio.create_task(own)
        for link in list(self._links):
            link.ask(question)
        try:
            await asyncio.wait({asking, question.answer}, return_when=asyncio.FIRST_COMPLETED)
            answer: T = question.answer.result() if question.answer.done() else asking.result()
            return answer
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            question.answer.cancel()
            self.questions.remove(question)
            for link in list(self._links):
                link.close_question(question)
