"""One request on one session, from its frame to its `Finished`: what all three kinds share.

Each kind (`append`, `generate`, `score`) returns what its next forward pass must compute (`spans`) and
applies the results (`apply_logits`). Both depend only on the session's log and KV, so after an aborted pass
or an evicted KV the stepper calls `spans` again. Owns a turn's progress and its waterfall. Does not own
scheduling, the KV, or sending.
"""

import time
from collections.abc import Iterable
from functools import cached_property

from vivace.engine.kv.session import Claim, Session
from vivace.engine.runners.base import DecodeRow, Logits, SamplingSpec, Span
from vivace.engine.wire.frames import Append, Generate, Score, Waterfall


class Turn:
    needs_own_pass = False  # its next pass cannot be shared with other turns
    is_waiting = False  # cannot run yet: its grammar is being compiled
    needs_row = True  # its next pass must give logits, so at least the last token of the log is fed
    device_sampling: SamplingSpec | None = (
        None  # how a runner may choose its next tokens itself; None: it needs the logits
    )
    first_sampling: SamplingSpec | None = None  # the same of its first token, which a prompt's pass gives
    is_at_next_token = False  # its next pass has one token, the last that it has said
    steps_ahead = 0  # that a runner may begin beyond its next pass
    tells_reading = True  # somebody waits for what it says
    is_drafting = False  # its next pass should verify a draft, also where several turns share one

    def __init__(self, work: Append | Generate | Score, session: Session) -> None:
        self.id = work.turn
        self.session = session
        self.tenant = session.tenant
        self.is_realtime = work.tier == "realtime"
        self.received = time.perf_counter()
        self.committed_before = 0  # the session's length without this turn
        self.started = self.first_token = self.last_token = 0.0
        self.reading_told = 0.0  # when it was last told how far the prompt is read
        self.served_at = 0  # in ticks of the scheduler
        self.restore_s = self.prefill_s = self.runner_s = self.busy_s = self.draft_s = self.grammar_s = 0.0
        self.cached_tokens = self.restored_tokens = self.new_tokens = self.output_tokens = self.steps = 0
        self.reread_tokens = 0
        self.compile_s = 0.0  # until its grammar was ready
        self.draft_accepted = self.draft_rejected = 0
        self.rejected = 0  # drafted tokens of the last pass that the model did not say
        self.scores: list[float] = []

    def spans(self, limit: int) -> list[Span]:
        """Return what the next pass must compute, at most `limit` tokens; empty if nothing is left."""
        raise NotImplementedError

    def draft_chances(self, limit: int) -> list[float]:  # noqa: ARG002
        """Find a draft for a shared pass. Return how likely all up to each of its tokens are right."""
        return []

    def row(self, drafted: int) -> DecodeRow:
        """Return the next token's row of a shared pass, with the first `drafted` tokens of the draft."""
        raise NotImplementedError

    def apply_logits(self, rows: Logits) -> str:
        """Apply the rows of a pass. Return why the turn ends, or an empty string if it continues."""
        raise NotImplementedError

    def apply_tokens(self, tokens: Iterable[int]) -> str:
        """Apply tokens that the runner sampled itself as `device_sampling` says. Return as `apply_logits`."""
        raise NotImplementedError

    def start(self, begun: float) -> None:
        """Note what of the log is in the KV as the first pass begins. `begun`: before any was restored."""
        session = self.session
        session.used = time.time()
        self.started = begun
        self.restore_s = time.perf_counter() - begun if session.restored_tokens else 0.0
        self.cached_tokens, self.new_tokens = session.kv, session.pending
        self.restored_tokens, session.restored_tokens = min(session.restored_tokens, session.kv), 0
        self.reread_tokens, session.reread_tokens = min(session.reread_tokens, session.pending), 0

    def count_runner_time(self, spent_s: float) -> None:
        """Count the time of a pass, before its results are applied."""
        self.runner_s += spent_s
        if self.is_prefilling:
            self.prefill_s += spent_s

    def look_ahead(self) -> None:
        """Prepare the next pass while one is computed, as far as can be guessed. May be called again."""

    def end_pass(self) -> None:
        """Free what only the last pass needed. Called after every pass, aborted or not."""

    def shrink(self) -> bool:
        """Make later passes smaller, since the last one found no room. Return whether that is possible."""
        return False

    @cached_property
    def claim(self) -> Claim:
        """Return the turn's claim on the KV: no turn with a weaker one may take its cells."""
        return (not self.is_realtime, self.received)

    @property
    def is_prefilling(self) -> bool:
        """Return whether the turn has no output yet."""
        return not self.output_tokens

    def waterfall(self) -> Waterfall:
        first = self.first_token or time.perf_counter()
        return Waterfall(
            queue_ms=((self.started or first) - self.received - self.compile_s) * 1e3,
            restore_ms=self.restore_s * 1e3,
            prefill_ms=self.prefill_s * 1e3,
            first_token_ms=(first - self.received) * 1e3,
            decode_ms=(self.last_token - self.first_token) * 1e3,
            draft_ms=self.draft_s * 1e3,
            grammar_ms=self.grammar_s * 1e3,
            overhead_ms=max(0.0, self.busy_s - self.runner_s) * 1e3,
            cached_tokens=self.cached_tokens,
            restored_tokens=self.restored_tokens,
            new_tokens=self.new_tokens,
            reread_tokens=self.reread_tokens,
            output_tokens=self.output_tokens,
            steps=self.steps,
            draft_accepted=self.draft_accepted,
            draft_rejected=self.draft_rejected,
        )

    def _next_chunk(self, limit: int) -> Span | None:
        """Return the next chunk of the log, or None if one pass is enough for the rest."""
        session = self.session
        end = min(session.kv + limit, session.next_stop())
        if end == len(session.log):
            return None
        return Span(session.seq, session.kv, session.log[session.kv : end])
