"""Where in the prediction the output is."""

from vivace.engine.speculation.acceptance import PROVEN_MATCH, DraftSource
from vivace.engine.speculation.cursor import Cursor

UNIT = list(range(1000, 1120))  # every token is unique


def next_after(prediction: list[int], said: list[int]) -> int | None:
    """The token that the cursor expects after `said`, if it has not looked for its place before."""
    cursor = Cursor(prediction)
    cursor.follow(said)
    candidate = cursor.propose(said, 1)
    return candidate.tokens[0] if candidate else None


def test_of_equal_matches_the_nearest_ahead_counts() -> None:
    """Where a line occurs several times, the next one after the divergence is continued."""
    line = [10, 11, 12]
    prediction = [*line, 1, *line, 2, *line, 3, *line, 4]
    assert next_after(prediction, [*line, 1, *line, 2, 99, *line]) == 3


def test_a_longer_match_further_on_counts_more() -> None:
    """A place with a longer match wins over one that is nearer."""
    prediction = [*UNIT[:20], 10, 1, *UNIT[20:30], 7, 8, 9, 10, 2, *UNIT[30:]]
    assert next_after(prediction, [*UNIT[:20], 7, 8, 9, 10]) == 2


def test_a_short_match_behind_does_not_lead_back() -> None:
    """A token that was passed already does not move the cursor back while it also comes ahead."""
    prediction = [*UNIT[:100], UNIT[40], *UNIT[100:]]
    assert next_after(prediction, [*UNIT[:50], 1, UNIT[40]]) == UNIT[100]


def test_a_long_match_behind_leads_back() -> None:
    """Text that is said a second time is found where it was, though its last token comes ahead as well."""
    prediction = [*UNIT[:60], UNIT[19], *UNIT[60:]]
    assert next_after(prediction, [*UNIT[:50], 1, *UNIT[10:20]]) == UNIT[20]


def test_a_false_match_does_not_carry_the_search_away() -> None:
    """After a wrong jump forward the next match is looked for from where the prediction was left."""
    prediction = [*UNIT[:30], 5, *UNIT[30:90], 8, 5, *UNIT[90:]]
    cursor = Cursor(prediction)
    cursor.follow([*UNIT[:20], 8])
    jumped = cursor.propose([8], 1)
    cursor.follow([77, 5])
    back = cursor.propose([77, 5], 1)
    assert jumped == (DraftSource.FAR, 1, [5])
    assert back == (DraftSource.FAR, 1, [UNIT[30]])


def test_a_place_is_certain_after_a_while() -> None:
    """A place that was picked up again counts as followed after PROVEN_MATCH right tokens, and not before."""
    cursor = Cursor(UNIT)
    cursor.follow([*UNIT[:20], 1])
    kinds = []
    for at in range(30, 30 + PROVEN_MATCH + 1):
        cursor.follow([UNIT[at]])
        candidate = cursor.propose(UNIT[at : at + 1], 5)
        assert candidate is not None
        kinds.append((candidate.source, candidate.match_length))
    assert kinds[0] == (DraftSource.FAR, 1)
    assert kinds[PROVEN_MATCH - 2] == (DraftSource.FAR, PROVEN_MATCH - 1)
    assert kinds[PROVEN_MATCH - 1] == (DraftSource.FOLLOW, PROVEN_MATCH)


def test_one_common_token_in_a_huge_prediction_is_searched_near_home() -> None:
    """In 131,072 equal tokens the search looks around home only, and still finds a place."""
    cursor = Cursor([7] * 131_072)
    cursor.follow([7] * 1000 + [8])
    candidate = cursor.propose([8, 7], 3)
    assert candidate == (DraftSource.NEAR, 1, [7, 7, 7])


def test_an_empty_prediction_leads_nowhere() -> None:
    """Without a prediction there is no lead, whatever is said."""
    assert next_after([], []) is None
    assert next_after([], [1, 2, 3]) is None
    assert next_after([1], [2, 1]) is None
