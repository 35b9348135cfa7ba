"""Which rows are in flight, and whose tokens they are: sequences join and leave between two passes.

A call asks for the next token of some sequences. If a pass for them is in flight already, the following one
is started first, on tokens that only the device knows yet, and then the call waits: the host's work is done
while the device works. A sequence that is not in the pass in flight joins the following one. Owns these
passes. Does not own pages (`runner`).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from vivace.engine.runners.base import DecodeRow, WhileRunning
from vivace.engine.runners.cuda.rows.passes import RowInput, RowPasses

HasRoom = Callable[[int, int], bool]  # make position `at` of a sequence writable if there is room


class Flight(NamedTuple):
    """A pass that was started: its number, and for each sequence its row and what it is computed for."""

    number: int
    rows: dict[int, tuple[int, DecodeRow]]  # by sequence
    size: int  # rows when it was started

    def row_of(self, row: DecodeRow) -> int | None:
        """Return the row that computes what is asked, or None if there is none."""
        index, computed = self.rows.get(row.seq, (0, None))
        return index if computed == row else None


class Flights:
    def __init__(self, passes: RowPasses) -> None:
        self._passes = passes
        self._flight: Flight | None = None

    def decode(
        self, rows: Sequence[DecodeRow], has_room: HasRoom, *, goes_ahead: bool, while_running: WhileRunning
    ) -> list[int | None]:
        """Return the next token of each row, or None for one that is not in the pass in flight yet."""
        flight = self._flight
        if flight is None or all(flight.row_of(row) is None for row in rows):
            self.drop_all()
            flight = self._start_from_host(rows)
        places = [flight.row_of(row) for row in rows]
        following = self._start_next(rows, places, has_room) if goes_ahead else None
        while_running()
        tokens = self._passes.collect(flight.number, flight.size)
        found = [None if place is None else tokens[place] for place in places]
        self._flight = _with_tokens(following, rows, found) if following else None
        return found

    def _start_from_host(self, rows: Sequence[DecodeRow]) -> Flight:
        inputs = [RowInput(row.seq, row.start, row.token, row.sampling) for row in rows]
        each = {row.seq: (index, row) for index, row in enumerate(rows)}
        return Flight(self._passes.start(inputs), each, len(rows))

    def _start_next(
        self, rows: Sequence[DecodeRow], places: Sequence[int | None], has_room: HasRoom
    ) -> Flight | None:
        """Start the pass behind the one in flight, for all rows that have a place to write to."""
        inputs: list[RowInput] = []
        each: dict[int, tuple[int, DecodeRow]] = {}
        for row, place in zip(rows, places, strict=True):
            start = row.start if place is None else row.start + 1
            if place is None or has_room(row.seq, start):
                each[row.seq] = (len(inputs), row._replace(start=start))
                inputs.append(RowInput(row.seq, start, row.token, row.sampling, place))
        return Flight(self._passes.start(inputs), each, len(inputs)) if inputs else None

    def forget(self, seq: int) -> None:
        """Take a sequence out: what is in flight for it is not what comes next."""
        if self._flight:
            self._flight.rows.pop(seq, None)

    def drop_all(self) -> None:
        """Wait for what is in flight and forget it."""
        if self._flight:
            self._passes.synchronize()
            self._flight = None


def _with_tokens(flight: Flight, rows: Sequence[DecodeRow], found: Sequence[int | None]) -> Flight:
    """Return the flight with the inputs that are known now."""
    for row, token in zip(rows, found, strict=True):
        if token is not None and row.seq in flight.rows:
            index, computed = flight.rows[row.seq]
            flight.rows[row.seq] = (index, computed._replace(token=token))
    return flight
