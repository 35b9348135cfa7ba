"""One answer at the server, from the request to its end, while the user may steer or stop it.

Owns which text belongs to which attempt: a steer ends one, and the next answers the steer. Does not own the
request (`message.prompt`), nor what is done when the server goes away (`conversation`).
"""

import time
from dataclasses import dataclass
from typing import Any

from vivace.agent.events.turn import (
    AnswerGrew,
    AttemptAbandoned,
    AttemptStarted,
    ReasoningGrew,
    ResponseBegan,
    SteerQueued,
    TimesMeasured,
    TurnStatus,
    TurnTimes,
    WritingEnded,
)
from vivace.agent.presenter import Presenter
from vivace.client.responses import ResponsesClient
from vivace.client.turn import Turn
from vivace.protocol.shapes.events import (
    AnyEvent,
    OutputTextDelta,
    ReasoningTextDelta,
    Response,
    ResponseCompleted,
    ResponseCreated,
    ResponseIncomplete,
    SteerFailed,
    Usage,
)

STATUSES: dict[str, TurnStatus] = {"max_output_tokens": "cut", "interrupted": "stopped"}


@dataclass(frozen=True)
class Ending:
    """How a turn ended."""

    status: TurnStatus
    response_id: str = ""
    total_tokens: int = 0  # of the log after it
    answer_tokens: int = 0


class Answering:
    def __init__(self, client: ResponsesClient, presenter: Presenter) -> None:
        self._client = client
        self._presenter = presenter
        self._turn: Turn | None = None
        self._steers: list[str] = []  # accepted, and not answered yet
        self._last: Response | None = None
        self._asked_at_s = time.perf_counter()
        self._first_token_ms = 0.0
        self._chars = 0  # of the attempt
        self.given_back: list[str] = []  # steers that came too late for any response

    async def run(self, request: dict[str, Any], lane: str) -> Ending:
        """Show the answer as it comes. Return how it ended."""
        self._presenter.show(AttemptStarted())
        try:
            async with self._client.turn(request, lane=lane) as turn:
                self._turn = turn
                async for event in turn:
                    self._take(event)
        finally:
            self._turn = None
            self._presenter.show(WritingEnded())
        assert self._last is not None, "a turn ends with a terminal event or raises"
        self._show_times(self._last)
        return _ending(self._last)

    @property
    def is_running(self) -> bool:
        """Return whether there is something that can be steered or interrupted."""
        return self._turn is not None and not self._turn.is_over

    @property
    def chars(self) -> int:
        """Return the length of what this attempt has said."""
        return self._chars

    async def steer(self, text: str) -> None:
        """Turn the answer around. Raise `RequestRefused` if it is over."""
        assert self._turn is not None
        self._steers.append(text)
        try:
            await self._turn.steer(text)
        except BaseException:
            self._steers.remove(text)
            raise

    def stop(self) -> None:
        """End the answer as it is."""
        assert self._turn is not None
        self._turn.interrupt()

    def answer_now(self) -> None:
        """Let the model think no more and begin its answer."""
        assert self._turn is not None
        self._turn.answer_now()

    def _take(self, event: AnyEvent) -> None:
        match event:
            case ResponseCreated(response=response):
                if self._last is not None:
                    self._begin_again()
                self._presenter.show(ResponseBegan(response.id))
            case OutputTextDelta(delta=delta):
                self._first_token_ms = self._first_token_ms or (time.perf_counter() - self._asked_at_s) * 1e3
                self._chars += len(delta)
                self._presenter.show(AnswerGrew(delta))
            case ReasoningTextDelta(delta=delta):
                self._presenter.show(ReasoningGrew(delta))
            case SteerFailed(steer=steer):
                self._give_back(str(steer.input))
            case ResponseCompleted(response=response) | ResponseIncomplete(response=response):
                self._last = response

    def _begin_again(self) -> None:
        """Show that the response that follows answers the steers."""
        assert self._last is not None
        was_whole = self._last.status == "completed"
        steer = "\n".join(self._steers)
        self._steers.clear()
        self._presenter.show(AttemptAbandoned(0 if was_whole else self._chars, "steered", steer))
        self._chars, self._last = 0, None
        self._presenter.show(AttemptStarted())

    def _give_back(self, text: str) -> None:
        if text in self._steers:
            self._steers.remove(text)
        self.given_back.append(text)
        self._presenter.show(SteerQueued(text))

    def _show_times(self, response: Response) -> None:
        if response.vivace and response.vivace.waterfall:
            times = (TurnTimes.of("answer", response.vivace.waterfall),)
            self._presenter.show(TimesMeasured(response.model, times, self._first_token_ms))


def _ending(response: Response) -> Ending:
    reason = response.incomplete_details.reason if response.incomplete_details else ""
    usage = response.usage or Usage(0, 0, 0)
    status = STATUSES.get(reason, "completed")
    return Ending(status, response.id, usage.total_tokens, usage.output_tokens)
