"""A turn that generates: prefill, then decode passes with drafts, until it has a reason to stop.

Owns which tokens enter the log. Does not own how they are sampled (`output`) or drafted (`speculation`).
"""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future

from vivace.engine.common_length import common_length
from vivace.engine.kv.session import Session
from vivace.engine.output.grammar import Constraint
from vivace.engine.output.sampler import GREEDY_TEMPERATURE, Sampler
from vivace.engine.runners.base import DecodeRow, Logits, ModelInfo, SamplingSpec, Span
from vivace.engine.speculation.costs import StepCosts
from vivace.engine.speculation.drafter import Drafter
from vivace.engine.turns.turn import Turn
from vivace.engine.wire.frames import Generate, PositionLogprobs

STEPS_AHEAD = 2  # steps that a runner may start before this one's token is known
MIN_DRAFT_ACCEPTED = 4  # of a draft, or all of it: else it is a miss
MOST_MISSES = 8  # in a row, of a turn that shares passes: after a changed line it takes some. Then it waits …
TOKENS_BETWEEN_DRAFTS = 16  # … so many tokens until it tries its prediction again
MIN_PASSES_WITHOUT_DRAFT = 3  # after these, a runner may start one step ahead although a draft may follow


class GenerateTurn(Turn):
    def __init__(
        self,
        work: Generate,
        session: Session,
        *,
        info: ModelInfo,
        piece: Callable[[int], bytes],
        costs: StepCosts,
        constraint: "Future[Constraint] | None",
    ) -> None:
        super().__init__(work, session)
        self._work = work
        self._limit_tokens, self._draft_tokens = info.limit_tokens, info.draft_tokens
        self._max_tokens = work.max_tokens
        self._piece = piece
        self._costs = costs
        self._compiling = constraint
        self._constraint: Constraint | None = None
        self._sampler = Sampler(work.sampling, session.log)
        self._drafter: Drafter | None = None
        self._draft: list[int] = []
        self._passes_without_draft = 0  # since the last draft
        self._offered: list[int] | None = None  # what may be drafted in the next pass, if that was asked
        self._misses = 0  # passes in a row whose draft was wrong, or had no row
        self._tried_at = 0  # output tokens when a draft was last tried
        self._end_tokens = info.end_tokens | frozenset(work.stop_tokens)
        self._device_sampling = _device_sampling(
            work, self._end_tokens
        )  # if it is there, no penalty counts tokens either
        self._stops = [stop.encode() for stop in work.stop]
        self._stop_tail = max(map(len, self._stops), default=1) - 1  # bytes that a stop may have begun in
        self._tail = b""  # the end of the output, to find stop strings that cross tokens
        self._prior_output = session.log[-work.prior_output_tokens :] if work.prior_output_tokens else []
        for token in self._prior_output:
            self._sampler.count_token(token)
            self._tail = (self._tail + piece(token))[-self._stop_tail :] if self._stop_tail else b""
        self.new_output: list[int] = []  # tokens of the last pass, to be sent
        self.logprobs: list[PositionLogprobs] = []

    @property
    def is_waiting(self) -> bool:  # type: ignore[override]
        return self._compiling is not None

    def resolve_grammar(self) -> None:
        """Take the grammar if it is compiled. Raise if it was refused."""
        if self._compiling and self._compiling.done():
            self._constraint, self._compiling = self._compiling.result(), None
            for token in self._prior_output:
                self._constraint.accept(token)
            self.grammar_s = self.compile_s = time.perf_counter() - self.received

    def spans(self, limit: int) -> list[Span]:
        self._draft, self._offered = [], None
        if chunk := self._next_chunk(limit):
            return [chunk]
        session = self.session
        tokens = session.log[session.kv :]
        is_speaking = self.output_tokens > 0  # the first token shall not wait for a draft
        if self._work.use_drafts and is_speaking and (room := self._draft_room(limit - len(tokens))) > 0:
            self._draft, self._tried_at = self._propose(room), self.output_tokens
            self._misses += 1  # unless it turns out to be right
        self._passes_without_draft = 0 if self._draft else self._passes_without_draft + 1
        return [Span(session.seq, session.kv, tokens + self._draft, want=len(self._draft) + 1)]

    def draft_chances(self, limit: int) -> list[float]:
        begun = time.perf_counter()
        chances: list[float] = []
        self._offered = []
        if (room := self._draft_room(limit)) > 0:
            self._offered, chances = self._ready_drafter().offer(room)
        self.draft_s += time.perf_counter() - begun
        return chances

    def row(self, drafted: int) -> DecodeRow:
        self._draft = (self._offered or [])[:drafted]
        if self._offered is not None:
            self._offered, self._tried_at = None, self.output_tokens
            self._misses += 1
        self._passes_without_draft = 0 if self._draft else self._passes_without_draft + 1
        session = self.session
        return DecodeRow(session.seq, session.kv, session.log[-1], self.device_sampling, tuple(self._draft))

    @property
    def device_sampling(self) -> SamplingSpec | None:  # type: ignore[override]
        """Return how the runner may sample the next tokens, or None if it may not."""
        return self._device_sampling if self.is_at_next_token and self._constraint is None else None

    @property
    def first_sampling(self) -> SamplingSpec | None:  # type: ignore[override]
        return self._device_sampling if not self.output_tokens and self._constraint is None else None

    @property
    def is_at_next_token(self) -> bool:  # type: ignore[override]
        return len(self.session.log) == self.session.kv + 1 and self.output_tokens > 0

    @property
    def steps_ahead(self) -> int:  # type: ignore[override]
        """Return how many steps the runner may start ahead: none while drafts are found."""
        wish = (
            int(self._passes_without_draft >= MIN_PASSES_WITHOUT_DRAFT)
            if self._work.use_drafts
            else STEPS_AHEAD
        )
        return max(0, self._draft_room(wish)) if wish else 0

    @property
    def is_drafting(self) -> bool:  # type: ignore[override]
        """Return whether to draft among others: its prediction holds, or was not tried for a while.

        Where the host samples, others wait for each draft: one that misses is enough.
        """
        if not self._work.use_drafts or not self._work.prediction:
            return False
        is_due = not self._tried_at or self.output_tokens - self._tried_at >= TOKENS_BETWEEN_DRAFTS
        return is_due or self._misses < (MOST_MISSES if self._device_sampling else 1)

    def _draft_room(self, limit: int) -> int:
        """Return how many tokens may be drafted: one fewer than may still come; the model adds one."""
        said, held = self.output_tokens, len(self.session.log)
        return min(limit, self._draft_tokens, self._max_tokens - said - 1, self._limit_tokens - held - 1)

    def _propose(self, room: int) -> list[int]:
        begun = time.perf_counter()
        draft = self._ready_drafter().propose(room)
        self.draft_s += time.perf_counter() - begun
        if self._constraint:
            begun = time.perf_counter()
            draft = self._constraint.forced()[:room] or self._constraint.keep(draft)
            self.grammar_s += time.perf_counter() - begun
        return draft

    def look_ahead(self) -> None:
        if self._drafter and self._draft:
            self._drafter.look_ahead()

    def _ready_drafter(self) -> Drafter:
        if self._drafter is None:
            self._drafter = Drafter(
                self._costs,
                self.session.history(),
                self._work.prediction,
                reads_again=self.session.cannot_cut,
            )
            self._drafter.observe(self.session.log[-self.output_tokens :])
        return self._drafter

    def apply_logits(self, rows: Logits) -> str:
        if not len(rows):
            self.new_output, self.logprobs, self.rejected = [], [], 0
            return ""
        return self.apply_tokens(self._sample(row) for row in rows)

    def apply_tokens(self, tokens: Iterable[int]) -> str:
        """Add tokens to the log, up to the first that differs from the draft."""
        draft, log = self._draft, self.session.log
        self.new_output, self.logprobs, self.rejected = [], [], len(draft)
        reason, accepted = "", 0
        if isinstance(tokens, list) and self._goes_on_behind(tokens, draft):
            log += tokens
            self.new_output = tokens
            self.output_tokens += len(tokens)
            accepted, tokens = common_length(tokens, draft), ()
        for token in tokens:
            if self._device_sampling is None:
                self._sampler.count_token(token)
            log.append(token)
            self.new_output.append(token)
            self.output_tokens += 1
            reason = self._reason_to_stop(token)
            if reason or accepted == len(draft) or token != draft[accepted]:
                break  # a runner need not feed the token that ends a turn, though it was drafted
            accepted += 1
        self.last_token = time.perf_counter()
        self.first_token = self.first_token or self.last_token
        if drafter := self._drafter:
            self._count_draft(drafter, accepted)
        return reason

    def _goes_on_behind(self, tokens: list[int], draft: list[int]) -> bool:
        """Return whether all but the last are the draft's, and none of them ends the turn.

        Only of a turn whose tokens the runner samples: the host need not look at each. Move on in what stop
        strings are looked for in.
        """
        goes_on = (
            self._device_sampling is not None
            and tokens[:-1] == draft[: len(tokens) - 1]
            and self._end_tokens.isdisjoint(tokens)
            and self.output_tokens + len(tokens) < self._max_tokens
            and len(self.session.log) + len(tokens) < self._limit_tokens
        )
        if goes_on and self._stops:
            text = self._tail + b"".join(map(self._piece, tokens))
            if any(stop in text for stop in self._stops):
                return False
            self._tail = text[-self._stop_tail :] if self._stop_tail else b""
        return goes_on

    def _sample(self, row: Logits) -> int:
        """Choose one token from one row of logits."""
        mask = None
        if self._constraint:
            begun = time.perf_counter()
            mask = self._constraint.mask()
            self.grammar_s += time.perf_counter() - begun
        token = self._sampler.sample(row, len(self.session.log), mask)
        if self._work.sampling.top_logprobs is not None:
            self.logprobs.append(self._sampler.logprobs(row, token))
        if self._constraint:
            begun = time.perf_counter()
            self._constraint.accept(token)
            self.grammar_s += time.perf_counter() - begun
        return token

    def _count_draft(self, drafter: Drafter, accepted: int) -> None:
        """Count how much of the last draft was right, and tell the drafter what came."""
        if self._draft and accepted >= min(MIN_DRAFT_ACCEPTED, len(self._draft)):
            self._misses = 0
        self.rejected = len(self._draft) - accepted
        self.draft_accepted += accepted
        self.draft_rejected += self.rejected
        begun = time.perf_counter()
        self.session.history()
        drafter.observe(self.new_output)
        self.draft_s += time.perf_counter() - begun

    def _reason_to_stop(self, token: int) -> str:
        if token in self._end_tokens:
            return "stop"
        if self._stops:
            self._tail += self._piece(token)
            if any(stop in self._tail for stop in self._stops):
                return "stop"
            self._tail = self._tail[-self._stop_tail :] if self._stop_tail else b""
        is_full = len(self.session.log) >= self._limit_tokens
        return "length" if is_full or self.output_tokens >= self._max_tokens else ""


def _device_sampling(work: Generate, ends: frozenset[int]) -> SamplingSpec | None:
    """Return how a runner chooses this turn's tokens, or None where it would need more than a runner can."""
    s = work.sampling
    is_plain = (
        (s.top_p, s.top_k, s.min_p) == (1.0, 0, 0.0)
        and (s.repetition_penalty, s.presence_penalty, s.frequency_penalty) == (1.0, 0.0, 0.0)
        and not s.logit_bias
        and s.top_logprobs is None
    )
    if not is_plain:
        return None
    return (
        SamplingSpec(stops=ends)
        if s.temperature < GREEDY_TEMPERATURE
        else SamplingSpec(s.temperature, s.seed, ends)
    )
