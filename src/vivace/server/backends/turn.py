"""One turn: what is asked, what has come back so far, how it may be ended.

Owns a turn's text, times and outcomes. Whoever answers the client iterates over it; the turn itself is
driven by `native` and lives until the engine has let go of it, whether anyone listens or not.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable

from vivace.engine.frames import Finished
from vivace.engine.frames import Waterfall as EngineWaterfall
from vivace.errors import VivaceError
from vivace.protocol.events import InputTokensDetails, OutputTokensDetails, Usage, Waterfall
from vivace.protocol.requests import ResponseCreate
from vivace.protocol.textstream import TextStream
from vivace.protocol.writer import Broken, Ended, Outcome, Text
from vivace.server.backends.token_log import Session, StoredResponse


class Turn:
    def __init__(
        self, response_id: str, request: ResponseCreate, model: str, previous: StoredResponse | None
    ) -> None:
        self.id = response_id
        self.request = request
        self.model = model
        self.previous = previous
        self.session: Session | None = None  # from when its prompt is in the log
        self.prompt_tokens = 0  # the whole log before the answer
        self.seed = secrets.randbits(62) if request.seed is None else request.seed  # kept for a replay
        self.stream = TextStream(request.stops)
        self.prediction: list[int] = []  # what the answer will resemble
        self.output_tokens = 0
        self.deaths = 0
        self.is_interrupted = False
        self.on_interrupt: Callable[[], None] | None = None
        self.received = time.perf_counter()
        self.submitted = self.first_token = 0.0
        self.tokenize_s = 0.0
        self.is_over = False
        self._outcomes: asyncio.Queue[Outcome] = asyncio.Queue()

    async def __aiter__(self) -> AsyncIterator[Outcome]:
        """Outcomes as they come; the last one is `Ended` or `Broken`."""
        while True:
            outcome = await self._outcomes.get()
            yield outcome
            if not isinstance(outcome, Text):
                return

    def interrupt(self) -> None:
        """End it as soon as can be; what it has said stays said. Any number of times, at any time."""
        if not self.is_over and not self.is_interrupted:
            self.is_interrupted = True
            if self.on_interrupt:
                self.on_interrupt()

    def hear(self, token: int, piece: bytes) -> None:
        """A token came from the engine."""
        assert self.session is not None
        self.session.hear(token)
        self.output_tokens += 1
        self.first_token = self.first_token or time.perf_counter()
        self._say(self.stream.feed(piece))

    def end(self, finished: Finished) -> None:
        """The engine is done with it."""
        self._say(self.stream.finish())
        reason = "stop" if self.stream.is_stopped else finished.reason
        scores = finished.scores if reason == "scored" else None
        self._conclude(
            Ended(reason, self._usage(finished.waterfall), self._times(finished.waterfall), scores)
        )

    def end_early(self, reason: str) -> None:
        """It is over without a word from the engine: never begun, or all was said when the engine died."""
        self.end(Finished(self.id, reason, EngineWaterfall()))

    def fail(self, error: VivaceError) -> None:
        self._conclude(Broken(error.code, f"{error.message} {error.hint}".rstrip()))

    def _say(self, text: str) -> None:
        if text:
            self._outcomes.put_nowait(Text(text))

    def _conclude(self, outcome: Ended | Broken) -> None:
        assert not self.is_over, "a turn ends exactly once"
        self.is_over = True
        if self.session:
            self.session.is_busy = False
        self._outcomes.put_nowait(outcome)

    def _usage(self, engine: EngineWaterfall) -> Usage:
        cached = InputTokensDetails(min(engine.cached_tokens, self.prompt_tokens))
        total = self.prompt_tokens + self.output_tokens
        drafts = OutputTokensDetails(
            accepted_prediction_tokens=engine.draft_accepted, rejected_prediction_tokens=engine.draft_rejected
        )
        return Usage(self.prompt_tokens, self.output_tokens, total, cached, drafts)

    def _times(self, engine: EngineWaterfall) -> Waterfall:
        now = time.perf_counter()
        waited_s = max(0.0, (self.submitted or now) - self.received - self.tokenize_s)
        in_engine_ms = engine.first_token_ms + engine.decode_ms
        total_ms = (now - self.received) * 1e3
        return Waterfall(
            total_ms=total_ms,
            queue_ms=waited_s * 1e3 + engine.queue_ms,
            tokenize_ms=self.tokenize_s * 1e3,
            first_token_ms=(self.first_token - self.received) * 1e3 if self.first_token else 0.0,
            server_ms=max(0.0, total_ms - waited_s * 1e3 - self.tokenize_s * 1e3 - in_engine_ms),
            restore_ms=engine.restore_ms,
            prefill_ms=engine.prefill_ms,
            decode_ms=engine.decode_ms,
            draft_ms=engine.draft_ms,
            grammar_ms=engine.grammar_ms,
            overhead_ms=engine.overhead_ms,
            cached_tokens=engine.cached_tokens,
            restored_tokens=engine.restored_tokens,
            new_tokens=engine.new_tokens,
            output_tokens=self.output_tokens,
            steps=engine.steps,
            draft_accepted=engine.draft_accepted,
            draft_rejected=engine.draft_rejected,
            restarts=self.deaths,
        )
