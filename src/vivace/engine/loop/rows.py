"""Passes that several turns share: a row is the next token of one turn, or a token that it has drafted.

Owns who shares a pass, who drafts how much in it, and running it. Does not own what its tokens mean to a turn
(`stepper`), nor what is in flight (the runner).
"""

import time
from typing import NamedTuple

from vivace.engine.kv.sessions import Sessions
from vivace.engine.loop.chunks import contended_tokens
from vivace.engine.loop.frame_sender import FrameSender
from vivace.engine.loop.scheduler import Scheduler
from vivace.engine.runners.base import BatchDecodingRunner, Logits
from vivace.engine.speculation.company import share_rows
from vivace.engine.speculation.costs import StepCosts
from vivace.engine.turns.turn import Turn

SHARES = 2  # of the free rows that a turn may draft: some have nothing to draft, more is work in vain


class SharedPass(NamedTuple):
    """Who is in a pass, and how many tokens each has drafted."""

    turns: list[Turn]
    drafted: list[int]
    goes_ahead: bool = True  # the runner may start the next pass on the tokens of this one

    def smaller(self) -> "SharedPass":
        """Return a pass that needs less room: without drafts, or else with half of the turns."""
        turns = self.turns if any(self.drafted) else self.turns[: len(self.turns) // 2]
        return SharedPass(turns, [0] * len(turns), self.goes_ahead)


class RowOutcome(NamedTuple):
    """What came of a turn's rows."""

    turn: Turn
    fed: int  # tokens, its draft with them
    said: list[int] | Logits


class RowDecoding:
    def __init__(
        self,
        runner: BatchDecodingRunner,
        sessions: Sessions,
        scheduler: Scheduler,
        frame_sender: FrameSender,
        costs: StepCosts,
        row_costs: StepCosts | None,
    ) -> None:
        self._runner = runner
        self._sessions = sessions
        self._scheduler = scheduler
        self._sender = frame_sender
        self._costs = costs
        self._row_costs = row_costs or StepCosts(costs.points())
        self._is_ahead = False  # the runner has begun a pass that nobody has asked for yet

    def choose(self, lead: Turn, others: list[Turn]) -> SharedPass | None:
        """Return a pass of turns of the lead's tier which are at their next token, if there are two.

        Return None where the lead shall have a pass of its own.
        """
        if not _fits(lead):
            return None
        most = self._runner.max_rows
        if self._scheduler.is_contended(lead):
            most = min(most, contended_tokens(self._costs))
        peers = [turn for turn in others if turn.is_realtime == lead.is_realtime and _fits(turn)]
        if not peers or most < 2:
            return None
        turns = self._with_room(lead, peers, most)
        # Where others wait for a row, the next pass is not of the same turns: nothing is begun for it. Nor is
        # it for background turns among themselves: a realtime turn that arrives would wait for two passes.
        is_awaited = lead.is_realtime or self._scheduler.is_contended(lead)
        goes_ahead = is_awaited and len(self._scheduler) <= self._runner.max_rows
        if len(turns) == most or not any(turn.is_drafting for turn in turns):
            return SharedPass(turns, [0] * len(turns), goes_ahead)
        if self._is_ahead:  # its tokens first: they are true, whatever is drafted
            return SharedPass(turns, [0] * len(turns), goes_ahead=False)
        room = (most - len(turns)) * SHARES // len(turns)
        chances = [turn.draft_chances(room) if turn.is_drafting else [] for turn in turns]
        shares = share_rows(chances, self._row_costs, self._costs, most)
        return None if shares is None else SharedPass(turns, shares, goes_ahead and not any(shares))

    def _with_room(self, lead: Turn, peers: list[Turn], most: int) -> list[Turn]:
        chosen, left = [lead], self._runner.max_logits_rows - (lead.device_sampling is None)
        for turn in peers:
            needs_logits = turn.device_sampling is None
            if len(chosen) < most and left >= needs_logits:
                chosen.append(turn)
                left -= needs_logits
        return chosen

    def run(self, shared: SharedPass) -> tuple[list[RowOutcome], float]:
        """Run one pass. Return what came of it, without turns that are in the next one, and its seconds."""
        turns = shared.turns
        rows = [turn.row(drafted) for turn, drafted in zip(turns, shared.drafted, strict=True)]
        passed = time.perf_counter()
        while_running = self._sender.flush
        try:
            found = self._sessions.with_room(
                [turn.session for turn in turns],
                lambda: self._runner.decode_rows(rows, int(shared.goes_ahead), while_running),
                turns[0].claim,
            )
        finally:
            while_running()  # whatever became of this pass: the tokens before it were said
        spent_s = time.perf_counter() - passed
        if not self._is_ahead:
            self._observe(len(rows) + sum(shared.drafted), spent_s)
        self._is_ahead = shared.goes_ahead
        self._scheduler.count_pass(turns[0])
        outcomes = [
            RowOutcome(turn, 1 + len(row.draft), said)
            for turn, row, said in zip(turns, rows, found, strict=True)
            if said is not None
        ]
        return outcomes, spent_s

    def _observe(self, rows: int, spent_s: float) -> None:
        """Learn what a pass that began with this call has cost: as much as the size that it is padded to."""
        size = min((size for size in self._row_costs.points() if size >= rows), default=rows)
        self._row_costs.observe(size, spent_s * 1e3)


def _fits(turn: Turn) -> bool:
    """Return whether a turn may be in a shared pass. A draft that the host samples is verified alone."""
    return turn.is_at_next_token and not (turn.is_drafting and turn.device_sampling is None)
