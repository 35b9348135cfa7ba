"""The holder's questions that the user of an attached face is asked now.

Owns one task for each question, until this face has answered it or another one was first. Does not own the
first answer that counts (`faces`).
"""

import asyncio
from collections.abc import Awaitable, Callable

from vivace.agent.conversation.sharing.wire import from_face, from_holder
from vivace.agent.conversation.sharing.wire.answers import decision_form, resolution_form
from vivace.agent.conversation.sharing.wire.event_codec import EventDecoder
from vivace.agent.edits.conflict import Conflict
from vivace.agent.edits.proposal import Proposal
from vivace.agent.events.task import ApprovalAsked
from vivace.agent.presenter import ApprovingPresenter, Presenter


class OpenQuestions:
    def __init__(
        self, face: Presenter, decoder: EventDecoder, answer: Callable[[from_face.Answer], None]
    ) -> None:
        self._face, self._decoder, self._answer = face, decoder, answer
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def ask(self, asked: from_holder.Asked) -> None:
        """Ask the user, and send the answer to the holder."""
        asking = self._asking(asked)  # reads by number what the next moment of rest forgets
        self._tasks[asked.question] = asyncio.create_task(self._send_answer(asking))

    def close(self, question: str) -> None:
        """Ask no longer: another face was first, or the edit was interrupted."""
        if task := self._tasks.pop(question, None):
            task.cancel()

    async def close_all(self) -> None:
        """Ask nothing any longer."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _send_answer(self, asking: Awaitable[from_face.Answer | None]) -> None:
        if answer := await asking:
            self._answer(answer)

    def _asking(self, asked: from_holder.Asked) -> Awaitable[from_face.Answer | None]:
        """Return what asks the user, with all that it needs of this moment."""
        if asked.proposal is not None:
            return self._ask_decision(asked.question, self._decoder.proposal(asked.proposal))
        if asked.conflict is not None:
            return self._ask_resolution(asked.question, self._decoder.conflict(asked.conflict))
        return self._ask_approval(asked.question, asked.call)

    async def _ask_decision(self, question: str, proposal: Proposal) -> from_face.Answer:
        decision = await self._face.decide(proposal)
        return from_face.Answer(question=question, decision=decision_form(decision))

    async def _ask_resolution(self, question: str, conflict: Conflict) -> from_face.Answer:
        resolution = await self._face.resolve(conflict)
        return from_face.Answer(question=question, resolution=resolution_form(resolution))

    async def _ask_approval(self, question: str, call: ApprovalAsked | None) -> from_face.Answer | None:
        if call is None or not isinstance(self._face, ApprovingPresenter):
            return None  # another face answers
        answer = await self._face.approve(call)
        return from_face.Answer(
            question=question,
            is_allowed=answer.is_allowed,
            is_kept=answer.is_kept,
            reason=answer.reason,
            digest=answer.digest,
        )
