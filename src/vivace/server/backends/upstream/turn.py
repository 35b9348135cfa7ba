"""One turn that an upstream answers: what has come so far, how it ended, and what it cost.

Owns its outcomes and times. An interrupt ends it at once for whoever listens; closing the connection
follows in the same step of the event loop. Does not own the connection (`client`).
"""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from vivace.errors import VivaceError
from vivace.protocol.shapes.events import Usage, Waterfall
from vivace.protocol.shapes.outcomes import Broken, Ended, Outcome, Queued
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.server.backends.base import NO_HOOKS, Taker, TurnHooks
from vivace.server.backends.native.outbox import Outbox
from vivace.server.backends.upstream.sequencer import OutcomeSequencer
from vivace.server.caller import Caller
from vivace.server.conversation.token_log import StoredResponse

BYTES_PER_TOKEN = 4  # where the upstream did not count


class UpstreamTurn:
    place: Queued | None = None  # upstreams have queues of their own
    stored_response: StoredResponse | None = None  # an upstream's log is not ours
    prompt_usage: Usage | None = None  # it is told at the end

    def __init__(
        self,
        response_id: str,
        request: ResponseCreate,
        model: str,
        caller: Caller,
        hooks: TurnHooks = NO_HOOKS,
    ) -> None:
        self.id = response_id
        self.request = request
        self.model = model  # as it was asked for
        self.caller = caller
        self.watch = hooks.watch
        self._on_over = hooks.on_over
        self._task: asyncio.Task[None] | None = None
        self.outcome: Ended | Broken | None = None  # the last one, when it is over
        self.sequencer = OutcomeSequencer(self._put, request.stops)
        self._outbox = Outbox()
        self._sent_bytes = 0
        self._received = time.perf_counter()
        self._first = self._last = 0.0  # when something was said

    def outcomes(self, taker: Taker | None = None) -> AsyncIterator[Outcome]:
        """Offer nothing to `taker`: many events come in one read here, and waiting joins them."""
        del taker
        return aiter(self._outbox)

    def run(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Drive the turn by this work. An interrupt cancels it."""
        self._task = asyncio.create_task(work)
        return self._task

    @property
    def is_over(self) -> bool:
        return self.outcome is not None

    @property
    def has_begun(self) -> bool:
        """Return whether any output has come."""
        return self._first > 0.0

    @property
    def how_it_ended(self) -> str:
        """Return how it ended, for the metrics: completed, failed, timeout or cancelled."""
        match self.outcome:
            case Ended(reason="interrupted" | "steered"):
                return "cancelled"
            case Broken(code="upstream_timeout"):
                return "timeout"
            case Broken():
                return "failed"
        return "completed"

    def interrupt(self, reason: str = "interrupted", *, is_discarding: bool = False) -> None:
        """End the turn; its output so far stays. The writer decides which items are kept."""
        del is_discarding
        if not self.is_over:
            if self.watch:
                self.watch.aborting(reason)
            if self._task:
                self._task.cancel()
            self.end(reason)

    def answer_now(self) -> None:
        """Do nothing: no dialect of an upstream's has a message for it."""

    def sent(self, size_bytes: int) -> None:
        """Note that the request is on its way."""
        self._sent_bytes = size_bytes
        if self.watch:
            self.watch.started()

    def end(self, reason: str, usage: Usage | None = None) -> None:
        """End the turn. Usage is an estimate if the upstream did not count."""
        self.sequencer.flush()
        if usage is None:
            read, wrote = self._sent_bytes // BYTES_PER_TOKEN, self.sequencer.delta_count
            usage = Usage(read, wrote, read + wrote)
        stop_text = self.sequencer.stop_text if reason == "stop" else ""
        self._conclude(Ended(reason, usage, self._times(usage), stop_text=stop_text))

    def fail(self, error: VivaceError) -> None:
        if not self.is_over:
            self.sequencer.flush()
            self._conclude(Broken(error.code, f"{error.message} {error.hint}".rstrip()))

    def _put(self, outcome: Outcome) -> None:
        self._last = time.perf_counter()
        self._first = self._first or self._last
        if self.watch:
            self.watch.tokens(0)  # how many is not known before the end
        self._outbox.put(outcome)

    def _conclude(self, outcome: Ended | Broken) -> None:
        assert not self.is_over, "a turn ends exactly once"
        self.outcome = outcome
        self._outbox.put(outcome)
        self._on_over(outcome)

    def _times(self, usage: Usage) -> Waterfall:
        cached = usage.input_tokens_details.cached_tokens
        return Waterfall(
            total_ms=(time.perf_counter() - self._received) * 1e3,
            first_token_ms=(self._first - self._received) * 1e3 if self._first else 0.0,
            decode_ms=(self._last - self._first) * 1e3,
            cached_tokens=cached,
            new_tokens=usage.input_tokens - cached,
            output_tokens=usage.output_tokens,
        )
