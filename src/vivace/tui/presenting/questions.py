"""What waits for the user: a proposal, a file that changed meanwhile, a call of a tool.

Owns the open question and its answer, and the words that say which key gives which. Does not own which key
is which (`keys`), nor when keys decide (`controls`).
"""

import asyncio
import time
from typing import Any, ClassVar, Generic, TypeVar

from vivace.agent.edits.conflict import Conflict, Resolution
from vivace.agent.edits.proposal import Accept, AcceptHunks, Decision, Proposal, Reject
from vivace.agent.events.task import ApprovalAsked
from vivace.agent.loop.calls import Approval
from vivace.tui.keys import Group, KeyMap
from vivace.tui.transcript.diff import EditBlock

A = TypeVar("A")


class Question(Generic[A]):
    """A question that is open until it is resolved once."""

    group: ClassVar[Group]  # of the keys that answer it

    def __init__(self) -> None:
        self.shown_s = time.monotonic()
        self.answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()

    def resolve(self, answer: A) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)

    def in_words(self, keys: KeyMap) -> str:
        """Say what each key means now."""
        raise NotImplementedError


class Review(Question[Decision]):
    """A proposal that waits for the user: all of it, or hunk by hunk."""

    group = "review"

    def __init__(self, proposal: Proposal, block: EditBlock) -> None:
        super().__init__()
        self.proposal, self.block = proposal, block

    def ask_by_hunk(self) -> None:
        self.block.ask(0)

    def choose(self, *, is_taken: bool) -> None:
        """Take or leave all of it, or the hunk in question and go on to the next one."""
        hunk = self.block.asked
        if hunk is None:
            self.resolve(Accept() if is_taken else Reject())
            return
        self.block.choose(hunk, is_taken=is_taken)
        if hunk + 1 < len(self.proposal.hunks):
            self.block.ask(hunk + 1)
            return
        taken = frozenset(index for index, chosen in self.block.chosen.items() if chosen)
        self.resolve(AcceptHunks(taken) if taken else Reject())

    def in_words(self, keys: KeyMap) -> str:
        shown, count = keys.shown, len(self.proposal.hunks)
        if self.block.asked is not None:
            hunk = f"Hunk {self.block.asked + 1} of {count}"
            return f"{hunk}: {shown('accept')} take · {shown('reject')} leave"
        several = f" · {shown('by_hunk')} by hunk" if count > 1 else ""
        return (
            f"{shown('accept')} take it{several} · {shown('edit')} edit first · {shown('reject')} leave it"
            f" · {shown('reply')} reply"
        )


class ConflictQuestion(Question[Resolution]):
    """A file that changed meanwhile: the edit, the file or both, as the user says."""

    group = "conflict"

    def __init__(self, conflict: Conflict) -> None:
        super().__init__()
        self.conflict = conflict

    def in_words(self, keys: KeyMap) -> str:
        shown = keys.shown
        return (
            f"{shown('take_edit')} take mine (the edit) · {shown('take_file')} leave the file"
            f" · {shown('merge')} merge both · {shown('stop_edit')} stop"
        )


class ApprovalQuestion(Question[Approval]):
    """A call that waits for the user: allow it, allow it from now on, or refuse it."""

    group = "approval"

    def __init__(self, asked: ApprovalAsked) -> None:
        super().__init__()
        self.asked = asked

    def in_words(self, keys: KeyMap) -> str:
        always = f" · {keys.shown('allow_always')} always" if self.asked.can_be_kept else ""
        return f"{keys.shown('allow')} let it run{always} · {keys.shown('refuse')} do not"


AnyQuestion = Question[Any]
