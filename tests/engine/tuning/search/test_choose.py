"""The choice between variants, from made-up tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.engine.speculation.costs import SIZES
from vivace.engine.tuning.search import choose
from vivace.engine.tuning.search.choose import Measured, Round, Variant
from vivace.engine.tuning.search.formats import Likeness, Quality

SAME = Likeness(mean_change=0.02, perplexity_ratio=1.001, same_choice=0.99, tokens=300)


def variant(format: str = "Q8_0", quality: Quality = "neutral", *, repacked: bool = True) -> Variant:
    return Variant(format, f"/models/{format}.gguf", 1_900_000_000, quality, repacked, 2)


def taking(ms: float) -> Round:
    """A round in which everything takes `ms` of what the file as downloaded takes in a usual minute."""
    passes = {size: ms * (60 + 8 * size) for size in choose.PASS_TOKENS}
    return Round(ms * 1600, passes)


def entry(*ms: float, of: Variant | None = None, problem: str = "") -> Measured:
    return Measured(of or variant(), [taking(each) for each in ms], SAME, problem)


def downloaded(*ms: float) -> Measured:
    return Measured(variant("Q4_K_M", "same"), [taking(each) for each in ms])


def test_passes_are_those_that_the_engine_asks_for() -> None:
    """What tuning measures is what the engine would measure at its start."""
    assert choose.PASS_TOKENS == SIZES


def test_a_clear_win_is_worth_its_disk_space() -> None:
    """A made format that saves a fifth is chosen, and the sentence says what it gives and costs."""
    entries = [downloaded(1, 1, 1), entry(0.8, 0.79, 0.81)]
    assert choose.choose(entries) is entries[1]
    said = choose.explain(entries[1], entries)
    assert said == (
        "Q8_0 made here: an edit takes 20% less time than with the file as downloaded; "
        "the same model to within 0.020 nats a token; 1.9 GB more on disk."
    )


def test_a_small_win_is_not_worth_its_disk_space() -> None:
    """Four per cent do not pay for a second file; the sentence says so."""
    entries = [downloaded(1, 1, 1), entry(0.96, 0.96, 0.96)]
    assert choose.choose(entries) is entries[0]
    assert "4% less time, too little for 1.9 GB" in choose.explain(entries[0], entries)


def test_what_costs_no_disk_space_needs_less() -> None:
    """The same file without repacking is used if it saves four per cent."""
    plain = entry(0.96, 0.96, 0.96, of=variant("Q4_K_M", "same", repacked=False))
    assert choose.choose([downloaded(1, 1, 1), plain]) is plain


def test_a_made_file_must_beat_the_best_that_is_free() -> None:
    """A fifth against the usual way is nothing against a free way that saves as much."""
    plain = entry(0.8, 0.8, 0.8, of=variant("Q4_K_M", "same", repacked=False))
    entries = [downloaded(1, 1, 1), plain, entry(0.79, 0.79, 0.79)]
    assert choose.choose(entries) is plain


def test_one_lost_round_is_doubt_enough() -> None:
    """A variant that is slower in any round is not clearly faster, whatever its median."""
    entries = [downloaded(1, 1, 1), entry(0.7, 1.01, 0.7)]
    assert choose.choose(entries) is entries[0]


def test_a_slow_minute_does_not_decide() -> None:
    """Rounds are compared within themselves: a machine that slows down in the middle changes nothing."""
    entries = [downloaded(1, 3, 1), entry(0.8, 2.4, 0.8)]
    assert choose.choose(entries) is entries[1]
    assert choose.ratio(entries[1], entries[0]) == pytest.approx(0.8)


@given(st.floats(0.01, 0.9), st.sampled_from(["costly", "problem"]))
def test_no_speed_buys_quality(ms: float, flaw: str) -> None:
    """What costs quality or has a problem is never chosen, however fast."""
    quality: Quality = "costly" if flaw == "costly" else "neutral"
    other = entry(ms, ms, of=variant("Q4_0", quality), problem="" if flaw == "costly" else "costs quality")
    entries = [downloaded(1, 1), other]
    assert choose.choose(entries) is entries[0]


@given(st.lists(st.lists(st.floats(0.1, 10), min_size=3, max_size=3), max_size=5))
def test_the_chosen_one_is_never_slower(tables: list[list[float]]) -> None:
    """Whatever the tables say, the choice is at least as fast as the file as downloaded in every round."""
    usual = downloaded(1, 1, 1)
    chosen = choose.choose([usual, *(entry(*table) for table in tables)])
    assert all(a.prefill_ms <= b.prefill_ms for a, b in zip(chosen.rounds, usual.rounds, strict=True))
    assert choose.explain(chosen, [usual, *(entry(*table) for table in tables)]).endswith(".")


def test_an_absent_variant_is_explained() -> None:
    """If the other format could not be made, the sentence says why."""
    absent = Measured(variant(), problem="not available: it needs 2.4 GB in /c, which has 0.1 GB free")
    usual = downloaded(1, 1)
    assert "0.1 GB free" in choose.explain(choose.choose([usual, absent]), [usual, absent])


def test_near_neutral_is_said() -> None:
    """A format that rounds the original weights is chosen only with words that say so."""
    entries = [downloaded(1, 1), entry(0.5, 0.5, of=variant(quality="near-neutral"))]
    assert "nearly the same model" in choose.explain(choose.choose(entries), entries)


@given(st.dictionaries(st.sampled_from([64, 128, 256, 512]), st.floats(0.1, 100), min_size=1))
def test_the_chunk_is_the_smallest_that_is_about_fastest(costs: dict[int, float]) -> None:
    """No smaller chunk is within five per cent of the fastest, and the chosen one is."""
    chunk, fastest = choose.choose_chunk(costs), min(costs.values())
    assert costs[chunk] <= fastest * 1.05
    assert all(ms > fastest * 1.05 for smaller, ms in costs.items() if smaller < chunk)


def test_a_pass_between_two_sizes_lies_on_their_line() -> None:
    """A table of few sizes is enough to estimate an edit."""
    whole = Round(1600, {size: 60.0 + 8 * size for size in choose.PASS_TOKENS})
    few = Round(1600, {size: 60.0 + 8 * size for size in (1, 16, 64)})
    assert choose.edit_ms(few) == pytest.approx(choose.edit_ms(whole))
