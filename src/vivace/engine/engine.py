"""The engine: frames in, one step at a time, frames out.

`Engine.step` is the whole story: take the turn whose turn it is, feed the runner what its log still lacks,
and when nothing is lacking, choose the next token. Prefill and decode are the same step: a chunk of many
pending tokens, or of one. Owns turns and their waterfalls. Does not own KV (`session`) or sockets (`worker`).
"""

import time
from collections import deque
from collections.abc import Callable

from vivace.engine.frames import (
    Append,
    Close,
    Failed,
    Finished,
    Fork,
    FromEngine,
    Generate,
    Interrupt,
    Open,
    Rewind,
    Score,
    Stats,
    StatsReply,
    ToEngine,
    Tokens,
    Waterfall,
)
from vivace.engine.runners.base import KVFull, Logits, Runner, Span
from vivace.engine.sampler import log_probability, sample
from vivace.engine.session import Session, Sessions
from vivace.errors import ContextOverflow, UsageError, VivaceError

CHUNK_TOKENS = (
    64  # a prefill step: nearly as fast a token as 512 on CPUs (bench/threads.py), and soon interrupted
)
SCORE_TOKENS = 256  # candidate tokens in one pass

Send = Callable[[FromEngine], None]
Work = Append | Generate | Score


class Turn:
    """One piece of work on one session, from its frame to its `Finished`."""

    def __init__(self, work: Work, session: Session) -> None:
        self.work = work
        self.session = session
        self.received = time.perf_counter()
        self.started = self.first_token = self.last_token = 0.0
        self.prefill_s = self.runner_s = self.busy_s = 0.0
        self.step_began = 0.0
        self.is_oldest = False
        self.cached_tokens = self.new_tokens = self.output_tokens = self.steps = 0
        self.tail = b""  # the end of the output, to find stop strings that cross tokens

    def waterfall(self) -> Waterfall:
        now = time.perf_counter()
        first = self.first_token or now
        busy_s = self.busy_s + (now - self.step_began if self.step_began else 0.0)
        return Waterfall(
            queue_ms=((self.started or first) - self.received) * 1e3,
            prefill_ms=self.prefill_s * 1e3,
            first_token_ms=(first - self.received) * 1e3,
            decode_ms=(self.last_token - self.first_token) * 1e3,
            overhead_ms=(busy_s - self.runner_s) * 1e3,
            cached_tokens=self.cached_tokens,
            new_tokens=self.new_tokens,
            output_tokens=self.output_tokens,
            steps=self.steps,
        )


class Engine:
    def __init__(self, runner: Runner, send: Send) -> None:
        self._runner = runner
        self._facts = runner.facts
        self._send = send
        self._sessions = Sessions(runner)
        self._turns: deque[Turn] = deque()
        self._started = time.monotonic()
        self._tokens_prefilled = self._tokens_generated = 0

    @property
    def is_idle(self) -> bool:
        return not self._turns

    def handle(self, frame: ToEngine) -> None:
        """Take one frame. Work is queued for `step`; everything else happens now."""
        try:
            self._dispatch(frame)
        except VivaceError as error:
            self._send(Failed(getattr(frame, "turn", ""), error.code, error.message))

    def _dispatch(self, frame: ToEngine) -> None:
        match frame:
            case Append() | Generate() | Score():
                self._begin(frame)
            case Interrupt(turn=turn):
                for running in [t for t in self._turns if t.work.turn == turn]:
                    self._finish(running, "interrupted")  # we are between steps: it need not wait for its own
            case Open(session=session, tokens=tokens):
                self._sessions.open(session, tokens)
            case Rewind(session=session, length=length):
                self._sessions.rewind(session, length)
            case Fork(session=session, source=source, length=length):
                self._sessions.fork(session, source, length)
            case Close(session=session):
                self._close(session)
            case Stats():
                self._send(self._stats())

    def _begin(self, work: Work) -> None:
        session = self._sessions.get(work.session)
        if session.is_running:
            raise UsageError(f"Session {work.session} has a turn already; fork it, or wait.")
        room = min(self._facts.context_tokens, self._facts.trained_tokens)
        if (needed := len(session.log) + len(work.tokens) + 1) > room:
            raise ContextOverflow(f"{needed} tokens are needed, and the context holds {room}.")
        session.log += work.tokens
        session.is_running = True
        self._turns.append(Turn(work, session))

    def _close(self, name: str) -> None:
        """Close a session; a turn that still runs on it ends first, as interrupted."""
        session = self._sessions.get(name)
        for turn in [t for t in self._turns if t.session is session]:
            self._finish(turn, "interrupted")
        self._sessions.close(name)

    def step(self) -> None:
        """One step of one turn: between any two of them a frame may change who runs next."""
        turn = self._turns[0]
        self._turns.rotate(-1)
        turn.step_began = time.perf_counter()
        turn.is_oldest = turn is min(self._turns, key=lambda each: each.received)
        try:
            self._advance(turn)
        except KVFull:  # any but the oldest turn waits for room
            if turn.is_oldest:
                self._fail(turn, ContextOverflow("The KV of this engine is too small for this turn."))
        turn.busy_s += time.perf_counter() - turn.step_began
        turn.step_began = 0.0

    def _advance(self, turn: Turn) -> None:
        if not turn.started:
            self._start(turn)
        session = turn.session
        if session.pending > CHUNK_TOKENS or (session.pending and isinstance(turn.work, Append)):
            self._feed(turn, want=0)
        elif isinstance(turn.work, Append):
            self._finish(turn, "appended")
        else:
            self._speak(turn, self._feed(turn, want=1))

    def _start(self, turn: Turn) -> None:
        session = turn.session
        self._sessions.seat(session, evict_running=turn.is_oldest)
        turn.started = time.perf_counter()
        if not isinstance(turn.work, Append) and not session.pending and session.log:
            self._sessions.trim(session, len(session.log) - 1)  # its logits are needed: feed the last again
        turn.cached_tokens, turn.new_tokens = session.kv, session.pending

    def _feed(self, turn: Turn, *, want: int) -> Logits:
        """Put the next chunk of the log into the KV."""
        session = turn.session
        self._sessions.seat(session, evict_running=turn.is_oldest)
        chunk = session.log[session.kv : session.kv + CHUNK_TOKENS]
        before = time.perf_counter()
        logits = self._sessions.forward(
            session, [Span(session.seq, session.kv, chunk, want)], evict_running=turn.is_oldest
        )
        spent = time.perf_counter() - before
        session.kv += len(chunk)
        turn.runner_s += spent
        turn.steps += 1
        if not turn.output_tokens:
            turn.prefill_s += spent
            self._tokens_prefilled += len(chunk)
        return logits

    def _speak(self, turn: Turn, logits: Logits) -> None:
        if isinstance(turn.work, Score):
            scores = self._score(turn, turn.work.candidates, logits[0])
            return self._finish(turn, "scored", scores)
        work, session = turn.work, turn.session
        assert isinstance(work, Generate)
        token = sample(
            logits[0],
            temperature=work.temperature,
            top_p=work.top_p,
            seed=work.seed,
            position=len(session.log),
        )
        session.log.append(token)
        turn.output_tokens += 1
        self._tokens_generated += 1
        turn.last_token = time.perf_counter()
        turn.first_token = turn.first_token or turn.last_token
        self._send(Tokens(work.turn, [token]))
        if reason := self._reason_to_stop(turn, work, token):
            self._finish(turn, reason)
        return None

    def _reason_to_stop(self, turn: Turn, work: Generate, token: int) -> str:
        if token in self._facts.end_tokens or token in work.stop_tokens:
            return "stop"
        if work.stop:
            longest = max(len(stop.encode()) for stop in work.stop)
            turn.tail += self._runner.piece(token)
            if any(stop.encode() in turn.tail for stop in work.stop):
                return "stop"
            turn.tail = turn.tail[-longest:]
        room = min(self._facts.context_tokens, self._facts.trained_tokens)
        if turn.output_tokens >= work.max_tokens or len(turn.session.log) >= room:
            return "length"
        return ""

    def _score(self, turn: Turn, candidates: list[list[int]], row: Logits) -> list[float]:
        """Log-probability of each candidate after the log; their KV lives in scratch sequences only."""
        scores = [log_probability(row, c[0]) if c else 0.0 for c in candidates]
        waiting = [i for i, c in enumerate(candidates) if len(c) > 1]
        while waiting:
            group: list[int] = []
            size = 0
            while waiting and len(group) < len(self._sessions.scratch):
                size += len(candidates[waiting[0]])
                if group and size > SCORE_TOKENS:
                    break
                group.append(waiting.pop(0))
            self._score_group(turn, candidates, group, scores)
        return scores

    def _score_group(
        self, turn: Turn, candidates: list[list[int]], group: list[int], scores: list[float]
    ) -> None:
        session, spans = turn.session, []
        for seq, index in zip(self._sessions.scratch, group, strict=False):
            tokens = candidates[index][:-1]
            self._runner.share(session.seq, seq, session.kv)
            spans.append(Span(seq, session.kv, tokens, want=len(tokens)))
        before = time.perf_counter()
        try:
            rows = iter(self._sessions.forward(session, spans, evict_running=turn.is_oldest))
            turn.runner_s += time.perf_counter() - before
            for index in group:
                scores[index] += sum(log_probability(next(rows), token) for token in candidates[index][1:])
        except KVFull:
            self._sessions.trim(session, session.kv - 1)  # the next try begins with the log's last token
            raise
        finally:
            for span in spans:
                self._runner.trim(span.seq, 0)

    def _finish(self, turn: Turn, reason: str, scores: list[float] | None = None) -> None:
        self._remove(turn)
        self._send(Finished(turn.work.turn, reason, turn.waterfall(), scores or []))

    def _remove(self, turn: Turn) -> None:
        self._turns.remove(turn)
        turn.session.is_running = False

    def _fail(self, turn: Turn, error: VivaceError) -> None:
        self._remove(turn)
        self._send(Failed(turn.work.turn, error.code, error.message))

    def _stats(self) -> StatsReply:
        return StatsReply(
            sessions=len(self._sessions),
            turns=len(self._turns),
            kv_tokens=self._sessions.kv_tokens(),
            kv_cells=self._facts.context_tokens,
            tokens_prefilled=self._tokens_prefilled,
            tokens_generated=self._tokens_generated,
            uptime_s=time.monotonic() - self._started,
        )
