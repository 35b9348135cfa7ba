"""What a turn learns about its sources."""

from hypothesis import given
from hypothesis import strategies as st

from vivace.engine.speculation.chances import PROVEN, Chances, Kind


def chance(chances: Chances, kind: Kind, run: int) -> float:
    return float(chances.ahead(kind, run, 1)[0])


def test_wrong_drafts_make_doubtful_and_right_ones_restore() -> None:
    """A source falls with wrong tokens and rises again with right ones, without being told to start over."""
    chances = Chances()
    before = chance(chances, Kind.SUFFIX, 3)
    for _ in range(6):
        chances.learn(Kind.SUFFIX, 3, 0, was_wrong=True)
    fallen = chance(chances, Kind.SUFFIX, 3)
    for _ in range(12):
        chances.learn(Kind.SUFFIX, 3, 1, was_wrong=False)
    assert fallen < before / 2
    assert chance(chances, Kind.SUFFIX, 3) > 0.9 * before


def test_a_wrong_place_makes_other_places_doubtful_but_not_the_log() -> None:
    """What is learnt at one place of the prediction counts for the others, and not for the log."""
    chances = Chances()
    near, log = chance(chances, Kind.NEAR, 2), chance(chances, Kind.SUFFIX, 4)
    chances.learn(Kind.START, 0, 0, was_wrong=True)
    assert chance(chances, Kind.NEAR, 2) < near
    assert chance(chances, Kind.SUFFIX, 4) == log


def test_the_end_of_a_long_run_does_not_spoil_finding_the_place_again() -> None:
    """An edit ends a long run as a matter of course: the next place is as likely as before."""
    chances = Chances()
    near = chance(chances, Kind.NEAR, 2)
    chances.learn(Kind.FOLLOW, 40, 0, was_wrong=True)
    assert chance(chances, Kind.NEAR, 2) == near


def test_longer_runs_are_surer() -> None:
    """With each source the chance grows with the run."""
    for kind in Kind:
        seen = Chances().ahead(kind, 0, 120)
        assert seen == sorted(seen)


@given(st.lists(st.tuples(st.sampled_from(Kind), st.integers(0, 200), st.integers(0, 63), st.booleans())))
def test_chances_stay_chances(lessons: list[tuple[Kind, int, int, bool]]) -> None:
    """Whatever is learnt, every chance stays between 0 and 1."""
    chances = Chances()
    for kind, run, right, was_wrong in lessons:
        chances.learn(kind, run, right, was_wrong=was_wrong)
    for kind in Kind:
        ahead = chances.ahead(kind, PROVEN, 64)
        assert len(ahead) == 64
        assert all(0 < each < 1 for each in ahead)
