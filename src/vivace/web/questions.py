"""Questions to whoever looks at a conversation: which are open, in a form that travels, and their answers.

Owns that a question is answered once, by the first face that answers, and closed everywhere then. Does not
own what is asked (`agent.edits`, `agent.loop`).
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from vivace.agent.edits.conflict import Conflict, Resolution, Stop, TakeEdit, TakeFile, TakeText
from vivace.agent.edits.proposal import (
    Accept,
    AcceptHunks,
    Decision,
    FileProposal,
    Proposal,
    Reject,
    UseText,
)
from vivace.agent.edits.write.live_diff import Hunk
from vivace.agent.events.task import ApprovalAsked
from vivace.agent.loop.calls import Approval
from vivace.errors import BadRequest, QuestionGone
from vivace.web.messages.events import FileAsked, HunkAsked, Question, QuestionClosed
from vivace.web.messages.question_requests import Approve, Decide, EditDecide, EditResolve, Resolve

T = TypeVar("T")


class Questions:
    def __init__(self, tell: Callable[[Question | QuestionClosed], None]) -> None:
        self._tell = tell
        self._open: dict[str, tuple[Question, asyncio.Future[Any]]] = {}
        self._count = 0

    @property
    def standing(self) -> list[Question]:
        """Return the questions that are open now."""
        return [question for question, _ in self._open.values()]

    async def decide(self, proposal: Proposal) -> Decision:
        files = _files_asked(proposal.files)
        decision: Decision = await self._ask(
            Question(question=self._next(), kind="edit", files=files, missing=list(proposal.missing))
        )
        return decision

    async def resolve(self, conflict: Conflict) -> Resolution:
        resolution: Resolution = await self._ask(
            Question(
                question=self._next(),
                kind="conflict",
                path=str(conflict.path),
                message=conflict.message,
                before_text=_text(conflict.before),
                current_text=None if conflict.current is None else _text(conflict.current),
                edit_text=_text(conflict.edited),
                marked_text=_text(conflict.marked),
            )
        )
        return resolution

    async def approve(self, asked: ApprovalAsked) -> Approval:
        approval: Approval = await self._ask(
            Question(
                question=self._next(),
                kind="call",
                tool=asked.tool,
                title=asked.title,
                shown=asked.shown,
                digest=asked.digest,
                reason=asked.reason,
                can_be_kept=asked.can_be_kept,
            )
        )
        return approval

    def answer(
        self,
        request: Decide | EditDecide | Resolve | EditResolve | Approve,
    ) -> None:
        """Take a face's answer. Raise `QuestionGone` if somebody else was quicker."""
        question, answer = self._open.get(request.question, (None, None))
        if question is None or answer is None or answer.done():
            raise QuestionGone("The question was answered already.", "Nothing was changed by this answer.")
        match request:
            case Decide() | EditDecide():
                given, kind = _decision(request, question), "edit"
            case Resolve() | EditResolve():
                given, kind = _resolution(request), "conflict"  # type: ignore[assignment]
            case Approve():
                given, kind = _approval(request, question), "call"  # type: ignore[assignment]
        if question.kind != kind:
            raise BadRequest(f"The question {question.question} is of kind {question.kind}.")
        answer.set_result(given)

    def _next(self) -> str:
        self._count += 1
        return f"q{self._count}"

    async def _ask(self, question: Question) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._open[question.question] = (question, answer)
        self._tell(question)
        try:
            return await answer
        finally:
            del self._open[question.question]
            self._tell(QuestionClosed(question=question.question))


def _decision(request: Decide | EditDecide, question: Question) -> Decision:
    match request.decision:
        case "accept":
            return Accept()
        case "reject":
            return Reject(request.reason)
        case "hunks":
            known = {hunk.hunk for file in question.files for hunk in file.hunks}
            if not set(request.hunks) <= known:
                raise BadRequest(f"The question has the hunks {sorted(known)}.")
            return AcceptHunks(frozenset(request.hunks)) if request.hunks else Reject(request.reason)
        case "text":
            if len(request.texts) != len(question.files):
                raise BadRequest(f"The question has {len(question.files)} files.", "Send a text for each.")
            return UseText(tuple(text.encode() for text in request.texts))


def _approval(request: Approve, question: Question) -> Approval:
    if request.is_allowed and question.kind == "call" and request.digest != question.digest:
        raise BadRequest("The answer is to another question.", "Send the digest that came with the question.")
    return Approval(request.is_allowed, request.reason, request.is_kept, request.digest)


def _resolution(request: Resolve | EditResolve) -> Resolution:
    match request.choice:
        case "edit":
            return TakeEdit()
        case "file":
            return TakeFile()
        case "text":
            return TakeText(request.text.encode())
        case "stop":
            return Stop()


def _files_asked(files: Sequence[FileProposal]) -> list[FileAsked]:
    asked, before = [], 0
    for file in files:
        asked.append(
            FileAsked(
                path=str(file.source.path),
                unit=file.unit.qualified_name,
                old_text=_text(file.source.raw),
                new_text=_text(file.new_bytes),
                hunks=[_hunk_asked(before + index, hunk) for index, hunk in enumerate(file.hunks)],
                problems=[*file.problems, *file.faults],
                is_removed=file.is_removed,
            )
        )
        before += len(file.hunks)
    return asked


def _hunk_asked(number: int, hunk: Hunk) -> HunkAsked:
    return HunkAsked(
        hunk=number,
        old_first=hunk.old_first,
        old_count=hunk.old_count,
        new_first=hunk.new_first,
        new_count=hunk.new_count,
        rows=[(row.tag, row.text) for row in hunk.rows],
    )


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
