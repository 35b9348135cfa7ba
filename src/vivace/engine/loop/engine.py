"""The engine: frames in, one pass at a time, frames out.

Owns turns from their frame on, and the order: frames are handled between two passes. Does not own the passes
(`stepper`), who runs next (`scheduler`), what a pass means to a turn (`turn`), KV (`session`) or
sockets (`worker`).
"""

import time

from vivace.engine.faults import ENDING, failure
from vivace.engine.kv.parked_cache import ParkedCache
from vivace.engine.kv.session import Session
from vivace.engine.kv.sessions import Sessions
from vivace.engine.loop.admission import check_tokens, check_work
from vivace.engine.loop.frame_sender import FrameSender, Send
from vivace.engine.loop.scheduler import Scheduler
from vivace.engine.loop.stepper import Arrivals, Stepper
from vivace.engine.loop.warmup import measure_next
from vivace.engine.output.compiler import Compiler
from vivace.engine.output.grammar import Grammars
from vivace.engine.runners.base import Runner
from vivace.engine.speculation.costs import StepCosts
from vivace.engine.turns.append import AppendTurn
from vivace.engine.turns.generate import GenerateTurn
from vivace.engine.turns.score import ScoreTurn
from vivace.engine.turns.turn import Turn
from vivace.engine.wire.frames import (
    Append,
    Close,
    Fork,
    Generate,
    Interrupt,
    Open,
    Park,
    Rewind,
    Score,
    Stats,
    StatsReply,
    ToEngine,
)
from vivace.engine.wire.job import PARK_S
from vivace.errors import UsageError, VivaceError

IDLE_AFTER_S = 2.0  # without a turn, until the engine prepares what later ones may need
PAUSE_S = 0.001  # between two steps of idle work

Work = Append | Generate | Score


class Engine:
    def __init__(
        self,
        runner: Runner,
        send: Send,
        costs: StepCosts,
        parked_cache: ParkedCache | None = None,
        best_chunk_tokens: int = 0,  # that prefill likes best, if that was measured
        row_costs: StepCosts | None = None,  # of passes that several turns share, if that was measured
    ) -> None:
        self._runner = runner
        self._info = runner.info
        self._sender = FrameSender(send)
        self._costs = costs
        self._parked_cache = parked_cache
        self._sessions = Sessions(runner, parked_cache)
        self._scheduler = Scheduler()
        self._compiler = Compiler(Grammars(runner))
        self._stepper = Stepper(
            runner,
            self._sessions,
            self._scheduler,
            self._sender,
            costs,
            best_chunk_tokens,
            self._stats,
            row_costs,
        )
        self._started = self._worked_at = time.perf_counter()
        self._sessions.preload()

    @property
    def is_idle(self) -> bool:
        return not len(self._scheduler)

    def idle_work(self, arrivals: Arrivals = tuple) -> float | None:
        """Do idle-time work. Return seconds until the next call, or None when nothing is left to do.

        It begins some time after the last turn: whoever woke the engine is often about to ask. Frames that
        arrive end it.
        """
        left_s = self._worked_at + IDLE_AFTER_S - time.perf_counter()
        if left_s > 0:
            return left_s
        return PAUSE_S if self._compiler.prepare() or self._measure_pass(arrivals) else None

    def _measure_pass(self, arrivals: Arrivals) -> bool:
        """Measure a size of pass whose cost is only estimated. Return whether there was one."""

        def should_stop() -> bool:
            return self._stepper.should_stop([], arrivals())

        try:
            was_left = measure_next(self._runner, self._costs, self._sessions.scratch[0], should_stop)
        except ENDING:
            raise
        except BaseException as error:  # noqa: BLE001 - nobody asked for it: whether passes still work is checked
            self._sessions.check_runner(error)
            return False
        if was_left:
            self._stepper.plan_chunks()
        return was_left

    def close(self) -> None:
        """Park all sessions, as far as there is time for it, and end what runs beside the loop."""
        self._sessions.park_all(PARK_S)
        self._compiler.close()
        if self._parked_cache:
            self._parked_cache.close()

    # ---- frames --------------------------------------------------------------------------------------

    def handle(self, frame: ToEngine) -> None:
        """Handle one frame. Work is queued for `step`; everything else happens now."""
        try:
            self._dispatch(frame)
        except ENDING:
            raise
        except BaseException as error:  # noqa: BLE001 - the boundary of a frame: it answers
            self._answer_fault(frame, error)

    def _answer_fault(self, frame: ToEngine, error: BaseException) -> None:
        """Answer a frame that was refused or met a fault. A session that met a fault is not used again."""
        turn = ""
        match frame:
            case Append() | Generate() | Score():
                turn = frame.turn  # the session's log is as it was before it
            case Open() | Rewind() | Fork() | Park() | Close():
                if not isinstance(error, VivaceError):
                    self._sessions.drop(frame.session)
            case _:
                raise error
        if not isinstance(error, VivaceError):
            self._sessions.check_runner(error)
        self._sender.send(failure(turn, error))

    def _dispatch(self, frame: ToEngine) -> None:
        match frame:
            case Append() | Generate() | Score():
                self._begin(frame)
            case Interrupt(turn=turn):
                for running in self._scheduler:
                    if running.id == turn:
                        self._stepper.finish(running, "interrupted")  # between passes: it need not wait
            case Open(session=session, tokens=tokens, tenant=tenant):
                check_tokens(tokens, self._info)
                self._sessions.open(session, tokens, tenant)
            case Rewind(session=session, length=length):
                self._sessions.check_rewind(session, length)
                self._interrupt_session(session)
                self._sessions.rewind(session, length)
            case Fork(session=session, source=source, length=length):
                self._sessions.fork(session, source, length)
            case Park(session=session):
                self._sessions.park(session)
            case Close(session=session):
                self._interrupt_session(session)
                self._sessions.close(session)
            case Stats() if self._stepper.stats_answered:
                self._stepper.stats_answered -= 1
            case Stats():
                self._sender.send(self._stats())

    def _begin(self, work: Work) -> None:
        session = self._sessions.get(work.session)
        running = self._running_on(session)
        if running and not (isinstance(running, AppendTurn) and running.is_provisional):
            raise UsageError(f"Session {session.name} has a turn already; fork it, or wait.")
        if any(turn.id == work.turn for turn in self._scheduler):
            raise UsageError(f"There is a turn {work.turn} already.")
        check_work(work, session.committed_length, self._info)
        if running:
            self._stepper.finish(running, "replaced")  # text still being typed makes way for what comes next
        is_provisional = isinstance(work, Append) and work.is_provisional
        committed_length = session.committed_length
        try:
            self._sessions.extend(session, work.tokens, is_provisional=is_provisional)
            turn = self._make_turn(work, session)
        except BaseException:
            self._sessions.rewind(session.name, committed_length)
            raise
        turn.committed_before = committed_length
        session.kept_tokens = 0 if isinstance(work, Score) else work.kept_tokens
        session.claim = turn.claim
        self._scheduler.add(turn)

    def _running_on(self, session: Session) -> Turn | None:
        return next((turn for turn in self._scheduler if turn.session is session), None)

    def _make_turn(self, work: Work, session: Session) -> Turn:
        runner = self._runner
        match work:
            case Append():
                return AppendTurn(work, session)
            case Generate():
                return GenerateTurn(
                    work,
                    session,
                    info=self._info,
                    piece=runner.token_bytes,
                    costs=self._costs,
                    constraint=self._compiler.compile(work.grammar) if work.grammar else None,
                )
            case Score():
                return ScoreTurn(
                    work,
                    session,
                    scratch=self._sessions.scratch,
                    share=runner.share,
                    clear=lambda seq: runner.trim(seq, 0),
                )

    def _interrupt_session(self, name: str) -> None:
        """Interrupt the turn that runs on a session, before the session is cut or closed."""
        if turn := self._running_on(self._sessions.get(name)):
            self._stepper.finish(turn, "interrupted")

    # ---- passes --------------------------------------------------------------------------------------

    def step(self, arrivals: Arrivals = tuple) -> None:
        """Run one pass. Between two passes, and inside a long one, a frame may change who runs next."""
        begun = self._worked_at = time.perf_counter()
        if not self._stepper.step(begun, arrivals):
            self._compiler.wait()

    def _stats(self) -> StatsReply:
        return StatsReply(
            sessions=len(self._sessions),
            turns=len(self._scheduler),
            kv_tokens=self._sessions.kv_tokens(),
            kv_cells=self._info.context_tokens,
            parked_bytes=self._parked_cache.disk_bytes if self._parked_cache else 0,
            parked_memory_bytes=self._sessions.host_bytes,
            tokens_prefilled=self._stepper.tokens_prefilled,
            tokens_generated=self._stepper.tokens_generated,
            uptime_s=time.perf_counter() - self._started,
        )
