"""One turn on a socket, for its caller: an async iterator of typed events that can be steered and stopped.

Owns the turn's buffer and its state: which response runs, which steers are unanswered, whether it is over. A
turn is one `response.create` and every response that follows it by steering. Does not own the socket, nor
the order of turns in a lane (`socket`).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from vivace.errors import RequestRefused, ServerGone, VivaceError
from vivace.protocol.shapes.events import (
    AnyEvent,
    OutputTextDelta,
    ReasoningTextDelta,
    Response,
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
    SteerAccepted,
    SteerFailed,
    SteerPending,
    Terminal,
    WaitProgress,
)
from vivace.protocol.shapes.refusal import ErrorFrame

Send = Callable[[dict[str, Any]], None]

OnProgress = Callable[[WaitProgress | None], None]  # None: the answer begins, or nobody waits for it

Joinable = OutputTextDelta | ReasoningTextDelta

MAX_JOINED = 4096  # characters: what nobody reads for long is kept in pieces
DISCARD_PARTIAL = "discard_partial_items"
OVER = "response_already_completed"


class Turn:
    """Iterate it to the end, or leave it by `cancel`.

    `RequestRefused` is raised for an error frame or a failed response, `ServerGone` when the connection is
    lost. After `response.incomplete` with the reason `steered` the events of the successor follow.
    """

    def __init__(
        self,
        request: dict[str, Any],
        lane: str | None,
        send: Send,
        on_progress: OnProgress = lambda _: None,
    ) -> None:
        self.lane = lane
        self.response_id: str | None = None  # of the response that runs, or ran last
        self.is_over = False  # no event comes any more
        self._request = request
        self._send = send
        self._on_progress = on_progress
        self._is_waiting = False  # it was told last what it waits for
        self._buffer: deque[AnyEvent] = deque()
        self._changed = asyncio.Event()  # set by everything that happens; `_until` clears it
        self._error: VivaceError | None = None
        self._is_running = False  # a response runs that can be spoken to
        self._stop: dict[str, Any] | None = None  # a message that ends the turn, sent once it has an id
        self._is_left = False  # nobody reads it any more
        self._asked: deque[asyncio.Future[None]] = deque()  # steers without an answer, oldest first
        self._accepted: set[str] = set()  # ids of steers that a successor will carry

    # ---- for the caller ---------------------------------------------------------------------------

    def __aiter__(self) -> "Turn":
        return self

    async def __anext__(self) -> AnyEvent:
        await self._until(lambda: bool(self._buffer) or self.is_over or self._is_left)
        if not self._buffer:
            raise self._error or StopAsyncIteration
        event = self._buffer.popleft()
        if isinstance(event, ResponseFailed):
            raise _refused(event)
        return event

    async def response(self) -> Response:
        """Read to the end and return the last response: completed, or incomplete with the reason in it."""
        last: Response | None = None
        async for event in self:
            if isinstance(event, Terminal):
                last = event.response
        assert last is not None, "a turn ends with a terminal event or raises"
        return last

    async def steer(self, text: str) -> None:
        """Turn the running response around. Return when the server has accepted the text.

        Wait for the response to begin if it has not. Raise `RequestRefused` if the text came too late or
        cannot steer. A steer that is accepted and then given back is a `SteerFailed` event of the turn.
        """
        tried: str | None = None  # a response that was over when the text came; its successor is on the way
        while True:
            await self._until(partial(self._is_another_running, tried))
            if self.is_over:
                raise self._error or RequestRefused("The response is over.", code=OVER)
            if self._stop:
                raise RequestRefused("The response is being interrupted.", code="response_not_active")
            tried = self.response_id
            try:
                return await self._ask(text)
            except RequestRefused as error:
                if error.code != OVER:
                    raise

    async def _ask(self, text: str) -> None:
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked.append(answer)
        self._send({"type": "response.steer", "previous_response_id": self.response_id, "input": text})
        await asyncio.shield(answer)

    def _is_another_running(self, than: str | None) -> bool:
        return self.is_over or (self._is_running and self.response_id != than)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self._changed.clear()
            await self._changed.wait()

    def interrupt(self, *, discards_partial: bool = False) -> None:
        """Stop the response. Its last events still come, to `response.incomplete`.

        What was said stays a part of the response, unless `discards_partial`.
        """
        self._end_with({"type": "response.interrupt", "mode": DISCARD_PARTIAL if discards_partial else ""})

    def answer_now(self) -> None:
        """Let the model think no more and begin its answer. No effect on a turn that is over or stopped."""
        if self._is_running and not self._stop:
            self._send({"type": "response.answer_now", "response_id": self.response_id})

    def cancel(self) -> None:
        """Stop the response and stop listening. No effect on a turn that is over."""
        self._is_left = True
        self._buffer.clear()
        self._changed.set()
        self._end_with({"type": "response.cancel"})

    def _end_with(self, message: dict[str, Any]) -> None:
        """Send this once: now, or when the response has an id."""
        if self.is_over or self._stop:
            return
        self._stop = message
        if self._is_running:
            self._send(message | {"response_id": self.response_id})

    # ---- for the socket ---------------------------------------------------------------------------

    @property
    def is_left(self) -> bool:
        return self._is_left

    def begin(self) -> None:
        """Send the create: the lane is free."""
        lane = {"stream_id": self.lane} if self.lane is not None else {}
        self._send({"type": "response.create"} | self._request | lane)

    def take(self, message: AnyEvent | ErrorFrame) -> None:
        """Take what the server said in this turn's lane."""
        if isinstance(message, ErrorFrame):
            self.end(_error(message))
            return
        if isinstance(message, Joinable):
            self._take_text(message)
            return
        is_for_reader = not self._is_left
        match message:
            case ResponseCreated(response=response):
                self._on_created(response.id)
            case ResponseInProgress(response=response):
                self._tell_progress(response.vivace.progress if response.vivace else None)
            case SteerAccepted() | SteerPending() | SteerFailed():
                self._on_steer(message)
                is_for_reader &= message.steer.id is not None  # or else `steer` raises it
            case ResponseCompleted() | ResponseIncomplete() | ResponseFailed():
                self._is_running = False
        if is_for_reader:
            self._buffer.append(message)
        self._changed.set()
        if self.response_id and not (self._is_running or self._asked or self._accepted):
            self.end(None)

    def _take_text(self, message: Joinable) -> None:
        """Add text to what waits for the reader: of one part, it is one event however often it came."""
        if self._is_left:
            return
        if self._buffer and (joined := _joined(self._buffer[-1], message)):
            self._buffer[-1] = joined
        else:
            self._buffer.append(message)
        self._changed.set()

    def end(self, error: VivaceError | None) -> None:
        """Note that no event follows. What is in the buffer is still read first."""
        self.is_over = True
        self._tell_progress(None)
        self._error = self._error or error
        self._is_running = False
        self._changed.set()
        while self._asked:
            _reject(self._asked.popleft(), error or ServerGone("The turn ended before it was steered."))

    def _tell_progress(self, progress: WaitProgress | None) -> None:
        if progress or self._is_waiting:
            self._is_waiting = progress is not None
            self._on_progress(progress)

    def _on_created(self, response_id: str) -> None:
        self.response_id = response_id
        self._accepted.clear()  # this response carries them
        self._is_running = True
        if self._stop:
            self._send(self._stop | {"response_id": response_id})

    def _on_steer(self, event: SteerAccepted | SteerPending | SteerFailed) -> None:
        """Answers come in the order of the steers. One that was never accepted has no id."""
        steer_id = event.steer.id
        if isinstance(event, SteerAccepted):
            assert steer_id is not None
            self._accepted.add(steer_id)
            _resolve(self._asked.popleft())
        elif isinstance(event, SteerFailed) and steer_id is None:
            _reject(self._asked.popleft(), RequestRefused(event.error.message, code=event.error.code))
        elif steer_id is not None:
            self._accepted.discard(steer_id)


def _joined(before: AnyEvent, message: Joinable) -> Joinable | None:
    """Return both as one event, or None if they are of two parts, long, or counted token by token."""
    if (
        type(before) is not type(message)
        or not isinstance(before, Joinable)
        or before.item_id != message.item_id
        or before.content_index != message.content_index
        or len(before.delta) > MAX_JOINED
        or (isinstance(message, OutputTextDelta) and message.logprobs)
    ):
        return None
    text = before.delta + message.delta
    return msgspec.structs.replace(before, delta=text, sequence_number=message.sequence_number)


def _resolve(answer: asyncio.Future[None]) -> None:
    if not answer.done():
        answer.set_result(None)


def _reject(answer: asyncio.Future[None], error: VivaceError) -> None:
    if not answer.done():
        answer.set_exception(error)
        answer.exception()  # the caller may have been cancelled: nobody else looks at it then


def _error(frame: ErrorFrame) -> RequestRefused:
    return RequestRefused(frame.error.message, code=frame.error.code, status=frame.status)


def _refused(event: ResponseFailed) -> RequestRefused:
    error = event.response.error
    assert error is not None
    return RequestRefused(error.message, code=error.code, status=500)
