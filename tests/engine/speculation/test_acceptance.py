"""What a turn learns about its sources."""

from hypothesis import given
from hypothesis import strategies as st

from vivace.engine.speculation.acceptance import PROVEN_MATCH, AcceptanceRates, DraftSource


def chance(chances: AcceptanceRates, source: DraftSource, run: int) -> float:
    return float(chances.estimate(source, run, 1)[0])


def test_wrong_drafts_make_doubtful_and_right_ones_restore() -> None:
    """A source falls with wrong tokens and rises again with right ones, without being told to start over."""
    chances = AcceptanceRates()
    before = chance(chances, DraftSource.SUFFIX, 3)
    for _ in range(6):
        chances.update(DraftSource.SUFFIX, 3, 0, was_wrong=True)
    fallen = chance(chances, DraftSource.SUFFIX, 3)
    for _ in range(12):
        chances.update(DraftSource.SUFFIX, 3, 1, was_wrong=False)
    assert fallen < before / 2
    assert chance(chances, DraftSource.SUFFIX, 3) > 0.9 * before


def test_a_wrong_place_makes_other_places_doubtful_but_not_the_log() -> None:
    """What is learnt at one place of the prediction counts for the others, and not for the log."""
    chances = AcceptanceRates()
    near, log = chance(chances, DraftSource.NEAR, 2), chance(chances, DraftSource.SUFFIX, 4)
    chances.update(DraftSource.START, 0, 0, was_wrong=True)
    assert chance(chances, DraftSource.NEAR, 2) < near
    assert chance(chances, DraftSource.SUFFIX, 4) == log


def test_the_end_of_a_long_run_does_not_spoil_finding_the_place_again() -> None:
    """An edit ends a long run as a matter of course: the next place is as likely as before."""
    chances = AcceptanceRates()
    near = chance(chances, DraftSource.NEAR, 2)
    chances.update(DraftSource.FOLLOW, 40, 0, was_wrong=True)
    assert chance(chances, DraftSource.NEAR, 2) == near


def test_longer_runs_are_surer() -> None:
    """With each source the chance grows with the run."""
    for source in DraftSource:
        seen = AcceptanceRates().estimate(source, 0, 120)
        assert seen == sorted(seen)


@given(
    st.lists(st.tuples(st.sampled_from(DraftSource), st.integers(0, 200), st.integers(0, 63), st.booleans()))
)
def test_chances_stay_chances(lessons: list[tuple[DraftSource, int, int, bool]]) -> None:
    """Whatever is learnt, every chance stays between 0 and 1."""
    chances = AcceptanceRates()
    for source, run, right, was_wrong in lessons:
        chances.update(source, run, right, was_wrong=was_wrong)
    for source in DraftSource:
        ahead = chances.estimate(source, PROVEN_MATCH, 64)
        assert len(ahead) == 64
        assert all(0 < each < 1 for each in ahead)
