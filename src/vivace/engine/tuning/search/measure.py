"""Measure variants side by side: screen all of them briefly, then measure rounds over those that are left.

Each variant has a child process of its own, kept between rounds if memory allows, so that a slow or busy
minute of the machine affects all of them alike. Owns the candidates, the order of measuring and its time
limit. Does not choose (`choose`).
"""

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import TypeVar

from vivace.engine.tuning.children.child import Child, VariantFailed
from vivace.engine.tuning.children.wire import Done, Load, Passes, Prefill, Scores, ScoreSample, Times
from vivace.engine.tuning.search.choose import (
    FREE_MARGIN,
    PASS_TOKENS,
    PREFILL_TOKENS,
    Measured,
    Round,
    Variant,
    edit_ms,
)
from vivace.engine.tuning.search.formats import compare, quality_problem
from vivace.engine.tuning.search.host import Host

ROUNDS, MIN_ROUNDS = 3, 2
ROUNDS_S = 25.0  # no round begins that would end later, once there are the fewest
WARM_UP_TOKENS = 16
SCREEN_SIZES = (1, 16, 64)
SCREEN_TOLERANCES = (1.3, 1.0)  # for each screening pass: factor on the limits that drop a variant
CLEARLY_SLOWER = 1.1  # a variant slower by this factor is dropped by screening
PLAIN_REPEATS = 3  # measure passes of one token more often: they matter most, and are short
CHUNKS = (64, 128, 256, 512)
CHUNKS_S = 6.0
OVERHEAD_BYTES = 400_000_000  # of a loaded variant beside its weights

T = TypeVar("T")


class Candidate:
    """A variant, its child process, and its measurements."""

    def __init__(self, entry: Measured, host: Host, *, stays: bool) -> None:
        self.entry = entry
        self._host = host
        self._stays = stays
        self._child: Child | None = None

    @property
    def is_usable(self) -> bool:
        return not self.entry.problem and not self.entry.dropped

    def run(self, work: Callable[[Child], T]) -> T | None:
        """Return what `work` returns. If the variant fails, note the problem and return None."""
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
        needed, available = needed_bytes(variant), self._host.available_bytes()
        if needed > available:
            raise VariantFailed(f"it needs {needed / 1e9:.1f} GB of memory, {available / 1e9:.1f} are free")
        child = self._host.start_child()
        try:
            child.ask(Load(variant.path, variant.use_extra_bufts, variant.threads), Done)
            _warm_up(child)
        except BaseException:
            child.close()
            raise
        return child


def needed_bytes(variant: Variant) -> int:
    return variant.size_bytes + OVERHEAD_BYTES


def screen(candidates: Sequence[Candidate], host: Host) -> None:
    """Time each candidate briefly, and drop those that are clearly slower."""
    for candidate in candidates:
        with host.step(f"Loading {candidate.entry.variant.label}"):
            candidate.run(_warm_up)
    screened: dict[Candidate, list[dict[int, float]]] = {candidate: [] for candidate in candidates}
    with host.step("A brief look at each"):
        for tolerance in SCREEN_TOLERANCES:
            for candidate in candidates:
                taken = candidate.run(_screen_passes) if candidate.is_usable else None
                if taken:
                    screened[candidate].append(taken)
            usable = [candidate for candidate in candidates if candidate.is_usable]
            _drop_slow({candidate: _screen_edit_ms(screened[candidate]) for candidate in usable}, tolerance)


def _drop_slow(edits: dict[Candidate, float], tolerance: float) -> None:
    """Drop variants slower than the first, and variants without repacking that gain nothing by it."""
    usual_ms = next(iter(edits.values()), 0.0)
    for candidate, ms in list(edits.items())[1:]:
        twin_ms = next((edits[other] for other in edits if _is_repacked_twin(other, candidate)), None)
        if twin_ms and ms > twin_ms * (1 - FREE_MARGIN) * tolerance:
            change = f"an edit {ms / twin_ms - 1:+.0%} in a brief look"
            candidate.entry.dropped = f"no faster than repacked ({change})"
        elif ms > usual_ms * CLEARLY_SLOWER * tolerance:
            candidate.entry.dropped = f"slower (an edit {ms / usual_ms - 1:+.0%} in a brief look)"
        if candidate.entry.dropped:
            candidate.close()


def _screen_edit_ms(screened: Sequence[dict[int, float]]) -> float:
    """Return an edit's milliseconds at the best times seen. Prefill is taken from the largest pass."""
    best = {size: min(taken[size] for taken in screened) for size in SCREEN_SIZES}
    return edit_ms(Round(best[SCREEN_SIZES[-1]] * PREFILL_TOKENS / SCREEN_SIZES[-1], best))


def _is_repacked_twin(other: Candidate, plain: Candidate) -> bool:
    one, two = other.entry.variant, plain.entry.variant
    return (one.path, one.threads) == (two.path, two.threads) and one.use_extra_bufts > two.use_extra_bufts


def check_quality(candidates: Sequence[Candidate], host: Host) -> None:
    """Compare log-probabilities of a sample text with the first candidate's, and note problems."""
    with host.step("Comparing what they say"):
        original = candidates[0].run(_score_sample)
        for candidate in candidates[1:]:
            scores = candidate.run(_score_sample) if original and candidate.is_usable else None
            if original and scores:
                candidate.entry.likeness = compare(original, scores)
                if candidate.entry.variant.quality != "costly":  # costly ones are measured only to be shown
                    candidate.entry.problem = quality_problem(candidate.entry.likeness)


def measure_rounds(
    candidates: Sequence[Candidate],
    host: Host,
    rounds: int = ROUNDS,
    on_round: Callable[[int], None] = lambda _: None,
) -> None:
    """Measure all candidates in turn, `rounds` times; stop before it takes too long.

    Rounds that an earlier tuning has measured count. `on_round` hears how many there are after each.
    """
    usable = [candidate for candidate in candidates if candidate.is_usable]
    begun = min((len(candidate.entry.rounds) for candidate in usable), default=rounds)
    for candidate in usable:
        del candidate.entry.rounds[begun:]  # a round counts only where all took part
    began = time.monotonic()
    for number in range(begun, rounds):
        spent_s = time.monotonic() - began
        if number >= MIN_ROUNDS and spent_s * (number + 1) / number > ROUNDS_S:
            return
        with host.step(f"Measuring, round {number + 1} of {rounds}"):
            for candidate in usable:
                taken = candidate.run(_full_round) if candidate.is_usable else None
                if taken:
                    candidate.entry.rounds.append(taken)
        on_round(number + 1)


def measure_chunks(candidate: Candidate, host: Host) -> dict[int, float]:
    """Return milliseconds of a prefilled token by chunk size. Measure twice if the first time was quick."""
    began = time.monotonic()
    with host.step("Trying prefill chunks"):
        taken = [candidate.run(_chunk_round)]
        if time.monotonic() - began < CHUNKS_S:
            taken.append(candidate.run(_chunk_round))
    whole = [costs for costs in taken if costs]
    return {chunk: min(costs[chunk] for costs in whole) for chunk in CHUNKS} if whole else {}


def _warm_up(child: Child) -> None:
    """Prefill a few tokens, which also reads the weights into memory."""
    child.ask(Prefill(WARM_UP_TOKENS, WARM_UP_TOKENS), Times)


def _screen_passes(child: Child) -> dict[int, float]:
    return dict(zip(SCREEN_SIZES, child.ask(Passes(list(SCREEN_SIZES)), Times).ms, strict=True))


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


def _score_sample(child: Child) -> Scores:
    return child.ask(ScoreSample(), Scores)
