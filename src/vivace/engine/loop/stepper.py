"""One pass at a time: whose, what the runner is given for it, and who gets what came of it.

A pass takes what the log of a turn still lacks, and drafts of what may come next: prefill, decode and verify
are the same. Owns a turn's steps up to its end. Does not own frames (`engine`), who runs next (`scheduler`),
what a pass means to a turn (`turn`) or KV (`session`).
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from vivace.engine.faults import ENDING, failure, log_fault
from vivace.engine.kv.session import Claim, Sessions
from vivace.engine.loop.outbox import Outbox
from vivace.engine.loop.scheduler import Scheduler, is_overtaken
from vivace.engine.runners.base import (
    DecodingRunner,
    KVFull,
    Logits,
    ModelInfo,
    OutOfMemory,
    Runner,
    SamplingSpec,
    Span,
    Stopped,
)
from vivace.engine.speculation.costs import StepCosts
from vivace.engine.turns.generate import GenerateTurn
from vivace.engine.turns.turn import Turn
from vivace.engine.wire.frames import Failed, Finished, Stats, StatsReply, ToEngine, Tokens
from vivace.errors import ContextOverflow, VivaceError

CHUNKS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)  # tokens that a prefill chunk may have
CHUNK_MS = 100.0  # a prefill chunk takes no longer …
LEAST_CHUNK_TOKENS = 64  # … unless the runner can be stopped in its middle: then no smaller than efficient,
LONGEST_CHUNK_MS = 1000.0  # and as large as was measured best up to this: other realtime turns wait for it
CONTENDED_STEPS = 1.5  # what a pass may cost, in decode steps, while a realtime turn waits for it

NO_ROWS: Logits = np.empty((0, 0), np.float32)
Arrivals = Callable[[], Sequence[ToEngine] | None]  # frames that wait; None if nobody listens any more


class Part(NamedTuple):
    """What one turn has in a pass."""

    turn: Turn
    spans: list[Span]

    @property
    def tokens(self) -> int:
        return sum(len(span.tokens) for span in self.spans)


class Stepper:
    def __init__(
        self,
        runner: Runner,
        sessions: Sessions,
        scheduler: Scheduler,
        outbox: Outbox,
        costs: StepCosts,
        best_chunk_tokens: int,
        stats: Callable[[], StatsReply],
    ) -> None:
        self._decoder = runner if isinstance(runner, DecodingRunner) else None
        self._info = runner.info
        self._sessions = sessions
        self._scheduler = scheduler
        self._outbox = outbox
        self._costs = costs
        self._stats = stats
        self._chunk_tokens = _chunk_tokens(costs, best_chunk_tokens, runner.info)
        self.tokens_prefilled = self.tokens_generated = 0
        self._apart: set[str] = set()  # turns that were in a pass that failed: each runs in passes of its own
        self.answered = 0  # of the `Stats` that wait: so many had their answer inside of a pass

    def step(self, begun: float, arrivals: Arrivals) -> bool:
        """One pass, if there is a turn that need not wait."""
        order = self._scheduler.order()
        if any(turn.is_waiting for turn in order):
            order = self._settle_grammars(order)
        for place, lead in enumerate(order):
            try:
                if self._decoder and (draw := lead.draw):
                    self._decode_on_device(lead, self._decoder, draw, begun)
                else:
                    self._outbox.flush()
                    self._run(self._batch(lead, order[place + 1 :]), begun, arrivals)
            except Stopped:
                break
            except KVFull:  # it asks for less, or it waits for room, unless nobody could make any
                if lead.shrink():
                    break
                if lead is not self._scheduler.senior:
                    continue
                self._fail(lead, ContextOverflow("The KV of this engine is too small for this turn."))
            except OutOfMemory:
                message = "The GPU has no memory left for this turn; a shorter one, or a later one, may do."
                self.end(lead, Failed(lead.id, "out_of_memory", message))
            except ENDING:
                raise
            except BaseException as error:  # noqa: BLE001 - the boundary of a turn
                self._fail(lead, error)
            break
        return bool(order)

    def _settle_grammars(self, order: list[Turn]) -> list[Turn]:
        """Whoever need not wait: a grammar that is compiled is taken; one that is refused ends its turn."""
        for turn in order:
            if isinstance(turn, GenerateTurn) and turn.is_waiting:
                try:
                    turn.settle_grammar()
                except ENDING:
                    raise
                except BaseException as error:  # noqa: BLE001 - the boundary of a turn
                    self._fail(turn, error)
                    self._sessions.rewind(turn.session.name, turn.committed_before)
        return [turn for turn in self._scheduler.order() if not turn.is_waiting]

    def _decode_on_device(self, turn: Turn, runner: DecodingRunner, draw: SamplingSpec, begun: float) -> None:
        """A pass of a turn whose next tokens the runner can choose itself."""
        session = turn.session
        self._sessions.seat(session, turn.claim)
        (span,) = turn.spans(self._limit(turn))
        ahead = turn.steps_ahead if len(self._scheduler) == 1 else 0
        passed = time.perf_counter()
        meanwhile = self._outbox.flush
        try:
            said = self._sessions.with_room(
                [session], lambda: runner.decode(span, draw, ahead, meanwhile), turn.claim
            )
        finally:
            meanwhile()  # whatever became of this pass: the tokens before it were said
        spent_s = time.perf_counter() - passed
        if not ahead:
            self._costs.observe(len(span.tokens), spent_s * 1e3)
        self._scheduler.count_pass(turn)
        turn.steps += 1
        self._take(turn, len(span.tokens), said, spent_s, begun)

    def _batch(self, lead: Turn, others: list[Turn]) -> list[Part]:
        """The lead's part in the next pass, and those of its tier that are done sooner in the same pass."""
        limit = self._limit(lead)
        batch = [self._part(lead, limit, lead.claim)]
        if not self._info.shares_passes or self._is_alone(lead) or self._scheduler.is_contended(lead):
            return batch
        total = batch[0].tokens
        for turn in others:
            room = min(limit, self._info.pass_tokens - total)
            if turn.is_realtime != lead.is_realtime or self._is_alone(turn) or room < 1:
                continue
            try:
                part = self._part(turn, room, None)
            except KVFull:
                continue
            except ENDING:
                raise
            except BaseException as error:  # noqa: BLE001 - the boundary of a turn
                self._fail(turn, error)
                continue
            if self._costs.ms(total + part.tokens) <= self._costs.ms(total) + self._costs.ms(part.tokens):
                batch.append(part)
                total += part.tokens
        return batch

    def _is_alone(self, turn: Turn) -> bool:
        """Whether the turn's next pass is shared with no other turn."""
        return turn.is_alone or turn.id in self._apart

    def _limit(self, turn: Turn) -> int:
        """Tokens that the turn may have in a pass."""
        return self._contended_tokens() if self._scheduler.is_contended(turn) else self._chunk_tokens

    def _contended_tokens(self) -> int:
        most_ms = CONTENDED_STEPS * self._costs.ms(1)
        return max((n for n in range(1, LEAST_CHUNK_TOKENS) if self._costs.ms(n) <= most_ms), default=1)

    def _part(self, turn: Turn, limit: int, claim: Claim | None) -> Part:
        """Seat the turn's session, and say what its next pass needs."""
        session, begun = turn.session, 0.0 if turn.started else time.perf_counter()
        self._sessions.seat(session, claim)
        if turn.needs_row and not session.pending:
            self._sessions.trim(session, len(session.log) - 1)  # its logits are needed: feed the last again
        if begun:
            self._start(turn, begun)
        return Part(turn, turn.spans(limit))

    def _start(self, turn: Turn, begun: float) -> None:
        session = turn.session
        session.used = time.time()
        turn.started = begun
        turn.restore_s = time.perf_counter() - begun if session.restored_tokens else 0.0
        turn.cached_tokens, turn.new_tokens = session.kv, session.pending
        turn.restored_tokens, session.restored_tokens = min(session.restored_tokens, session.kv), 0

    def _run(self, batch: list[Part], begun: float, arrivals: Arrivals) -> None:
        passed = time.perf_counter()
        try:
            rows = self._forward(batch, arrivals)
        except (KVFull, OutOfMemory):
            if len(batch) == 1:
                raise
            return self._run(batch[:1], begun, arrivals)
        except (Stopped, *ENDING):
            raise
        except BaseException as error:
            if len(batch) == 1:
                raise
            return self._separate(batch, error)
        finally:
            for part in batch:
                part.turn.let_go()
        spent_s = time.perf_counter() - passed
        self._scheduler.count_pass(batch[0].turn)
        if len(batch) == 1 and 0 < batch[0].tokens == len(rows):
            self._costs.observe(len(rows), spent_s * 1e3)  # costs are those of passes that give every row
        for part in batch:
            turn, spans = part
            turn.steps += bool(spans)
            if turn.is_reading:
                self._scheduler.charge(turn, tokens_read=part.tokens)
            fed = sum(len(span.tokens) for span in spans if span.seq == turn.session.seq)
            wanted = sum(span.want for span in spans)
            self._take(turn, fed, rows[:wanted], spent_s, begun)
            rows = rows[wanted:]
        return None

    def _separate(self, batch: list[Part], error: BaseException) -> None:
        """Run each turn of a pass that failed alone from now on, on new KV: that shows whose fault it was."""
        log_fault(f"A pass of {len(batch)} turns failed; each of them is tried alone", error)
        for turn, _ in batch:
            self._apart.add(turn.id)
            self._sessions.forget_kv(turn.session)

    def _forward(self, batch: list[Part], arrivals: Arrivals) -> Logits:
        spans = [span for part in batch for span in part.spans]
        if not spans:
            return NO_ROWS
        turns = [part.turn for part in batch]
        is_long = self._costs.ms(sum(part.tokens for part in batch)) > self._info.stoppable_ms
        return self._sessions.forward(
            [turn.session for turn in turns],
            spans,
            (lambda: self._look_up(turns, arrivals())) if is_long else None,
            turns[0].claim if len(batch) == 1 else None,
        )

    def _look_up(self, running: list[Turn], frames: Sequence[ToEngine] | None) -> bool:
        """In the middle of a pass: whether to give it up. If not, whoever asks for `Stats` has them now.

        They are what the server knows a living engine by, and a pass may take seconds.
        """
        if frames is None or is_overtaken(running, frames):
            return True
        asked = sum(isinstance(frame, Stats) for frame in frames)
        for _ in range(asked - self.answered):
            self._outbox.send(self._stats())
            self.answered += 1
        return False

    def _take(self, turn: Turn, fed: int, outcome: Logits | list[int], spent_s: float, begun: float) -> None:
        """Give a turn its rows of a pass, or the tokens that it says, and send them.

        `begun`: the step. All of it that was not the runner's is the engine's own work for this turn.
        """
        session, said_before = turn.session, turn.output_tokens
        session.kv += fed
        turn.runner_s += spent_s
        if not said_before:
            turn.prefill_s += spent_s
            self.tokens_prefilled += fed
        reason, fault = "", None
        try:
            reason = turn.take_tokens(outcome) if isinstance(outcome, list) else turn.take(outcome)
        except ENDING:
            raise
        except BaseException as error:  # noqa: BLE001 - the boundary of a turn
            fault = error
        if turn.rejected:
            self._sessions.trim(session, session.kv - turn.rejected)
        if fault:
            if isinstance(turn, GenerateTurn) and turn.fresh:
                self._outbox.send(Tokens(turn.id, turn.fresh, turn.chances[: len(turn.fresh)]))
            return self._fail(turn, fault)
        said = turn.output_tokens - said_before
        self.tokens_generated += said
        self._scheduler.charge(turn, tokens_said=said)
        if said and isinstance(turn, GenerateTurn):
            goes_on = isinstance(outcome, list) and not reason  # with `decode`, which has a moment for it
            send = self._outbox.hold if goes_on else self._outbox.send
            send(Tokens(turn.id, turn.fresh, turn.chances))
        turn.busy_s += time.perf_counter() - begun
        if reason:
            self.finish(turn, reason)
        return None

    def finish(self, turn: Turn, reason: str) -> None:
        scores = turn.scores if reason == "scored" else []
        self.end(turn, Finished(turn.id, reason, turn.waterfall(), scores))

    def _fail(self, turn: Turn, error: BaseException) -> None:
        """End one turn by what went wrong in it. Raise if it is the runner that is broken."""
        if not isinstance(error, VivaceError):
            self._sessions.forget_kv(turn.session)
            self._sessions.check_runner(error)
        self.end(turn, failure(turn.id, error))

    def end(self, turn: Turn, frame: Finished | Failed) -> None:
        """The one end of every turn: nothing of it runs any more when its last frame goes out."""
        self._scheduler.remove(turn)
        self._apart.discard(turn.id)
        turn.session.claim, turn.session.used = None, time.time()
        self._outbox.send(frame)


def _chunk_tokens(costs: StepCosts, best: int, info: ModelInfo) -> int:
    """The largest prefill chunk that keeps to CHUNK_MS; a runner that can be stopped may take its best."""
    sizes = [size for size in CHUNKS if size <= info.pass_tokens]
    chunk = max(size for size in sizes if size == 1 or costs.ms(size) <= CHUNK_MS)
    if not info.can_stop:
        return chunk
    best = max((size for size in sizes if size <= best and costs.ms(size) <= LONGEST_CHUNK_MS), default=1)
    return max(chunk, best, LEAST_CHUNK_TOKENS)
