"""Measures variants side by side: a brief look at each, then rounds that go around all that are left.

Each variant has a child of its own, kept between rounds if memory allows, so that a slower or busier minute
of the machine meets all of them alike. Owns the seats, the order and the time it may take. Does not choose.
"""

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import TypeVar

from vivace.engine.tuning.child import Child, VariantFailed
from vivace.engine.tuning.choose import (
    FREE_MARGIN,
    PASS_TOKENS,
    PREFILL_TOKENS,
    Measured,
    Round,
    Variant,
    edit_ms,
)
from vivace.engine.tuning.formats import compare, quality_problem
from vivace.engine.tuning.surroundings import Surroundings
from vivace.engine.tuning.wire import Done, Load, Passes, Prefill, Read, Scores, Times

ROUNDS, FEWEST_ROUNDS = 3, 2
ROUNDS_S = 25.0  # no round begins that would end later, once there are the fewest
WARM_UP_TOKENS = 16
BRIEF_SIZES = (1, 16, 64)
BRIEF_DOUBTS = (1.3, 1.0)  # the first look drops only what is this much worse than what the second drops
CLEARLY_SLOWER = 1.1  # by this factor in the brief look: not looked at further
PLAIN_REPEATS = 3  # decoding is what is noticed most, and its pass is short
CHUNKS = (64, 128, 256, 512)
CHUNKS_S = 6.0
OVERHEAD_BYTES = 400_000_000  # of a loaded variant beside its weights

T = TypeVar("T")


class Seat:
    """A variant, its child, and what was measured of it."""

    def __init__(self, variant: Variant, around: Surroundings, *, stays: bool) -> None:
        self.entry = Measured(variant)
        self._around = around
        self._stays = stays
        self._child: Child | None = None

    @property
    def is_usable(self) -> bool:
        return not self.entry.problem and not self.entry.dropped

    def do(self, work: Callable[[Child], T]) -> T | None:
        """Have the child do this; None if the variant fails, which then has a problem."""
        try:
            self._child = self._child or self._load()
            return work(self._child)
        except VariantFailed as failure:
            self.entry.problem = f"not available: {failure}"
            return None
        finally:
            if not self._stays or self.entry.problem:
                self.close()

    def close(self) -> None:
        if self._child:
            self._child.close()
            self._child = None

    def _load(self) -> Child:
        variant = self.entry.variant
        needed, available = needed_bytes(variant), self._around.available_bytes()
        if needed > available:
            raise VariantFailed(f"it needs {needed / 1e9:.1f} GB of memory, {available / 1e9:.1f} are free")
        child = self._around.start_child()
        try:
            child.ask(Load(variant.path, variant.use_extra_bufts, variant.threads), Done)
            _warm_up(child)
        except BaseException:
            child.close()
            raise
        return child


def needed_bytes(variant: Variant) -> int:
    return variant.size_bytes + OVERHEAD_BYTES


def look_briefly(seats: Sequence[Seat], around: Surroundings) -> None:
    """Look at each, and leave out what is clearly not worth more time."""
    for seat in seats:
        with around.step(f"Loading {seat.entry.variant.label}"):
            seat.do(_warm_up)
    looks: dict[Seat, list[dict[int, float]]] = {seat: [] for seat in seats}
    with around.step("A brief look at each"):
        for doubt in BRIEF_DOUBTS:
            for seat in seats:
                taken = seat.do(_brief_passes) if seat.is_usable else None
                if taken:
                    looks[seat].append(taken)
            _drop_losers({seat: _brief_edit_ms(looks[seat]) for seat in seats if seat.is_usable}, doubt)


def _drop_losers(edits: dict[Seat, float], doubt: float) -> None:
    """What is slower than the first, or does without repacking and gains nothing by that."""
    usual_ms = next(iter(edits.values()), 0.0)
    for seat, ms in list(edits.items())[1:]:
        twin_ms = next((edits[other] for other in edits if _is_repacked_twin(other, seat)), None)
        if twin_ms and ms > twin_ms * (1 - FREE_MARGIN) * doubt:
            seat.entry.dropped = f"no faster than repacked (an edit {ms / twin_ms - 1:+.0%} in a brief look)"
        elif ms > usual_ms * CLEARLY_SLOWER * doubt:
            seat.entry.dropped = f"slower (an edit {ms / usual_ms - 1:+.0%} in a brief look)"
        if seat.entry.dropped:
            seat.close()


def _brief_edit_ms(looks: Sequence[dict[int, float]]) -> float:
    """An edit at the best of what was seen; the prefill is taken from the largest pass."""
    best = {size: min(taken[size] for taken in looks) for size in BRIEF_SIZES}
    return edit_ms(Round(best[BRIEF_SIZES[-1]] * PREFILL_TOKENS / BRIEF_SIZES[-1], best))


def _is_repacked_twin(other: Seat, plain: Seat) -> bool:
    one, two = other.entry.variant, plain.entry.variant
    return (one.path, one.threads) == (two.path, two.threads) and one.use_extra_bufts > two.use_extra_bufts


def check_quality(seats: Sequence[Seat], around: Surroundings) -> None:
    """Let all read the sample; those that read it otherwise than the first have a problem."""
    with around.step("Comparing what they say"):
        original = seats[0].do(_read)
        for seat in seats[1:]:
            scores = seat.do(_read) if original and seat.is_usable else None
            if original and scores:
                seat.entry.likeness = compare(original, scores)
                if seat.entry.variant.quality != "costly":  # those are only looked at: measured all the same
                    seat.entry.problem = quality_problem(seat.entry.likeness)


def measure_rounds(seats: Sequence[Seat], around: Surroundings, rounds: int = ROUNDS) -> None:
    """Go around the seats; stop before it takes too long."""
    began = time.monotonic()
    for number in range(rounds):
        spent_s = time.monotonic() - began
        if number >= FEWEST_ROUNDS and spent_s * (number + 1) / number > ROUNDS_S:
            return
        with around.step(f"Measuring, round {number + 1} of {rounds}"):
            for seat in seats:
                taken = seat.do(_full_round) if seat.is_usable else None
                if taken:
                    seat.entry.rounds.append(taken)


def measure_chunks(seat: Seat, around: Surroundings) -> dict[int, float]:
    """Milliseconds of a prefilled token by the size of the chunk; a second time if the first was quick."""
    began = time.monotonic()
    with around.step("Trying prefill chunks"):
        taken = [seat.do(_chunk_round)]
        if time.monotonic() - began < CHUNKS_S:
            taken.append(seat.do(_chunk_round))
    whole = [costs for costs in taken if costs]
    return {chunk: min(costs[chunk] for costs in whole) for chunk in CHUNKS} if whole else {}


def _warm_up(child: Child) -> None:
    """Bring the weights into memory, and leave some tokens for the next passes to follow."""
    child.ask(Prefill(WARM_UP_TOKENS, WARM_UP_TOKENS), Times)


def _brief_passes(child: Child) -> dict[int, float]:
    return dict(zip(BRIEF_SIZES, child.ask(Passes(list(BRIEF_SIZES)), Times).ms, strict=True))


def _full_round(child: Child) -> Round:
    [prefill_ms] = child.ask(Prefill(PREFILL_TOKENS, PREFILL_TOKENS), Times).ms
    plain = child.ask(Passes([1] * PLAIN_REPEATS), Times).ms
    times = child.ask(Passes(list(PASS_TOKENS[1:])), Times).ms
    return Round(prefill_ms, {1: median(plain), **dict(zip(PASS_TOKENS[1:], times, strict=True))})


def _chunk_round(child: Child) -> dict[int, float]:
    costs = {}
    for chunk in CHUNKS:
        tokens = max(chunk, PREFILL_TOKENS)
        [ms] = child.ask(Prefill(tokens, chunk), Times).ms
        costs[chunk] = ms / tokens
    return costs


def _read(child: Child) -> Scores:
    return child.ask(Read(), Scores)
