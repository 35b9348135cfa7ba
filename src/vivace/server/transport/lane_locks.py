"""Whose turn it is to send on a connection: within a lane, whoever asked first.

The machine of a connection makes messages in an order, and each is sent when whatever must come before is
done: a response is stored before its last event is sent, and a slow client takes its time. Places are taken
at once, so that what the machine makes meanwhile comes behind. Lanes do not wait for each other. Owns the
order only.
"""

import asyncio
from collections import deque
from collections.abc import Iterable

Lane = str | None
Place = asyncio.Future[None] | None  # None: it is its turn already


class LaneLocks:
    def __init__(self) -> None:
        self.busy: dict[Lane, deque[asyncio.Future[None]]] = {}  # lanes in use, and who waits for them

    def enter(self, lanes: Iterable[Lane]) -> dict[Lane, Place]:
        """Take a place in each of these lanes, at once. Leave them all, whatever happens."""
        return {lane: self._enter(lane) for lane in lanes}

    def leave(self, places: dict[Lane, Place]) -> None:
        for lane, place in places.items():
            if place is None or (place.done() and not place.cancelled()):
                self._advance(lane)
            else:
                place.cancel()  # its turn never came: who comes next passes it over

    def _enter(self, lane: Lane) -> Place:
        line = self.busy.get(lane)
        if line is None:
            self.busy[lane] = deque()
            return None
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append(place)
        return place

    def _advance(self, lane: Lane) -> None:
        line = self.busy[lane]
        while line:
            if not (place := line.popleft()).done():
                return place.set_result(None)
        del self.busy[lane]
        return None
