"""Which rows are in flight, and whose tokens they are: sequences join and leave between two passes.

A call asks for the next token of some sequences. If a pass for them is in flight already, the following one
is started first, on tokens that only the device knows yet, and then the call waits: the host's work is done
while the device works. A sequence that is not in the pass in flight joins the following one; so does one
whose token the host samples, since it is not known in time. A draft is a row for each of its tokens; a pass
with drafts begins when nothing is in flight, and nothing is started behind it: what follows a draft is not
known. Owns these passes. Does not own pages (`runner`).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from vivace.engine.common_length import common_length
from vivace.engine.runners.base import DecodeRow, RowResult, WhileRunning
from vivace.engine.runners.cuda.rows.passes import RowInput, RowPasses

HasRoom = Callable[[int, int], bool]  # make position `at` of a sequence writable if there is room


class Flight(NamedTuple):
    """A pass that was started: its number, and for each sequence its row and what it is computed for."""

    number: int
    rows: dict[int, tuple[int, DecodeRow]]  # by sequence; of a draft the row before it
    size: int  # rows when it was started
    logits: list[int]  # sequences whose logits the host has, in the order of their rows

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
    ) -> list[RowResult]:
        """Return the next tokens of each row, its logits, or None if it is not in the pass in flight yet."""
        flight, has_drafts = self._flight, any(row.draft for row in rows)
        if flight is None or has_drafts or all(flight.row_of(row) is None for row in rows):
            self.drop_all()
            flight = self._start_from_host(rows)
        places = [flight.row_of(row) for row in rows]
        following = self._start_next(rows, places, has_room) if goes_ahead and not has_drafts else None
        while_running()
        tokens = self._passes.collect(flight.number, flight.size)
        found: list[RowResult] = [
            None if place is None else _verified(tokens[place : place + 1 + len(row.draft)], row.draft)
            for row, place in zip(rows, places, strict=True)
        ]
        if any(row.sampling is None for row in rows):
            self._put_logits(rows, flight, found)
        self._flight = _with_tokens(following, rows, found) if following else None
        return found

    def _put_logits(self, rows: Sequence[DecodeRow], flight: Flight, found: list[RowResult]) -> None:
        """Put the logits of rows that asked for them in place of tokens."""
        for at, row in enumerate(rows):
            if row.sampling is None and found[at] is not None:
                slot = flight.logits.index(row.seq)
                found[at] = self._passes.logits(flight.number)[slot : slot + 1]

    def verify(self, row: DecodeRow, least: int, while_running: WhileRunning) -> list[int]:
        """Return what one row and its draft say, in a pass of at least so many rows."""
        self.drop_all()
        assert row.sampling is not None
        tokens = (row.token, *row.draft)
        number = self._passes.start_draft(row.seq, row.start, tokens, row.sampling, least)
        while_running()
        return _verified(self._passes.collect(number, len(tokens)), row.draft)

    def _start_from_host(self, rows: Sequence[DecodeRow]) -> Flight:
        inputs = [
            RowInput(row.seq, row.start + place, token, row.sampling, drafted=place)
            for row in rows
            for place, token in enumerate((row.token, *row.draft))
        ]
        return self._start(inputs, rows)

    def _start(self, inputs: Sequence[RowInput], rows: Sequence[DecodeRow]) -> Flight:
        each, index = {}, 0
        for row in rows:
            each[row.seq] = (index, row)
            index += 1 + len(row.draft)
        logits = [row.seq for row in rows if row.sampling is None]
        return Flight(self._passes.start(inputs), each, len(inputs), logits)

    def _start_next(
        self, rows: Sequence[DecodeRow], places: Sequence[int | None], has_room: HasRoom
    ) -> Flight | None:
        """Start the pass behind the one in flight, for all rows that have a place to write to."""
        inputs: list[RowInput] = []
        following: list[DecodeRow] = []
        for row, place in zip(rows, places, strict=True):
            if place is not None and row.sampling is None:
                continue
            start = row.start if place is None else row.start + 1
            if place is None or has_room(row.seq, start):
                following.append(row._replace(start=start))
                inputs.append(RowInput(row.seq, start, row.token, row.sampling, place))
        return self._start(inputs, following) if inputs else None

    def forget(self, seq: int) -> None:
        """Take a sequence out: what is in flight for it is not what comes next."""
        if self._flight:
            self._flight.rows.pop(seq, None)

    def drop_all(self) -> None:
        """Wait for what is in flight and forget it."""
        if self._flight:
            self._passes.synchronize()
            self._flight = None


def _verified(chosen: list[int], draft: tuple[int, ...]) -> list[int]:
    """Return the draft as far as the device has chosen the same, and one token more."""
    return chosen[: 1 + common_length(chosen, list(draft))] if draft else chosen


def _with_tokens(flight: Flight, rows: Sequence[DecodeRow], found: Sequence[RowResult]) -> Flight:
    """Return the flight with the inputs that are known now."""
    for row, tokens in zip(rows, found, strict=True):
        if isinstance(tokens, list) and row.seq in flight.rows:
            index, computed = flight.rows[row.seq]
            flight.rows[row.seq] = (index, computed._replace(token=tokens[-1]))
    return flight
