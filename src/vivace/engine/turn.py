"""One piece of work on one session, from its frame to its `Finished`: append, generate or score.

Each kind says what its next forward pass must compute (`spans`) and takes what came of it (`take`). Both look
only at the session's log and KV, so a pass that was given up or an evicted KV just means to ask again.
Owns a turn's progress and its waterfall. Does not own who runs when, the KV, or sending.
"""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import cached_property

from vivace.engine.frames import Append, Chances, Generate, Score, Waterfall
from vivace.engine.grammar import Constraint
from vivace.engine.runners.base import Draw, Facts, Logits, Span
from vivace.engine.sampler import Sampler, log_probability, log_total
from vivace.engine.session import Claim, Session
from vivace.engine.speculation.costs import StepCosts
from vivace.engine.speculation.drafter import Drafter

SCORE_TOKENS = 256  # candidate tokens in one pass
COLD = 1e-5  # a temperature below this draws the likeliest, as in `sampler`
STEPS_AHEAD = 2  # that a runner may begin before this one's token is known: the host may be late by as many
QUIET_PASSES = 3  # without a draft, until one step is begun ahead although one may yet be found

Account = tuple[bool, str]  # realtime or not, tenant: what was served in one tier is no credit in the other


class Turn:
    is_alone = False  # its next pass cannot be shared with other turns
    is_waiting = False  # for something else than its turn
    needs_row = True  # its next pass must give logits, so at least the last token of the log is fed
    draw: Draw | None = None  # how a runner may choose its next tokens itself; None: it needs the logits
    steps_ahead = 0  # that a runner may begin beyond its next pass

    def __init__(self, work: Append | Generate | Score, session: Session) -> None:
        self.id = work.turn
        self.session = session
        self.is_realtime = work.tier == "realtime"
        self.received = time.perf_counter()
        self.firm_before = 0  # the session's length without this turn
        self.started = self.first_token = self.last_token = 0.0
        self.served_at = 0  # in ticks of the scheduler
        self.restore_s = self.prefill_s = self.runner_s = self.busy_s = self.draft_s = self.grammar_s = 0.0
        self.cached_tokens = self.restored_tokens = self.new_tokens = self.output_tokens = self.steps = 0
        self.compile_s = 0.0  # until its grammar was ready
        self.draft_accepted = self.draft_rejected = 0
        self.rejected = 0  # drafted tokens of the last pass that the model did not say
        self.scores: list[float] = []

    def spans(self, limit: int) -> list[Span]:
        """What the next pass must compute, `limit` tokens at most; nothing if there is nothing left to do."""
        raise NotImplementedError

    def take(self, rows: Logits) -> str:
        """What came of it, a row for each token that was wanted. Returns why the turn ends, or nothing."""
        raise NotImplementedError

    def take_tokens(self, tokens: Iterable[int]) -> str:
        """As `take`, where the runner has chosen the tokens itself, as `draw` says."""
        raise NotImplementedError

    def let_go(self) -> None:
        """The pass is over, or was given up."""

    def shrink(self) -> bool:
        """There is no room for the last pass: ask for less from now on, if that can be."""
        return False

    @cached_property
    def claim(self) -> Claim:
        """On the KV: no turn with a weaker one may take its cells."""
        return (not self.is_realtime, self.received)

    @cached_property
    def account(self) -> Account:
        """What it is served counts for this one."""
        return (self.is_realtime, self.session.tenant)

    @property
    def is_reading(self) -> bool:
        """Whether it is still in its prompt."""
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
            output_tokens=self.output_tokens,
            steps=self.steps,
            draft_accepted=self.draft_accepted,
            draft_rejected=self.draft_rejected,
        )

    def _reading(self, limit: int) -> Span | None:
        """The next chunk of the log, if more than one pass is needed for it."""
        session = self.session
        if session.pending <= limit:
            return None
        return Span(session.seq, session.kv, session.log[session.kv : session.kv + limit])


class AppendTurn(Turn):
    needs_row = False

    def __init__(self, work: Append, session: Session) -> None:
        super().__init__(work, session)
        self.is_provisional = work.is_provisional
        self.is_realtime = self.is_realtime and not work.is_provisional

    def spans(self, limit: int) -> list[Span]:
        session = self.session
        chunk = session.log[session.kv : session.kv + limit]
        return [Span(session.seq, session.kv, chunk)] if chunk else []

    def take(self, rows: Logits) -> str:
        assert not len(rows)
        return "" if self.session.pending else "appended"


class GenerateTurn(Turn):
    def __init__(
        self,
        work: Generate,
        session: Session,
        *,
        facts: Facts,
        piece: Callable[[int], bytes],
        costs: StepCosts,
        constraint: "Future[Constraint] | None",
    ) -> None:
        super().__init__(work, session)
        self._work = work
        self._limit_tokens, self._draft_tokens = facts.limit_tokens, facts.draft_tokens
        self._most_tokens = work.max_tokens
        self._piece = piece
        self._costs = costs
        self._compiling = constraint
        self._constraint: Constraint | None = None
        self._sampler = Sampler(work.sampling, session.log)
        self._drafter: Drafter | None = None
        self._draft: list[int] = []
        self._quiet_passes = 0  # since the last draft
        self._ends = facts.end_tokens | frozenset(work.stop_tokens)
        self._draw = _draw(work, self._ends)  # if it is there, no penalty counts tokens either
        self._stops = [stop.encode() for stop in work.stop]
        self._stop_tail = max(map(len, self._stops), default=1) - 1  # bytes that a stop may have begun in
        self._tail = b""  # the end of the output, to find stop strings that cross tokens
        self._spoken = session.log[-work.spoken :] if work.spoken else []
        for token in self._spoken:
            self._sampler.hear(token)
            self._tail = (self._tail + piece(token))[-self._stop_tail :] if self._stop_tail else b""
        self.fresh: list[int] = []  # tokens of the last pass, to be sent
        self.chances: list[Chances] = []

    @property
    def is_waiting(self) -> bool:  # type: ignore[override]
        return self._compiling is not None

    def settle_grammar(self) -> None:
        """Take the compiled grammar, if it is there. Raises if it is refused."""
        if self._compiling and self._compiling.done():
            self._constraint, self._compiling = self._compiling.result(), None
            for token in self._spoken:
                self._constraint.accept(token)
            self.grammar_s = self.compile_s = time.perf_counter() - self.received

    def spans(self, limit: int) -> list[Span]:
        self._draft = []
        if reading := self._reading(limit):
            return [reading]
        session = self.session
        tokens = session.log[session.kv :]
        is_speaking = self.output_tokens > 0  # the first token shall not wait for a draft
        if self._work.use_drafts and is_speaking and (room := self._draft_room(limit - len(tokens))) > 0:
            self._draft = self._propose(room)
        self._quiet_passes = 0 if self._draft else self._quiet_passes + 1
        return [Span(session.seq, session.kv, tokens + self._draft, want=len(self._draft) + 1)]

    @property
    def draw(self) -> Draw | None:  # type: ignore[override]
        """Where nothing but the token itself is needed of a pass: it speaks, and no grammar looks on."""
        session = self.session
        is_next = len(session.log) == session.kv + 1 and self.output_tokens > 0
        return self._draw if is_next and self._constraint is None else None

    @property
    def steps_ahead(self) -> int:  # type: ignore[override]
        """A draft may come at any time where drafts are looked for: then few, and none while they come."""
        wish = int(self._quiet_passes >= QUIET_PASSES) if self._work.use_drafts else STEPS_AHEAD
        return max(0, self._draft_room(wish)) if wish else 0

    def _draft_room(self, limit: int) -> int:
        """Tokens that may be drafted: one less than may still come, for the model adds one of its own."""
        said, held = self.output_tokens, len(self.session.log)
        return min(limit, self._draft_tokens, self._most_tokens - said - 1, self._limit_tokens - held - 1)

    def _propose(self, room: int) -> list[int]:
        begun = time.perf_counter()
        if self._drafter is None:
            self._drafter = Drafter(self._costs, self.session.history(), self._work.prediction)
            self._drafter.hear(self.session.log[-self.output_tokens :])
        draft = self._drafter.propose(room)
        self.draft_s += time.perf_counter() - begun
        if self._constraint:
            begun = time.perf_counter()
            draft = self._constraint.forced()[:room] or self._constraint.keep(draft)
            self.grammar_s += time.perf_counter() - begun
        return draft

    def take(self, rows: Logits) -> str:
        if not len(rows):
            self.fresh, self.chances, self.rejected = [], [], 0
            return ""
        return self.take_tokens(self._choose(row) for row in rows)

    def take_tokens(self, tokens: Iterable[int]) -> str:
        """Into the log, up to the first that the draft did not foresee."""
        draft, log = self._draft, self.session.log
        self.fresh, self.chances, self.rejected = [], [], len(draft)
        reason, accepted = "", 0
        for token in tokens:
            if self._draw is None:
                self._sampler.hear(token)
            log.append(token)
            self.fresh.append(token)
            self.output_tokens += 1
            reason = self._reason_to_stop(token)
            if accepted == len(draft) or token != draft[accepted]:
                break
            accepted += 1
            if reason:
                break
        self.last_token = time.perf_counter()
        self.first_token = self.first_token or self.last_token
        if drafter := self._drafter:
            self._learn(drafter, accepted)
        return reason

    def _choose(self, row: Logits) -> int:
        """One token from one row."""
        mask = None
        if self._constraint:
            begun = time.perf_counter()
            mask = self._constraint.mask()
            self.grammar_s += time.perf_counter() - begun
        token = self._sampler.choose(row, len(self.session.log), mask)
        if self._work.sampling.top_logprobs is not None:
            self.chances.append(self._sampler.chances(row, token))
        if self._constraint:
            begun = time.perf_counter()
            self._constraint.accept(token)
            self.grammar_s += time.perf_counter() - begun
        return token

    def _learn(self, drafter: Drafter, accepted: int) -> None:
        """What the last draft was worth; and the drafter hears what was said instead."""
        self.rejected = len(self._draft) - accepted
        self.draft_accepted += accepted
        self.draft_rejected += self.rejected
        begun = time.perf_counter()
        self.session.history()
        drafter.hear(self.fresh)
        self.draft_s += time.perf_counter() - begun

    def _reason_to_stop(self, token: int) -> str:
        if token in self._ends:
            return "stop"
        if self._stops:
            self._tail += self._piece(token)
            if any(stop in self._tail for stop in self._stops):
                return "stop"
            self._tail = self._tail[-self._stop_tail :] if self._stop_tail else b""
        is_full = len(self.session.log) >= self._limit_tokens
        return "length" if is_full or self.output_tokens >= self._most_tokens else ""


def _draw(work: Generate, ends: frozenset[int]) -> Draw | None:
    """What a runner must know to choose this turn's tokens; None where it would need more than it can."""
    s = work.sampling
    is_plain = (
        (s.top_p, s.top_k, s.min_p) == (1.0, 0, 0.0)
        and (s.repetition_penalty, s.presence_penalty, s.frequency_penalty) == (1.0, 0.0, 0.0)
        and not s.logit_bias
        and s.top_logprobs is None
    )
    if not is_plain:
        return None
    return Draw(stops=ends) if s.temperature < COLD else Draw(s.temperature, s.seed, ends)


class ScoreTurn(Turn):
    """Log-probability of each candidate after the log; their KV lives in scratch sequences only."""

    def __init__(
        self,
        work: Score,
        session: Session,
        *,
        scratch: range,
        share: Callable[[int, int, int], None],
        clear: Callable[[int], None],
    ) -> None:
        super().__init__(work, session)
        self._candidates = work.candidates
        self._scratch = scratch
        self._share, self._clear = share, clear
        self._has_read = False
        self._waiting = [i for i, candidate in enumerate(work.candidates) if len(candidate) > 1]
        self._group: list[int] = []
        self._most = len(scratch)  # candidates in a pass

    def spans(self, limit: int) -> list[Span]:
        self._group = []
        session = self.session
        if reading := self._reading(limit):
            return [reading]
        if session.pending:
            return [Span(session.seq, session.kv, session.log[session.kv :], want=not self._has_read)]
        return self._next_group(min(limit, SCORE_TOKENS))

    @property
    def needs_row(self) -> bool:  # type: ignore[override]
        return not self._has_read

    @property
    def is_alone(self) -> bool:  # type: ignore[override]  # a scratch sequence serves one turn at a time
        return self._has_read

    def _next_group(self, limit: int) -> list[Span]:
        session, size = self.session, 0
        spans: list[Span] = []
        for seq, index in zip(self._scratch[: self._most], self._waiting, strict=False):
            tokens = self._candidates[index][:-1]
            size += len(tokens)
            if spans and size > limit:
                break
            self._share(session.seq, seq, session.kv)
            spans.append(Span(seq, session.kv, tokens, want=len(tokens)))
            self._group.append(index)
        return spans

    def take(self, rows: Logits) -> str:
        if not self._has_read and len(rows):
            self._has_read = True
            total = log_total(rows[0])
            self.scores = [float(rows[0][c[0]]) - total if c else 0.0 for c in self._candidates]
        elif self._group:
            each = iter(rows)
            for index in self._group:
                self.scores[index] += sum(log_probability(next(each), t) for t in self._candidates[index][1:])
            del self._waiting[: len(self._group)]
        return "scored" if self._has_read and not self._waiting else ""

    def shrink(self) -> bool:
        if len(self._group) < 2:
            return False
        self._most = len(self._group) // 2
        return True

    def let_go(self) -> None:
        for seq in self._scratch[: len(self._group)]:
            self._clear(seq)
