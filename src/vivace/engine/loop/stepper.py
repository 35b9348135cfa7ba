"""Run one pass at a time: batch turns, call the runner, apply the results to each turn.

A pass computes the part of a log that is not in the KV, and a draft of what may follow: prefill, decode and
verification are the same. Owns a turn's steps up to its end. Does not own frames (`engine`), who runs next
(`scheduler`), what a pass means to a turn (`turn`) or KV (`session`).
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from vivace.engine.faults import ENDING, failure, log_fault
from vivace.engine.kv.session import Claim
from vivace.engine.kv.sessions import Sessions
from vivace.engine.loop.chunks import chunk_tokens, chunk_tokens_beside, contended_tokens
from vivace.engine.loop.frame_sender import FrameSender
from vivace.engine.loop.rows import RowDecoding, SharedPass
from vivace.engine.loop.scheduler import Scheduler, is_overtaken
from vivace.engine.runners.base import (
    BatchDecodingRunner,
    DecodingRunner,
    KVFull,
    Logits,
    OutOfMemory,
    Runner,
    SamplingSpec,
    Span,
    Stopped,
)
from vivace.engine.speculation.costs import StepCosts
from vivace.engine.turns.generate import GenerateTurn
from vivace.engine.turns.turn import Turn
from vivace.engine.wire.frames import Failed, Finished, Reading, Stats, StatsReply, ToEngine, Tokens
from vivace.errors import ContextOverflow, VivaceError

READING_EVERY_S = 0.5  # a prompt that is read sooner needs no word
NO_ROWS: Logits = np.empty((0, 0), np.float32)
Arrivals = Callable[[], Sequence[ToEngine] | None]  # frames that wait; None if nobody listens any more


class StillLoading(Exception):
    """A turn's KV is on its way from host memory: others run meanwhile."""


class PassEntry(NamedTuple):
    """One turn's share of a pass."""

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
        frame_sender: FrameSender,
        costs: StepCosts,
        best_chunk_tokens: int,
        stats: Callable[[], StatsReply],
        row_costs: StepCosts | None,
    ) -> None:
        self._decoder = runner if isinstance(runner, DecodingRunner) else None
        self._rows = (
            RowDecoding(runner, sessions, scheduler, frame_sender, costs, row_costs)
            if isinstance(runner, BatchDecodingRunner)
            else None
        )
        self._info = runner.info
        self._sessions = sessions
        self._scheduler = scheduler
        self._sender = frame_sender
        self._costs = costs
        self._stats = stats
        self._best_chunk_tokens = best_chunk_tokens
        self.plan_chunks()
        self.tokens_prefilled = self.tokens_generated = 0
        self._isolated: set[str] = set()  # turns of a pass that failed: each runs in passes of its own
        self._observed: tuple[int, float] | None = None  # tokens and milliseconds of the last pass by itself
        self.stats_answered = 0  # how many of the `Stats` that wait were answered inside of a pass

    def plan_chunks(self) -> None:
        """Choose how long prefill chunks are, by what passes cost now."""
        self._chunk_tokens = chunk_tokens(self._costs, self._best_chunk_tokens, self._info)
        self._chunk_beside = min(self._chunk_tokens, chunk_tokens_beside(self._costs, self._info))

    def step(self, begun: float, arrivals: Arrivals) -> bool:
        """Run one pass. Return whether there was a turn that need not wait."""
        order = self._scheduler.order()
        if any(turn.is_waiting for turn in order):
            order = self._resolve_grammars(order)
        order = self._without_loading(order)
        for place, lead in enumerate(order):
            try:
                if self._rows and (shared := self._shared_pass(lead, order[place + 1 :], self._rows)):
                    self._decode_rows(shared, self._rows, begun)
                elif self._decoder and (sampling := lead.device_sampling):
                    self._decode_on_device(lead, self._decoder, sampling, begun)
                else:
                    self._sender.flush()
                    self._run(self._batch(lead, order[place + 1 :]), begun, arrivals)
            except Stopped:
                break
            except StillLoading:
                continue
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

    def _without_loading(self, order: list[Turn]) -> list[Turn]:
        """Return the turns whose KV is there. If that of all of them is on its way, wait for the first."""
        loading = [turn for turn in order if self._sessions.is_loading(turn.session)]
        if not loading:
            return order
        if len(loading) == len(order):
            self._sessions.finish_loading(loading.pop(0).session)
        return [turn for turn in order if turn not in loading]

    def _resolve_grammars(self, order: list[Turn]) -> list[Turn]:
        """Settle compiled grammars, end turns whose grammar is refused, and return who need not wait."""
        for turn in order:
            if isinstance(turn, GenerateTurn) and turn.is_waiting:
                try:
                    turn.resolve_grammar()
                except ENDING:
                    raise
                except BaseException as error:  # noqa: BLE001 - the boundary of a turn
                    self._fail(turn, error)
                    self._sessions.rewind(turn.session.name, turn.committed_before)
        return [turn for turn in self._scheduler.order() if not turn.is_waiting]

    def _decode_on_device(
        self, turn: Turn, runner: DecodingRunner, sampling: SamplingSpec, begun: float
    ) -> None:
        """Run a pass of a turn whose next tokens the runner can choose itself."""
        session = turn.session
        self._sessions.assign_sequence(session, turn.claim)
        (span,) = turn.spans(self._limit(turn))
        steps_ahead = min(turn.steps_ahead, self._scheduler.passes_in_a_row(turn) - 1)
        passed = time.perf_counter()

        def while_running() -> None:
            self._finish_last_pass()
            turn.look_ahead()

        try:
            said = self._sessions.with_room(
                [session], lambda: runner.decode(span, sampling, steps_ahead, while_running), turn.claim
            )
        finally:
            self._finish_last_pass()  # whatever became of this pass: the tokens before it were said
        spent_s = time.perf_counter() - passed
        if not steps_ahead:
            self._observed = (len(span.tokens), spent_s * 1e3)
        self._scheduler.count_pass(turn)
        turn.steps += 1
        self._apply(turn, len(span.tokens), said, spent_s, begun)

    def _finish_last_pass(self) -> None:
        """Do what of the last pass the device need not wait for: send its tokens, learn what it cost."""
        self._sender.flush()
        if self._observed:
            tokens, ms = self._observed
            self._observed = None
            self._costs.observe(tokens, ms)

    def _shared_pass(self, lead: Turn, others: list[Turn], rows: RowDecoding) -> SharedPass | None:
        if not others or self._needs_own_pass(lead):
            return None
        return rows.choose(lead, [turn for turn in others if not self._needs_own_pass(turn)])

    def _decode_rows(self, shared: SharedPass, rows: RowDecoding, begun: float) -> None:
        """Run one pass over the next tokens of each turn. Where there is no room for all, leave some out."""
        try:
            outcomes, spent_s = rows.run(shared)
        except (KVFull, OutOfMemory):
            if len(shared.turns) == 1:
                raise
            return self._decode_rows(shared.smaller(), rows, begun)
        except ENDING:
            raise
        except BaseException as error:  # noqa: BLE001 - the boundary of a pass: whose fault it was is not known
            return self._isolate([PassEntry(turn, []) for turn in shared.turns], error)
        for turn, fed, said in outcomes:
            turn.steps += 1
            self._apply(turn, fed, said, spent_s, begun)
        return None

    def _batch(self, lead: Turn, others: list[Turn]) -> list[PassEntry]:
        """Return the lead's share of the next pass, and those of its tier that are done sooner with it."""
        limit = self._limit(lead)
        batch = [self._entry(lead, limit, lead.claim)]
        if not self._info.shares_passes or self._needs_own_pass(lead) or self._scheduler.is_contended(lead):
            return batch
        total = batch[0].tokens
        for turn in others:
            room = min(limit, self._info.pass_tokens - total)
            if turn.is_realtime != lead.is_realtime or self._needs_own_pass(turn) or room < 1:
                continue
            try:
                entry = self._entry(turn, room, None)
            except (KVFull, StillLoading):
                continue
            except ENDING:
                raise
            except BaseException as error:  # noqa: BLE001 - the boundary of a turn
                self._fail(turn, error)
                continue
            if self._costs.ms(total + entry.tokens) <= self._costs.ms(total) + self._costs.ms(entry.tokens):
                batch.append(entry)
                total += entry.tokens
        return batch

    def _needs_own_pass(self, turn: Turn) -> bool:
        """Return whether the turn's next pass must not be shared with other turns."""
        return turn.needs_own_pass or turn.id in self._isolated

    def _limit(self, turn: Turn) -> int:
        """Return how many tokens the turn may have in a pass."""
        if self._scheduler.is_contended(turn):
            return contended_tokens(self._costs)
        return self._chunk_beside if self._rows and len(self._scheduler) > 1 else self._chunk_tokens

    def _entry(self, turn: Turn, limit: int, claim: Claim | None) -> PassEntry:
        """Assign a sequence to the turn's session, and return the turn's share of the next pass."""
        session, begun = turn.session, 0.0 if turn.started else time.perf_counter()
        self._sessions.assign_sequence(session, claim)
        if self._sessions.is_loading(session):
            if len(self._scheduler) > 1:
                raise StillLoading
            self._sessions.finish_loading(session)
        if turn.needs_row and not session.pending:
            self._sessions.trim(session, len(session.log) - 1)  # its logits are needed: feed the last again
        if begun:
            self._sessions.checkpoints.begin(session)
            turn.start(begun)
        return PassEntry(turn, turn.spans(limit))

    def _run(self, batch: list[PassEntry], begun: float, arrivals: Arrivals) -> None:
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
            return self._isolate(batch, error)
        finally:
            for entry in batch:
                entry.turn.end_pass()
        spent_s = time.perf_counter() - passed
        self._scheduler.count_pass(batch[0].turn)
        if len(batch) == 1 and 0 < batch[0].tokens == len(rows):
            self._costs.observe(len(rows), spent_s * 1e3)  # costs are those of passes that give every row
        for entry in batch:
            turn, spans = entry
            turn.steps += bool(spans)
            if turn.is_prefilling:
                self._scheduler.charge(turn, prompt_tokens=entry.tokens)
            fed = sum(len(span.tokens) for span in spans if span.seq == turn.session.seq)
            wanted = sum(span.want for span in spans)
            self._apply(turn, fed, rows[:wanted], spent_s, begun)
            rows = rows[wanted:]
        self._sessions.checkpoints.release()
        return None

    def _isolate(self, batch: list[PassEntry], error: BaseException) -> None:
        """Run each turn of a pass that failed alone from now on, on new KV: that shows whose fault it was."""
        log_fault(f"A pass of {len(batch)} turns failed; each of them is tried alone", error)
        for turn, _ in batch:
            self._isolated.add(turn.id)
            self._sessions.discard_kv(turn.session)

    def _forward(self, batch: list[PassEntry], arrivals: Arrivals) -> Logits | list[int]:
        """Return the rows that were wanted, or a prompt's first token where the runner samples it."""
        spans = [span for entry in batch for span in entry.spans]
        if not spans:
            return NO_ROWS
        turns = [entry.turn for entry in batch]
        sessions, claim = [turn.session for turn in turns], turns[0].claim if len(batch) == 1 else None
        is_long = self._costs.ms(sum(entry.tokens for entry in batch)) > self._info.stoppable_ms
        should_stop = (lambda: self.should_stop(turns, arrivals())) if is_long else None
        sampling = turns[0].first_sampling
        if not (self._decoder and len(batch) == 1 and spans[0].want and sampling):
            return self._sessions.forward(sessions, spans, should_stop, claim)
        decoder, (span,), first = self._decoder, spans, sampling
        return [self._sessions.with_room(sessions, lambda: decoder.prefill(span, first, should_stop), claim)]

    def should_stop(self, running: list[Turn], frames: Sequence[ToEngine] | None) -> bool:
        """Return, in the middle of a pass, whether to give it up. If not, answer the `Stats` that wait.

        The server knows a living engine by them, and a pass may take seconds.
        """
        if frames is None or is_overtaken(running, frames):
            return True
        asked = sum(isinstance(frame, Stats) for frame in frames)
        for _ in range(asked - self.stats_answered):
            self._sender.send(self._stats())
            self.stats_answered += 1
        return False

    def _apply(self, turn: Turn, fed: int, outcome: Logits | list[int], spent_s: float, begun: float) -> None:
        """Give a turn what came of its pass, rows or tokens, and send the tokens it says.

        `begun` is when the step began. What the runner did not need of it is the engine's own work.
        """
        session, said_before = turn.session, turn.output_tokens
        session.kv += fed
        if session.kv == session.kept_tokens:
            self._sessions.keep_beginning(session)
        turn.count_runner_time(spent_s)
        if not said_before:
            self.tokens_prefilled += fed
        reason, fault = "", None
        try:
            reason = turn.apply_tokens(outcome) if isinstance(outcome, list) else turn.apply_logits(outcome)
        except ENDING:
            raise
        except BaseException as error:  # noqa: BLE001 - the boundary of a turn
            fault = error
        if turn.rejected:
            self._sessions.trim(session, session.kv - turn.rejected)
        self._sessions.checkpoints.after_pass(session, fed, spent_s)
        if turn.output_tokens > said_before == 0 and session.kv == len(session.log) - turn.output_tokens:
            self._sessions.checkpoints.end_prompt(session)
        if fault:
            if isinstance(turn, GenerateTurn) and turn.new_output:
                self._sender.send(Tokens(turn.id, turn.new_output, turn.logprobs[: len(turn.new_output)]))
            return self._fail(turn, fault)
        said = turn.output_tokens - said_before
        self.tokens_generated += said
        self._scheduler.charge(turn, output_tokens=said)
        if said and isinstance(turn, GenerateTurn):
            # With `decode`, which has a moment for it. The first token goes at once.
            goes_on = isinstance(outcome, list) and said_before and not reason
            send = self._sender.hold if goes_on else self._sender.send
            cached = -1 if said_before else turn.cached_tokens
            send(Tokens(turn.id, turn.new_output, turn.logprobs, cached))
        turn.busy_s += time.perf_counter() - begun
        if reason:
            self.finish(turn, reason)
        elif turn.tells_reading and turn.is_prefilling and session.pending:
            self._tell_reading(turn)
        return None

    def _tell_reading(self, turn: Turn) -> None:
        """Tell how far the turn's prompt is read, now and then."""
        now = time.perf_counter()
        if now - max(turn.started, turn.reading_told) >= READING_EVERY_S:
            turn.reading_told = now
            read = max(0, turn.new_tokens - turn.session.pending)
            self._sender.send(Reading(turn.id, read, turn.new_tokens))

    def finish(self, turn: Turn, reason: str) -> None:
        scores = turn.scores if reason == "scored" else []
        self.end(turn, Finished(turn.id, reason, turn.waterfall(), scores))

    def _fail(self, turn: Turn, error: BaseException) -> None:
        """End one turn by what went wrong in it. Raise if it is the runner that is broken."""
        if not isinstance(error, VivaceError):
            self._sessions.discard_kv(turn.session)
            self._sessions.check_runner(error)
        self.end(turn, failure(turn.id, error))

    def end(self, turn: Turn, frame: Finished | Failed) -> None:
        """End a turn, once: nothing of it runs any more when its last frame goes out."""
        self._scheduler.remove(turn)
        self._isolated.discard(turn.id)
        turn.session.claim, turn.session.used = None, time.time()
        turn.session.reread_tokens = 0
        self._sender.send(frame)
