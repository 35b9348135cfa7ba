"""How hard the agent tries, and what each effort may spend.

Owns the levels. What they buy is measured by `vivace eval edits`. Does not own how other answers are written
(`edits.write.branches`) or chosen among (`edits.check.choose`).
"""

from dataclasses import dataclass
from typing import Literal, get_args

Effort = Literal["low", "medium", "high", "xhigh"]
EFFORTS: tuple[Effort, ...] = get_args(Effort)
DEFAULT_EFFORT: Effort = "medium"


@dataclass(frozen=True)
class Budget:
    """What an edit may spend beyond its first answer."""

    other_answers: int = 0
    always_compares: bool = False  # also when the first answer can be used
    runs_examples: bool = False  # in the sandbox, where there are examples and there is a sandbox
    trials: int = 1  # answers that the user's tests are run over, if the user allowed tests
    parts: int = 1  # of a long unit that are tried, until the answer for one can be used
    repairs: bool = False  # one more answer that is told what was wrong, where no other one is good enough


BUDGETS: dict[Effort, Budget] = {
    "low": Budget(),
    "medium": Budget(other_answers=6, repairs=True, trials=2, parts=2),
    "high": Budget(
        other_answers=9, always_compares=True, runs_examples=True, repairs=True, trials=4, parts=3
    ),
    "xhigh": Budget(
        other_answers=18, always_compares=True, runs_examples=True, repairs=True, trials=8, parts=4
    ),
}
