"""What is drafted, from where, and when not."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.speculation.playing import CPU, GPU, Turn
from vivace.engine.speculation import Drafter, History, StepCosts

UNIT = list(range(1000, 1120))  # a prediction in which every token is unique


def is_run_of(draft: list[int], text: list[int]) -> bool:
    return any(text[at : at + len(draft)] == draft for at in range(len(text) + 1))


def random_tokens(seed: int, count: int, vocabulary: int = 5000) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(vocabulary) for _ in range(count)]


def test_a_copy_is_drafted_from_the_first_token() -> None:
    """The prediction's beginning is proposed before the model has said anything."""
    draft = Turn(UNIT).propose()
    assert len(draft) >= 8
    assert draft == UNIT[: len(draft)]


def test_a_verbatim_copy_takes_few_passes() -> None:
    """Output equal to the prediction is accepted whole, with at least 12 tokens a pass."""
    played = Turn(UNIT).play(UNIT)
    assert len(played.drafts) <= len(UNIT) / 12
    assert all(a == len(d) for a, d in zip(played.accepted[:-1], played.drafts[:-1], strict=True))


def test_drafts_grow_while_they_are_right() -> None:
    """On cheap long passes the draft is longer after a long run than right after a divergence."""
    turn = Turn(UNIT, costs=GPU)
    turn.say_singly([*UNIT[:10], 1, UNIT[11], UNIT[12]])
    early = turn.propose()
    turn.say(UNIT[13:43])
    assert len(turn.propose()) > len(early) > 0


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param([*UNIT[:20], 1, 2, 3, *UNIT[20:22]], 22, id="insertion"),
        pytest.param([*UNIT[:20], *UNIT[27:29]], 29, id="deletion"),
        pytest.param([*UNIT[:20], 1, 2, *UNIT[23:25]], 25, id="substitution"),
        pytest.param([*UNIT[:20], 1, 2, 3, UNIT[20]], 21, id="insertion, one token later"),
        pytest.param([*UNIT[:20], 1, UNIT[21]], 22, id="substitution, one token later"),
    ],
)
def test_it_finds_the_place_again(said: list[int], expected: int) -> None:
    """After an edit the draft goes on where the output meets the prediction again."""
    turn = Turn(UNIT, costs=GPU)
    turn.say_singly(said)
    draft = turn.propose()
    assert draft
    assert draft == UNIT[expected : expected + len(draft)]


def test_a_long_match_behind_leads_back() -> None:
    """Text that is said a second time is drafted from its first place, once the match is long."""
    turn = Turn(UNIT)
    turn.say_singly([*UNIT[:80], 1, *UNIT[10:20]])
    draft = turn.propose()
    assert draft
    assert draft == UNIT[20 : 20 + len(draft)]


def test_the_log_helps_where_the_prediction_ends() -> None:
    """Text that only the log has is drafted from there."""
    elsewhere = list(range(3000, 3060))
    turn = Turn(UNIT, log=[*elsewhere, 5])
    turn.say_singly([*UNIT, 6, *elsewhere[:12]])
    draft = turn.propose()
    assert draft
    assert draft == elsewhere[12 : 12 + len(draft)]


def test_own_output_is_drafted_from() -> None:
    """What this turn has said itself is drafted when it is said again."""
    poem = random_tokens(1, 60)
    turn = Turn()
    turn.say_singly([*poem, 9999, *poem[:12]])
    draft = turn.propose()
    assert draft
    assert draft == poem[12 : 12 + len(draft)]


def test_nothing_to_draft_from_is_no_draft() -> None:
    """Without a prediction and with a log of unlike tokens nothing is proposed."""
    assert Turn(log=UNIT).propose() == []
    assert Turn().propose() == []


@given(st.integers(-1, 70), st.integers(0, 119))
def test_never_more_than_the_limit(limit: int, said: int) -> None:
    """A draft has at most `limit` tokens."""
    turn = Turn(UNIT, costs=GPU)
    turn.say(UNIT[:said])
    assert len(turn.propose(limit)) <= max(0, limit)


tokens = st.lists(st.integers(0, 9), max_size=60)


@given(prediction=tokens, log=tokens, output=tokens)
def test_drafts_come_from_this_log_and_prediction_only(
    prediction: list[int], log: list[int], output: list[int]
) -> None:
    """Every draft is a run of tokens of the prediction or of the log as it was then."""
    turn = Turn(prediction, log, costs=GPU)
    played = turn.play(output)
    done = 0
    for draft, accepted in zip(played.drafts, played.accepted, strict=True):
        assert is_run_of(draft, prediction) or is_run_of(draft, log + output[:done])
        done += accepted + 1


@pytest.mark.parametrize("costs", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("vocabulary", [20, 300, 5000])
def test_output_that_resembles_nothing_costs_at_most_3_percent(
    costs: dict[int, float], vocabulary: int
) -> None:
    """With random output, a random log and a random prediction, drafts waste at most 3% of the time."""
    turns = [
        Turn(random_tokens(3 * seed, 300, vocabulary), random_tokens(3 * seed + 1, 600, vocabulary), costs)
        for seed in range(8)
    ]
    played = [turn.play(random_tokens(3 * n + 2, 300, vocabulary)) for n, turn in enumerate(turns)]
    spent = sum(each.ms for each in played)
    assert 8 * 300 * costs[1] / spent >= 0.97


def test_it_stops_trying_and_comes_back() -> None:
    """After many wrong drafts there are none; once the output follows the prediction, they are back."""
    unlike = [
        token for at in range(0, 100, 2) for token in (UNIT[at], 1)
    ]  # every match is followed by a miss
    turn = Turn(UNIT)
    played = turn.play(unlike)
    assert not any(played.drafts[-20:])
    again = turn.play([7, *UNIT])
    assert max(map(len, again.drafts[:20])) >= 7


def test_dear_drafts_are_not_tried() -> None:
    """Where every token of a pass costs as much as a pass, nothing is drafted however sure it is."""
    played = Turn(UNIT, costs={1: 10.0, 64: 640.0}).play(UNIT)
    assert not any(played.drafts)


def test_cheap_passes_make_long_drafts() -> None:
    """Where 64 tokens cost hardly more than one, a sure draft is as long as it may be."""
    turn = Turn(UNIT, costs={1: 10.0, 64: 11.0})
    turn.say(UNIT[:32])
    assert len(turn.propose()) == 63


def test_a_free_step_is_used() -> None:
    """Where 16 tokens cost no more than 8, no draft stops at 8 before the end."""
    turn = Turn(UNIT, costs={1: 54.0, 2: 87.0, 4: 90.0, 8: 127.0, 16: 127.0, 32: 600.0})
    assert all(len(draft) != 7 for draft in turn.play(UNIT).drafts[:-1])


def test_hearing_without_proposing_keeps_the_place() -> None:
    """Passes without a draft, as when sessions share one, leave the cursor in step and teach nothing."""
    turn, other = Turn(UNIT), Turn(UNIT)
    turn.say(UNIT[:20])
    turn.propose()
    for token in UNIT[20:40]:
        turn.say([token])
    other.say(UNIT[:40])
    draft = turn.propose()
    assert draft == other.propose() == UNIT[40 : 40 + len(draft)] != []


def test_the_last_predicted_token_is_left_to_the_model() -> None:
    """The token that ends the turn is never drafted, for the pass before gives it anyway."""
    turn = Turn(UNIT, log=[*UNIT, 5, 6, 7], costs=GPU)
    assert not any(UNIT[-1] in draft for draft in turn.play(UNIT).drafts)


def test_the_end_of_the_prediction_is_no_end_of_the_turn() -> None:
    """Output that goes on behind the whole prediction goes on without drafts and without harm."""
    played = Turn(UNIT).play([*UNIT, *range(5000, 5020)])
    assert sum(played.accepted) + len(played.accepted) == len(UNIT) + 20


def test_an_offer_says_how_likely_each_token_is() -> None:
    """For a pass that others share: the prediction's next tokens, each less likely than the one before."""
    turn = Turn(UNIT)
    turn.say(UNIT[:20])
    tokens, chances = turn.drafter.offer(9)
    assert tokens == UNIT[20:29]
    assert len(chances) == 9
    assert 1.0 > chances[0] > chances[-1] > 0.5


near = st.lists(st.integers(0, 7), max_size=120)


@given(prediction=near, log=near, output=near, limit=st.integers(1, 63))
def test_looking_ahead_changes_no_draft(
    prediction: list[int], log: list[int], output: list[int], limit: int
) -> None:
    """Whatever is said: the drafts are those that are found when they are needed."""
    late, early = Turn(prediction, log, GPU), Turn(prediction, log, GPU)
    assert late.play(output, limit) == early.play(output, limit, looks_ahead=True)
    assert len(early.history) == len(log) + len(output)


def test_a_draft_behind_one_that_was_right_is_there_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is looked for between the passes of a copy; but the first draft, while nothing runs."""
    turn = Turn(UNIT, costs=GPU)
    first = turn.propose()
    turn.drafter.look_ahead()
    turn.say(UNIT[: len(first) + 1])
    monkeypatch.setattr(Drafter, "_find_candidates", None)
    second = turn.propose()
    assert first == UNIT[: len(first)] != []
    assert second == UNIT[len(first) + 1 : len(first) + 1 + len(second)] != []


@given(st.integers(0, 1000))
def test_drafts_are_no_longer_where_a_wrong_one_costs_more(seed: int) -> None:
    """A model that reads again what was right of a wrong draft gets no more tokens."""
    log = random_tokens(seed, 60, vocabulary=6)
    costs = StepCosts(CPU)
    plain = Drafter(costs, History(log), UNIT).propose(63)
    assert len(Drafter(costs, History(log), UNIT, reads_again=True).propose(63)) <= len(plain)
    assert len(Drafter(costs, History(), UNIT, reads_again=True).propose(63)) >= 8
