"""Which responses a connection still goes on from, so that the rest can be forgotten.

Each lane keeps its latest response. It gives one up when a later one is over, or when what went on from it
was refused or failed; it is forgotten then, or as soon as nothing needs it that was asked for before. A
fork that fails on another lane gives up nothing. Text still being typed leaves a lane as it was. Stored
responses are given up only after a failure, and stay in the store even so. Does not own the responses
themselves.
"""

from collections import Counter

from vivace.protocol.connection.actions import Forget
from vivace.protocol.connection.lanes import LatestResponse, RunningTurn, continues


class KeptResponses:
    def __init__(self) -> None:
        self._needed: Counter[str] = Counter()
        self._given_up: set[str] = set()  # and still needed

    def need(self, response_id: str | None) -> None:
        """Note that a request that has not begun names this response, which may be anyone's."""
        if response_id is not None:
            self._needed[response_id] += 1

    def release(self, response_id: str | None) -> list[Forget]:
        """Note that the request has begun and holds the response itself, or that it never will."""
        if response_id is None:
            return []
        self._needed[response_id] -= 1
        if self._needed[response_id]:
            return []
        del self._needed[response_id]
        if response_id not in self._given_up:
            return []
        self._given_up.discard(response_id)
        return [Forget(response_id)]

    def completed(self, turn: RunningTurn) -> list[Forget]:
        """Note that the turn is over and can be continued."""
        kept = LatestResponse(turn.response_id, turn.request.is_stored)
        if turn.request.is_provisional:
            return self._give_up(kept)
        before, turn.lane.latest = turn.lane.latest, kept
        return self._give_up(before) if before else []

    def failed(self, turn: RunningTurn) -> list[Forget]:
        """Give up a response that was refused or failed, and what it named in its own lane."""
        forgotten = (
            self._give_up(LatestResponse(turn.response_id, turn.request.is_stored)) if turn.writer else []
        )
        latest = turn.lane.latest
        if latest and continues(turn.request, latest.response_id):
            turn.lane.latest = None
            forgotten += self._forget(latest.response_id)
        return forgotten

    def _give_up(self, kept: LatestResponse) -> list[Forget]:
        return [] if kept.is_stored else self._forget(kept.response_id)

    def _forget(self, response_id: str) -> list[Forget]:
        if response_id not in self._needed:
            return [Forget(response_id)]
        self._given_up.add(response_id)
        return []
