"""What can answer a request: the seam between the routes and our own engine (`native`) or an upstream.

Owns shapes only.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol

from vivace.protocol.shapes.events import Usage
from vivace.protocol.shapes.outcomes import Broken, Ended, Outcome, Queued
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.server.caller import Caller
from vivace.server.conversation.token_log import StoredResponse
from vivace.server.watch.turn_watch import TurnWatch

Taker = Callable[[Outcome], bool]  # returns whether it took the outcome; if not, the listener gets it


def _ignore(_: Ended | Broken) -> None: ...


@dataclass(frozen=True, slots=True)
class TurnHooks:
    """Who is told about a turn. Given when the turn begins, and never changed."""

    on_over: Callable[[Ended | Broken], None] = _ignore  # called once, when the turn is over
    watch: TurnWatch | None = None  # counts, logs and traces the turn


NO_HOOKS = TurnHooks()


class Turn(Protocol):
    """One response that is being made. It goes on whether anyone listens or not, until it is interrupted.

    All attributes are for reading: nobody but the turn itself sets them.
    """

    @property
    def id(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def request(self) -> ResponseCreate: ...

    @property
    def caller(self) -> Caller: ...

    @property
    def watch(self) -> TurnWatch | None: ...

    @property
    def place(self) -> Queued | None:
        """Return its place in the queue when it was accepted, or None if it did not have to wait."""
        ...

    @property
    def prompt_usage(self) -> Usage | None:
        """Return how long the prompt is and how much of it is cached; None while that is not known."""
        ...

    @property
    def stored_response(self) -> StoredResponse | None:
        """Return what can be continued, once the turn is over. None if it has no log here."""
        ...

    def outcomes(self, taker: Taker | None = None) -> AsyncIterator[Outcome]:
        """Give outcomes to one listener as they come; the last is `Ended` or `Broken`.

        Text is joined where the listener is behind. An outcome may be offered to `taker` first, in the
        callback that made it: what `taker` takes, the listener does not get.
        """
        ...

    def interrupt(self, reason: str = "interrupted", *, is_discarding: bool = False) -> None:
        """End it as soon as can be: any number of times, at any time; the first reason counts.

        What it has said stays in its log, but for the item that was not whole if `is_discarding`.
        """
        ...

    def answer_now(self) -> None:
        """Think no more and begin the answer. No effect if it does not think, or cannot be told."""
        ...


class Backend(Protocol):
    def models(self) -> list[str]:
        """Names of the models that can be asked for now."""
        ...

    def serves(self, model: str, caller: Caller) -> bool:
        """Return whether this caller may ask this backend for the model. Keys may ask for listed ones."""
        ...

    async def discover(self) -> None:
        """Wait until all model names are known, so that none is refused too early."""
        ...

    def begin(
        self, request: ResponseCreate, response_id: str, caller: Caller, hooks: TurnHooks = NO_HOOKS
    ) -> Turn:
        """Accept a request, or raise a `VivaceError` that says why not; then no hook is called."""
        ...

    async def count_tokens(self, request: ResponseCreate) -> int | None:
        """Return how many tokens the prompt would have; None where only the upstream knows."""
        ...

    async def stop_turns(self) -> None:
        """Accept no more turns, and end those that run."""
        ...

    async def close(self) -> None: ...
