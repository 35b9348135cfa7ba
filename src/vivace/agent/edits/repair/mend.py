"""Whether a repair is better than what it repairs, and only then taking it.

Owns the two cases: an answer that cannot be used, and one for which examples of the instruction do not hold.
Does not own the words (`told`) or the sandbox in which examples run (`failing`).
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from vivace.agent.edits.check.choose import Candidate, examples_for
from vivace.agent.edits.proposal import FileProposal
from vivace.agent.edits.repair.failing import failed_examples
from vivace.agent.edits.repair.told import FailedExample, rewrite_told, what_failed
from vivace.agent.edits.write.rewrite import Rewrite
from vivace.agent.model import Model
from vivace.errors import FileProblem


@dataclass(frozen=True)
class Repair:
    """One more try: the request and the answer that were not good enough, and how an answer is read."""

    request: Rewrite
    answer: str  # behind the request's opening
    propose: Callable[[str], FileProposal]


async def mend(model: Model, repair: Repair, complaint: str) -> FileProposal | None:
    """Return a proposal that can be used, from an answer that was told the complaint, or None."""
    text = await rewrite_told(model, repair.request, repair.answer, complaint)
    if text is None:
        return None
    with suppress(FileProblem):  # not text
        proposal = repair.propose(text)
        return proposal if Candidate(proposal, 0.0).is_usable else None
    return None


@dataclass(frozen=True)
class Held:
    """What the examples of the instruction say about a proposal."""

    examples: int = 0  # that were run; 0: none were
    failed: tuple[FailedExample, ...] = ()

    @property
    def count(self) -> int:
        return self.examples - len(self.failed)

    @property
    def complaint(self) -> str:
        return what_failed(self.failed) if self.failed else ""


async def try_examples(proposal: FileProposal) -> Held:
    """Run the examples of the instruction, if there are any and there is a sandbox."""
    examples = examples_for(proposal)
    failed = await failed_examples(_code(proposal), examples) if examples else None
    return Held() if failed is None else Held(len(examples), tuple(failed))


def _code(proposal: FileProposal) -> str:
    return proposal.new_bytes.decode("utf-8", "replace")
