"""Search the fastest variant of one model file: make copies, screen, compare, measure, choose.

Then try threads and prefill chunks for the winner. Owns which variants there are and the order of work. Does
not keep the result (`tune`) or intermediate measurements (`journal`), and does not decide (`choose`).
"""

import time
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from vivace.engine.tuning.children.child import VariantFailed
from vivace.engine.tuning.children.wire import Describe, Description
from vivace.engine.tuning.cpu import choose_threads
from vivace.engine.tuning.journal import Journal
from vivace.engine.tuning.keys import usable_cpus
from vivace.engine.tuning.search import choose, measure
from vivace.engine.tuning.search.choose import Measured, Variant
from vivace.engine.tuning.search.formats import requantisations
from vivace.engine.tuning.search.host import Host
from vivace.engine.tuning.search.measure import Candidate
from vivace.engine.tuning.search.requantise import make
from vivace.errors import VivaceError

SLOW_SEARCH_S = 120.0
STEPS = 5 + measure.ROUNDS  # shown as progress: copy, screen, compare, the rounds, threads and chunks
MEMORY_SHARE = 0.8  # of the available memory, the most for variants that are loaded at once


@dataclass(frozen=True)
class SearchResult:
    winner: Measured
    entries: list[Measured]  # all that took part
    why: str
    chunk_costs: dict[int, float]  # ms a token by tokens in the chunk; empty if it could not be measured


class VariantSearch:
    """Among the variants of the file at `path`; copies go to `folder`, under names with `prefix`."""

    def __init__(self, path: Path, folder: Path, prefix: str, host: Host, journal: Journal) -> None:
        self._path, self._folder, self._prefix = path, folder, prefix
        self._host = host
        self._journal = journal
        self._candidates: list[Candidate] = []
        self._not_made: list[Measured] = []  # could not even be made
        self._began = time.monotonic()

    def run(self, threads: int, *, with_costly: bool) -> SearchResult:
        """Find the best variant. `threads` is the user's setting; with 0 the search chooses threads too."""
        usual, *others = thread_candidates(threads)
        candidates = self._measure(self._variants(usual, with_costly=with_costly))
        entries = [*(candidate.entry for candidate in candidates), *self._not_made]
        chosen = choose.choose(entries)
        why = choose.explain(chosen, entries)
        best = next(candidate for candidate in candidates if candidate.entry is chosen)
        self._host.on_step(STEPS, STEPS)
        if others and not self._is_slow():
            best, tried, words = self._try_threads(best, others)
            entries, why = [*entries, *tried], why + words
        chunk_costs = {} if self._is_slow() else measure.measure_chunks(best, self._host)
        return SearchResult(best.entry, entries, why, chunk_costs)

    def _measure(self, variants: list[Variant]) -> list[Candidate]:
        """Screen, compare and measure, the file as downloaded first. Skip what the journal has."""
        journal = self._journal
        candidates = self._make_candidates(list(map(journal.entry, variants)))
        self._host.on_step(2, STEPS)
        if not journal.is_screened:
            measure.screen(candidates, self._host)
            journal.note_screened(candidate.entry for candidate in candidates)
        candidates = self._downloaded_first(candidates)
        left = [candidate for candidate in candidates if candidate.is_usable]
        self._host.on_step(3, STEPS)
        if not journal.is_compared:
            measure.check_quality(left, self._host)
            journal.note_compared()

        def on_round(number: int) -> None:
            journal.save()
            self._host.on_step(min(4 + number, STEPS - 1), STEPS)

        self._host.on_step(4, STEPS)
        measure.measure_rounds(left, self._host, on_round=on_round)
        return self._downloaded_first(candidates)

    def _is_slow(self) -> bool:
        """Return whether the search takes so long that less important steps are skipped."""
        return time.monotonic() - self._began > SLOW_SEARCH_S

    def close(self) -> None:
        for candidate in self._candidates:
            candidate.close()

    def _variants(self, threads: int, *, with_costly: bool) -> list[Variant]:
        """Return the file as downloaded, then what can be made of it; each also without repacking."""
        self._host.on_step(1, STEPS)
        found, size_bytes = self._describe(), self._path.stat().st_size
        files = [Variant(found.format, str(self._path), size_bytes, "same", True, threads)]
        for format in requantisations(found.bits, with_costly=with_costly):
            target = self._folder / f"{self._prefix}.{format.name}.gguf"
            expected_bytes = int(size_bytes * format.bits / found.bits)
            variant = Variant(format.name, str(target), expected_bytes, format.quality, True, threads)
            try:
                make(self._path, target, format, expected_bytes, self._host)
                files.append(replace(variant, size_bytes=target.stat().st_size))
            except VariantFailed as failure:
                self._not_made.append(Measured(variant, problem=f"not available: {failure}"))
        return [replace(variant, use_extra_bufts=does) for variant in files for does in (True, False)]

    def _describe(self) -> Description:
        child = self._host.start_child()
        try:
            return child.ask(Describe(str(self._path)), Description)
        except VariantFailed as failure:
            raise self._not_measurable(str(failure)) from failure
        finally:
            child.close()

    def _make_candidates(self, entries: list[Measured]) -> list[Candidate]:
        """Return a candidate for each; all stay loaded between rounds if they fit into memory together."""
        together_bytes = sum(measure.needed_bytes(entry.variant) for entry in entries)
        stays = together_bytes < MEMORY_SHARE * self._host.available_bytes()
        candidates = [Candidate(entry, self._host, stays=stays) for entry in entries]
        self._candidates += candidates
        return candidates

    def _try_threads(self, best: Candidate, others: list[int]) -> tuple[Candidate, list[Measured], str]:
        """Measure the variant with other numbers of threads. Return the best, all of them, and a sentence."""
        self.close()
        variant = best.entry.variant
        numbers = (variant.threads, *others)
        again, *candidates = self._make_candidates([Measured(replace(variant, threads=n)) for n in numbers])
        measure.screen([again, *candidates], self._host)
        measure.measure_rounds([again, *candidates], self._host, measure.MIN_ROUNDS)
        tried = [candidate.entry for candidate in candidates]
        if not again.is_usable:
            return best, tried, ""
        for entry in (again.entry, *tried):  # the same weights
            entry.likeness = best.entry.likeness
        winner = choose.best_of(again.entry, tried, choose.FREE_MARGIN)
        if winner is again.entry:
            return again, tried, ""
        saved = 1 - choose.ratio(winner, again.entry)
        words = f" {winner.variant.threads} threads instead of {variant.threads} save another {saved:.0%}."
        return next(candidate for candidate in candidates if candidate.entry is winner), tried, words

    def _downloaded_first(self, candidates: list[Candidate]) -> list[Candidate]:
        """Put the file as downloaded first, in its most usual form that works on this machine."""
        downloaded = [candidate for candidate in candidates if not candidate.entry.variant.is_made]
        usual = next((candidate for candidate in downloaded if candidate.is_usable), None)
        if usual is None:
            raise self._not_measurable(downloaded[0].entry.problem)
        return [usual, *(candidate for candidate in candidates if candidate is not usual)]

    def _not_measurable(self, why: str) -> VivaceError:
        return VivaceError(
            f"{self._path} cannot be measured: {why}",
            "It is used as downloaded. `vivace doctor` checks the machine, `vivace models` the model's file.",
        )


def thread_candidates(wanted: int) -> list[int]:
    """Return the usual number of threads, then a few that may be better. The user's own is the only one.

    More: all logical CPUs, where a core has two. Fewer: one core left to the rest of the system, and half of
    many, since memory may be the limit.
    """
    usual = choose_threads(wanted)
    if wanted:
        return [usual]
    more = [usable_cpus()] if usual < usable_cpus() <= 2 * usual else []
    fewer = [usual - 1] * (usual >= 3) + [usual // 2] * (usual >= 8)
    return [usual, *more, *fewer]
