"""The variants of one model file against each other, from the file as downloaded to one winner.

Owns which variants there are and the order of the contest: make, look, compare, measure, choose; then threads
and prefill chunks for the winner. Does not keep anything (`tune`) and decides nothing itself (`choose`).
"""

import time
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from vivace.engine.tuning import choose, measure
from vivace.engine.tuning.child import VariantFailed
from vivace.engine.tuning.choose import Measured, Variant
from vivace.engine.tuning.cpu import choose_threads
from vivace.engine.tuning.formats import requantisations
from vivace.engine.tuning.keys import usable_cpus
from vivace.engine.tuning.making import make
from vivace.engine.tuning.measure import Seat
from vivace.engine.tuning.surroundings import Surroundings
from vivace.engine.tuning.wire import Describe, Description
from vivace.errors import VivaceError

LATE_S = 120.0
MEMORY_SHARE = 0.8  # of what is free may be taken by variants that are loaded at once


@dataclass(frozen=True)
class Outcome:
    winner: Measured
    entries: list[Measured]  # all that took part
    why: str
    chunk_costs: dict[int, float]  # ms a token by tokens in the chunk; empty if it could not be measured


class Contest:
    """Between variants of the file at `path`; what is made goes to `folder`, under names with `prefix`."""

    def __init__(self, path: Path, folder: Path, prefix: str, around: Surroundings) -> None:
        self._path, self._folder, self._prefix = path, folder, prefix
        self._around = around
        self._seats: list[Seat] = []
        self._absent: list[Measured] = []  # could not even be made
        self._began = time.monotonic()

    def run(self, threads: int, *, with_costly: bool) -> Outcome:
        """Find the best variant. `threads` is the user's wish; 0 lets the contest find them too."""
        usual, *others = thread_candidates(threads)
        seats = self._sit(self._variants(usual, with_costly=with_costly))
        measure.look_briefly(seats, self._around)
        seats = self._downloaded_first(seats)
        left = [seat for seat in seats if seat.is_usable]
        measure.check_quality(left, self._around)
        measure.measure_rounds(left, self._around)
        seats = self._downloaded_first(seats)
        entries = [*(seat.entry for seat in seats), *self._absent]
        chosen = choose.choose(entries)
        why = choose.explain(chosen, entries)
        best = next(seat for seat in seats if seat.entry is chosen)
        if others and not self._is_late():
            best, tried, words = self._try_threads(best, others)
            entries, why = [*entries, *tried], why + words
        chunk_costs = {} if self._is_late() else measure.measure_chunks(best, self._around)
        return Outcome(best.entry, entries, why, chunk_costs)

    def _is_late(self) -> bool:
        """Whether it takes so long, on a slow or busy machine, that what matters less is left out."""
        return time.monotonic() - self._began > LATE_S

    def close(self) -> None:
        for seat in self._seats:
            seat.close()

    def _variants(self, threads: int, *, with_costly: bool) -> list[Variant]:
        """The file as downloaded first, then what can be made of it; each also without repacking."""
        found, size_bytes = self._describe(), self._path.stat().st_size
        files = [Variant(found.format, str(self._path), size_bytes, "same", True, threads)]
        for format in requantisations(found.bits, with_costly=with_costly):
            target = self._folder / f"{self._prefix}.{format.name}.gguf"
            expected_bytes = int(size_bytes * format.bits / found.bits)
            variant = Variant(format.name, str(target), expected_bytes, format.quality, True, threads)
            try:
                make(self._path, target, format, expected_bytes, self._around)
                files.append(replace(variant, size_bytes=target.stat().st_size))
            except VariantFailed as failure:
                self._absent.append(Measured(variant, problem=f"not available: {failure}"))
        return [replace(variant, use_extra_bufts=does) for variant in files for does in (True, False)]

    def _describe(self) -> Description:
        child = self._around.start_child()
        try:
            return child.ask(Describe(str(self._path)), Description)
        except VariantFailed as failure:
            raise self._not_measurable(str(failure)) from failure
        finally:
            child.close()

    def _sit(self, variants: list[Variant]) -> list[Seat]:
        """A seat for each; all stay loaded between their turns if they fit into memory together."""
        together_bytes = sum(map(measure.needed_bytes, variants))
        stays = together_bytes < MEMORY_SHARE * self._around.available_bytes()
        seats = [Seat(variant, self._around, stays=stays) for variant in variants]
        self._seats += seats
        return seats

    def _try_threads(self, best: Seat, others: list[int]) -> tuple[Seat, list[Measured], str]:
        """The same variant with other numbers of threads: the best of them, all of them, and words."""
        self.close()
        variant = best.entry.variant
        again, *seats = self._sit([replace(variant, threads=n) for n in (variant.threads, *others)])
        measure.look_briefly([again, *seats], self._around)
        measure.measure_rounds([again, *seats], self._around, measure.FEWEST_ROUNDS)
        tried = [seat.entry for seat in seats]
        if not again.is_usable:
            return best, tried, ""
        for entry in (again.entry, *tried):  # the same weights
            entry.likeness = best.entry.likeness
        winner = choose.best_of(again.entry, tried, choose.FREE_MARGIN)
        if winner is again.entry:
            return again, tried, ""
        saved = 1 - choose.ratio(winner, again.entry)
        words = f" {winner.variant.threads} threads instead of {variant.threads} save another {saved:.0%}."
        return next(seat for seat in seats if seat.entry is winner), tried, words

    def _downloaded_first(self, seats: list[Seat]) -> list[Seat]:
        """The file as downloaded before all others, in the most usual way that works on this machine."""
        downloaded = [seat for seat in seats if not seat.entry.variant.is_made]
        usual = next((seat for seat in downloaded if seat.is_usable), None)
        if usual is None:
            raise self._not_measurable(downloaded[0].entry.problem)
        return [usual, *(seat for seat in seats if seat is not usual)]

    def _not_measurable(self, why: str) -> VivaceError:
        return VivaceError(
            f"{self._path} cannot be measured: {why}",
            "It is used as downloaded. `vivace doctor` checks the machine, `vivace models` the model's file.",
        )


def thread_candidates(wanted: int) -> list[int]:
    """The usual number first, then a few that may be better; only the user's own if there is one.

    More: all logical CPUs, where a core has two. Fewer: one core left to the rest of the system, and half of
    many, since memory may be the limit.
    """
    usual = choose_threads(wanted)
    if wanted:
        return [usual]
    more = [usable_cpus()] if usual < usable_cpus() <= 2 * usual else []
    fewer = [usual - 1] * (usual >= 3) + [usual // 2] * (usual >= 8)
    return [usual, *more, *fewer]
