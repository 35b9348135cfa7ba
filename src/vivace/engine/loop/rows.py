"""Passes that several turns share: a row is the next token of one turn.

Owns who shares a pass, and running it. Does not own what its tokens mean to a turn (`stepper`), nor what is
in flight (the runner).
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

from vivace.engine.kv.session import Sessions
from vivace.engine.loop.chunks import contended_tokens
from vivace.engine.loop.frame_sender import FrameSender
from vivace.engine.loop.scheduler import Scheduler
from vivace.engine.runners.base import BatchDecodingRunner, DecodeRow, Logits
from vivace.engine.speculation.costs import StepCosts
from vivace.engine.turns.turn import Turn


class RowOutcome(NamedTuple):
    """What came of a turn's row."""

    turn: Turn
    said: list[int] | Logits


class RowDecoding:
    def __init__(
        self,
        runner: BatchDecodingRunner,
        sessions: Sessions,
        scheduler: Scheduler,
        frame_sender: FrameSender,
        costs: StepCosts,
    ) -> None:
        self._runner = runner
        self._sessions = sessions
        self._scheduler = scheduler
        self._sender = frame_sender
        self._costs = costs

    def choose(self, lead: Turn, others: list[Turn]) -> list[Turn]:
        """Return the turns of the lead's tier whose next tokens one pass can sample, if there are two."""
        if not _fits(lead):
            return []
        most = self._runner.max_rows
        if self._scheduler.is_contended(lead):
            most = min(most, contended_tokens(self._costs))
        peers = [turn for turn in others if turn.is_realtime == lead.is_realtime and _fits(turn)]
        if not peers or most < 2:
            return []
        chosen, left = [lead], self._runner.max_logits_rows - (lead.device_sampling is None)
        for turn in peers:
            needs_logits = turn.device_sampling is None
            if len(chosen) < most and left >= needs_logits:
                chosen.append(turn)
                left -= needs_logits
        return chosen

    def run(self, turns: Sequence[Turn]) -> tuple[list[RowOutcome], float]:
        """Run one pass. Return what came of it, without turns that are in the next one, and its seconds."""
        rows = []
        for turn in turns:
            (span,) = turn.spans(1)
            rows.append(DecodeRow(span.seq, span.start, span.tokens[0], turn.device_sampling))
        # Where others wait for a row, the next pass is not of the same turns: nothing is begun for it.
        steps_ahead = int(len(self._scheduler) <= self._runner.max_rows)
        passed = time.perf_counter()
        while_running = self._sender.flush
        try:
            found = self._sessions.with_room(
                [turn.session for turn in turns],
                lambda: self._runner.decode_rows(rows, steps_ahead, while_running),
                turns[0].claim,
            )
        finally:
            while_running()  # whatever became of this pass: the tokens before it were said
        spent_s = time.perf_counter() - passed
        self._scheduler.count_pass(turns[0])
        outcomes = [
            RowOutcome(turn, said) for turn, said in zip(turns, found, strict=True) if said is not None
        ]
        return outcomes, spent_s


def _fits(turn: Turn) -> bool:
    return turn.is_at_next_token and not turn.is_drafting
