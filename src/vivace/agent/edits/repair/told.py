"""One more rewrite, which is told exactly what was wrong with the answer before.

Owns the words and the request. The request begins with the tokens of the one before and its answer, so that
only the complaint is read. Does not decide when to ask (`edits.edit`) or whether the new answer is better.
"""

import re
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from vivace.agent.edits.find.units import Unit
from vivace.agent.edits.proposal import FileProposal
from vivace.agent.edits.write.rewrite import Rewrite
from vivace.agent.model import Model
from vivace.agent.prompting import user

MAX_VALUE_CHARS = 200  # of a result that is quoted
MAX_FAILED = 4  # examples that are quoted
_LINE = re.compile(r"\bline (\d+)")


@dataclass(frozen=True)
class FailedExample:
    """A call that an example is about, what it should give, and what it gave: Python expressions."""

    call: str
    expected: str
    gave: str  # a value, or `ValueError: …`

    @property
    def in_words(self) -> str:
        return f"{self.call} gave {_short(self.gave)}, expected {_short(self.expected)}."


def what_is_wrong(proposal: FileProposal, part: Unit | None = None) -> str:
    """Return the complaint about an answer that has problems; "" if it has none.

    Lines are counted from the first one of the piece, which is all that the model has seen. An answer that
    changes nothing is not complained about: told so, a small model gives the same one again
    (benchmarks/results).
    """
    if not proposal.problems:
        return ""
    above = (part or proposal.unit).first_line - 1
    said = _LINE.sub(lambda found: f"line {max(1, int(found[1]) - above)}", " ".join(proposal.problems))
    return f"Your answer cannot be used. {said}"


def what_failed(examples: Sequence[FailedExample]) -> str:
    """Return the complaint about an answer for which examples do not hold."""
    return "Your answer is wrong. " + " ".join(each.in_words for each in examples[:MAX_FAILED])


def what_breaks(faults: Sequence[str]) -> str:
    """Return the complaint about an answer that breaks something; "" if it does not."""
    return f"Your answer cannot run. {' '.join(faults)}" if faults else ""


def told_request(request: Rewrite, answer: str, complaint: str) -> Rewrite:
    """Return the request for one more rewrite behind an answer and the complaint about it."""
    *asked, begun = request.messages
    whole = {"role": "assistant", "content": f"{begun['content']}{answer}\n{request.fence}"}
    again = user(f"{complaint} Write the whole piece again, so that it does what the task says.")
    return replace(request, messages=[*asked, whole, again, begun], prediction=f"{answer}\n{request.fence}")


async def rewrite_told(model: Model, request: Rewrite, answer: str, complaint: str) -> str | None:
    """Return the model's next answer, behind the request's opening, or None if it does not end."""
    told = told_request(request, answer, complaint)
    text = ""
    writing = model.write(
        told.messages, max_tokens=told.max_tokens, stop=told.stop, prediction=told.prediction
    )
    async with aclosing(writing) as deltas:
        async for delta in deltas:
            text += delta
    return None if model.was_cut else text


def _short(value: str) -> str:
    return value if len(value) <= MAX_VALUE_CHARS else f"{value[:MAX_VALUE_CHARS]}…"
