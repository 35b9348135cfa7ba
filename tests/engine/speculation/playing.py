"""A turn without a model: its output is known, and drafts are verified against it."""

from collections.abc import Sequence
from typing import NamedTuple

from vivace.engine.speculation import Drafter, History, StepCosts

CPU = {1: 54.0, 2: 87.0, 4: 90.0, 8: 131.0, 16: 127.0, 32: 260.0, 64: 448.0}
GPU = {1: 1.0, 2: 1.02, 4: 1.04, 8: 1.06, 16: 1.2, 32: 1.4, 64: 2.0}


class Played(NamedTuple):
    drafts: list[list[int]]  # one a pass
    accepted: list[int]  # of each
    ms: float

    def speedup(self, costs: dict[int, float]) -> float:
        tokens = sum(self.accepted) + len(self.accepted)
        return tokens * costs[1] / self.ms


class Turn:
    """A drafter and the log it drafts for."""

    def __init__(
        self,
        prediction: Sequence[int] = (),
        log: Sequence[int] = (),
        costs: dict[int, float] | None = None,
    ) -> None:
        self.history = History(log)
        self.costs = StepCosts(costs or CPU)
        self.drafter = Drafter(self.costs, self.history, prediction)

    def propose(self, limit: int = 63) -> list[int]:
        return self.drafter.propose(limit)

    def say(self, tokens: Sequence[int]) -> None:
        self.history.extend(tokens)
        self.drafter.observe(tokens)

    def say_singly(self, tokens: Sequence[int]) -> None:
        """One plain pass a token."""
        for token in tokens:
            self.propose()
            self.say([token])

    def play(self, output: Sequence[int], limit: int = 63, *, looks_ahead: bool = False) -> Played:
        done, drafts, accepted, ms = 0, [], [], 0.0
        while done < len(output):
            draft = self.propose(limit)
            if looks_ahead:
                self.drafter.look_ahead()
            rest = list(output[done : done + len(draft) + 1])
            right = 0
            while right < min(len(draft), len(rest) - 1) and draft[right] == rest[right]:
                right += 1
            self.say(rest[: right + 1])
            done += right + 1
            drafts.append(draft)
            accepted.append(right)
            ms += self.costs.ms(len(draft) + 1)
        return Played(drafts, accepted, ms)
