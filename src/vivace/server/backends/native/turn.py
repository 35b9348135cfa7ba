"""One turn on our own engine: what is asked, what has come back so far, how it may be ended.

Owns a turn's output, times and outcomes. Whoever answers the client iterates over it; the turn itself is
driven by `backend` and lives until the engine has let go of it, whether anyone listens or not.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any

import msgspec

from vivace.engine.wire.frames import Finished, PositionLogprobs, Reading
from vivace.engine.wire.frames import Waterfall as EngineWaterfall
from vivace.errors import VivaceError
from vivace.protocol.shapes.events import (
    InputTokensDetails,
    OutputTokensDetails,
    Usage,
    WaitProgress,
    Waterfall,
)
from vivace.protocol.shapes.outcomes import (
    Broken,
    CallDone,
    CallInvalid,
    Ended,
    ModelProgress,
    Outcome,
    Queued,
    ReasoningDelta,
    Started,
    TextDelta,
)
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.server.backends.base import NO_HOOKS, Taker, TurnHooks
from vivace.server.backends.native.outbox import Outbox
from vivace.server.backends.native.output_decoder import OutputDecoder
from vivace.server.backends.native.turn_prompt import TurnPrompt
from vivace.server.caller import Caller
from vivace.server.conversation.token_log import LogContents, Session, StoredResponse


class NativeTurn:
    place: Queued | None = None

    def __init__(
        self,
        response_id: str,
        request: ResponseCreate,
        model: str,
        caller: Caller,
        previous: StoredResponse | None,
        hooks: TurnHooks = NO_HOOKS,
    ) -> None:
        self.id = response_id
        self.request = request
        self.model = model
        self.caller = caller
        self.previous = previous
        self.session: Session | None = None  # from when it is known which log its prompt goes to
        self.prompt: TurnPrompt | None = None  # from when it is in the log
        self._decoder: OutputDecoder | None = None  # the prompt's: every token needs it
        self.stored_response: StoredResponse | None = None  # from when the turn is over
        self.follows = False  # its log begins with that of `previous`
        self._thinking_tokens = request.thinking_tokens  # the most; None: no limit
        self.is_answering_now = False  # its thinking is to end before the engine goes on
        self._before_answer: EngineWaterfall | None = None  # of the part that was ended so
        self.whole_length = 0  # of the log, up to the last item that is whole
        self._item: type[Outcome] | None = None  # what is being said
        self._said_length = 0  # of the log, when the last of it came
        self.seed = secrets.randbits(62) if request.seed is None else request.seed  # kept for a replay
        self.output_tokens = 0
        self.cached_tokens: int | None = None  # of the prompt, once the engine knows
        self.deaths = 0
        self.is_discarding = False
        self.interrupted = ""  # why, if it was
        self.watch = hooks.watch
        self._on_over = hooks.on_over
        self._taker: Taker | None = None
        self._task: asyncio.Task[None] | None = None
        self._stop: Callable[[], object] | None = None  # makes whoever works on it stop
        self._pause: Callable[[], object] | None = None  # makes the engine stop, for the turn to go on there
        self._progress: WaitProgress | None = None  # what was told last that it waits for
        self.received = time.perf_counter()
        self.submitted = self.first_token = 0.0
        self.is_over = False
        self._outbox = Outbox()

    def outcomes(self, taker: Taker | None = None) -> AsyncIterator[Outcome]:
        self._taker = taker
        return aiter(self._outbox)

    def run(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Drive the turn by this work. An interrupt cancels it while no engine knows the turn."""
        self._task = asyncio.create_task(work)
        self._stop = self._task.cancel
        return self._task

    def enter_engine(self, stop: Callable[[], None], pause: Callable[[], None]) -> None:
        """Note that an engine works on the turn. `stop` is what an interrupt calls from now on.

        `pause` is what is called when the turn is to go on with other tokens than the engine's.
        """
        self._end_wait()
        self._pause = pause
        self.submitted = self.submitted or time.perf_counter()
        if self.watch:
            self.watch.started()
        self._stop = stop

    def leave_engine(self) -> None:
        """Note that no engine works on the turn any more."""
        self._pause = None
        self._stop = self._task.cancel if self._task else None

    def tell_loading(self, progress: WaitProgress) -> None:
        """Put out how far its model is loaded, while no engine works on the turn."""
        if self._pause is None and not self.is_over and progress != self._progress:
            self._progress = progress
            self._outbox.put(ModelProgress(progress))

    def tell_reading(self, news: Reading) -> None:
        """Put out how far its prompt is read, unless it has said something: then that is read once more."""
        if not self.first_token:
            if self.prompt:
                self.cached_tokens = max(0, self.prompt.tokens - news.total_tokens)
            self._progress = WaitProgress("reading", self.model, news.read_tokens, news.total_tokens)
            self._outbox.put(ModelProgress(self._progress))

    def _end_wait(self) -> None:
        if self._progress:
            self._progress = None
            self._outbox.put(Started())

    def work_in(self, session: Session, *, follows: bool) -> None:
        """Work in this session until the turn is over. `follows`: its log begins with that of `previous`."""
        if self.session is not None:
            self.session.release(self)
        self.session, self.follows, self.whole_length = session, follows, len(session.log)
        if self.request.is_provisional:
            session.provisional_turn = self
        else:
            session.writer = self

    def take_prompt(self, prompt: TurnPrompt, whole_length: int) -> None:
        """Go on with this prompt, which is in the log now. `whole_length`: of the log without an answer."""
        self.prompt, self._decoder, self.whole_length = prompt, prompt.decoder, whole_length

    @property
    def log_contents(self) -> LogContents:
        """Return what the log has after this turn."""
        if self.prompt is not None:
            return self.prompt.log_contents
        return self.previous.log_contents if self.previous and self.follows else LogContents()

    def interrupt(self, reason: str = "interrupted", *, is_discarding: bool = False) -> None:
        """End the turn as soon as possible; its output so far stays. Can be called at any time."""
        if not self.is_over and not self.interrupted:
            self.interrupted, self.is_discarding = reason, is_discarding
            if self.watch:
                self.watch.aborting(reason)
            if self._stop:
                self._stop()

    def answer_now(self) -> None:
        """End the thinking as soon as possible, and go on with the answer. Can be called at any time."""
        if self.is_over or self.interrupted or self.is_answering_now or not self._may_think():
            return
        self.is_answering_now = True
        if self._pause:
            self._pause()

    @property
    def is_stopped(self) -> bool:
        """Return whether the answer has come to a stop string."""
        return self._decoder is not None and self._decoder.is_stopped

    def _may_think(self) -> bool:
        """Return whether there is a thinking to end, or that is not known before the prompt is written."""
        if self.prompt is None or self.session is None:
            return True
        return bool(self.prompt.end_of_thinking(self.session.log))

    @property
    def goes_on(self) -> bool:
        """Return whether an engine that was interrupted is to go on with the answer."""
        return self.is_answering_now and not self.interrupted

    def pass_thinking(self, finished: Finished | None = None) -> None:
        """Write the end of the thinking into the log, if that was asked for. `finished`: the part before."""
        if finished:
            self._before_answer = finished.waterfall
        decoder = self._decoder
        if not self.is_answering_now or self.session is None or self.prompt is None or decoder is None:
            return
        self.is_answering_now = False
        tokens = self.prompt.end_of_thinking(self.session.log)
        self.session.log.extend(tokens)
        self.output_tokens += len(tokens)
        self._decode(decoder, tokens, (), len(self.session.log) - len(tokens))

    def _check_thinking(self) -> None:
        """End the thinking that has used up its tokens."""
        decoder, limit = self._decoder, self._thinking_tokens
        if limit is not None and decoder and decoder.is_reasoning and decoder.reasoning_tokens >= limit:
            self.answer_now()

    def add_tokens(self, tokens: Sequence[int], logprobs: Sequence[PositionLogprobs]) -> bool:
        """Add tokens of the engine to the log, and put out what they say. Return whether to stop there."""
        session, decoder = self.session, self._decoder
        assert session is not None
        assert decoder is not None
        if not self.first_token:
            self.first_token = time.perf_counter()
            self._end_wait()
        delta = None if logprobs else decoder.decode_plain(tokens)
        if delta is not None:
            self._outbox.offer(delta, self._taker)  # before the books: the client waits for it
        session.add_generated(tokens)
        self.output_tokens += len(tokens)
        if delta is not None:
            self._mark(delta, len(session.log))
        else:
            self._decode(decoder, tokens, logprobs, len(session.log) - len(tokens))
        if self._thinking_tokens is not None:
            self._check_thinking()
        if self.watch:
            self.watch.tokens(len(tokens))
        return delta is None and decoder.is_stopped

    def _decode(
        self,
        decoder: OutputDecoder,
        tokens: Sequence[int],
        logprobs: Sequence[PositionLogprobs],
        length: int,
    ) -> None:
        """Put out what tokens say that may be more than text. `length` is that of the log before them."""
        for index, token in enumerate(tokens):
            for outcome in decoder.decode(token, logprobs[index] if logprobs else None):
                self._outbox.add(outcome)
                self._mark(outcome, length + index + 1)
        self._outbox.deliver(self._taker)

    def _mark(self, outcome: Outcome, length: int) -> None:
        """Note where items end in the log: an item is whole when another one begins."""
        if type(outcome) is self._item:
            self._said_length = length
            return
        if isinstance(outcome, CallDone | CallInvalid):
            self._item, self.whole_length = (
                None,
                length if isinstance(outcome, CallDone) else self.whole_length,
            )
            return
        if self._item in (TextDelta, ReasoningDelta) and not isinstance(outcome, self._item):
            self.whole_length = self._said_length
        self._item, self._said_length = type(outcome), length

    def finish(self, reason: str) -> str:
        """Put out what was held back. Return the reason of the end, with what the engine did not know."""
        if decoder := self._decoder:
            for outcome in decoder.finish():
                self._outbox.put(outcome)
            if decoder.is_stopped:
                return "stop"
        return self.interrupted or reason if reason == "interrupted" else reason

    def kept_length(self, reason: str) -> int:
        """Return how much of the log the response keeps: all, or all but the item that was cut off.

        An interrupt that came when everything was said cut off nothing.
        """
        assert self.session is not None
        return self.whole_length if self.is_discarding and reason != "stop" else len(self.session.log)

    def end(self, reason: str, finished: Finished) -> None:
        """End the turn: the engine is done with it."""
        scores = finished.scores if reason == "scored" else None
        engine = _joined(self._before_answer, finished.waterfall)
        stop_text = self._decoder.stop_text if self._decoder and reason == "stop" else ""
        self._conclude(Ended(reason, self._usage(engine), self._times(engine), scores, stop_text))

    def fail(self, error: VivaceError) -> None:
        self._conclude(Broken(error.code, f"{error.message} {error.hint}".rstrip()))

    def _conclude(self, outcome: Ended | Broken) -> None:
        assert not self.is_over, "a turn ends exactly once"
        self.is_over = True
        if self.session:
            self.session.release(self)
        self._outbox.put(outcome)
        self._on_over(outcome)

    def _usage(self, engine: EngineWaterfall) -> Usage:
        read, repeated = (self.prompt.tokens, self.prompt.repeated_tokens) if self.prompt else (0, 0)
        read, said = read + repeated, max(0, self.output_tokens - repeated)
        cached = InputTokensDetails(min(engine.cached_tokens, read))
        details = OutputTokensDetails(
            reasoning_tokens=self._decoder.reasoning_tokens if self._decoder else 0,
            accepted_prediction_tokens=engine.draft_accepted,
            rejected_prediction_tokens=engine.draft_rejected,
        )
        return Usage(read, said, read + said, cached, details)

    @property
    def prompt_usage(self) -> Usage | None:
        if self.prompt is None or self.cached_tokens is None:
            return None
        read = self.prompt.tokens + self.prompt.repeated_tokens
        return Usage(read, 0, read, InputTokensDetails(min(self.cached_tokens, read)))

    def _times(self, engine: EngineWaterfall) -> Waterfall:
        now = time.perf_counter()
        tokenize_s = self.prompt.tokenize_s if self.prompt else 0.0
        waited_s = max(0.0, (self.submitted or now) - self.received - tokenize_s)
        in_engine_ms = engine.first_token_ms + engine.decode_ms
        total_ms = (now - self.received) * 1e3
        return Waterfall(
            total_ms=total_ms,
            queue_ms=waited_s * 1e3 + engine.queue_ms,
            tokenize_ms=tokenize_s * 1e3,
            first_token_ms=(self.first_token - self.received) * 1e3 if self.first_token else 0.0,
            server_ms=max(0.0, total_ms - waited_s * 1e3 - tokenize_s * 1e3 - in_engine_ms),
            restore_ms=engine.restore_ms,
            prefill_ms=engine.prefill_ms,
            decode_ms=engine.decode_ms,
            draft_ms=engine.draft_ms,
            grammar_ms=engine.grammar_ms,
            overhead_ms=engine.overhead_ms,
            cached_tokens=engine.cached_tokens,
            restored_tokens=engine.restored_tokens,
            new_tokens=engine.new_tokens,
            reread_tokens=engine.reread_tokens,
            output_tokens=self.output_tokens,
            steps=engine.steps,
            draft_accepted=engine.draft_accepted,
            draft_rejected=engine.draft_rejected,
            restarts=self.deaths,
        )


def _joined(first: EngineWaterfall | None, last: EngineWaterfall) -> EngineWaterfall:
    """Return the times of a turn that the engine did in two parts. What was cached is told by the first."""
    if first is None:
        return last
    told = msgspec.structs.asdict(first)
    both = {name: value + told[name] for name, value in msgspec.structs.asdict(last).items()}
    kept = {name: told[name] for name in ("first_token_ms", "cached_tokens", "restored_tokens")}
    return EngineWaterfall(**(both | kept))
