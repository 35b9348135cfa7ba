"""The log as a text to find drafts in."""

import random

from hypothesis import given
from hypothesis import strategies as st

from vivace.engine.speculation import History
from vivace.engine.speculation import suffix as suffix_module

Few = st.lists(st.integers(0, 3), max_size=80)  # few different tokens: many matches


def longest_by_hand(log: list[int]) -> int:
    """Length of the longest end of the log that occurs before its end, up to what History follows."""
    lengths = [0]
    for place in range(1, len(log)):
        length = 0
        while length < min(place, suffix_module.MAX_MATCH) and log[place - 1 - length] == log[-1 - length]:
            length += 1
        lengths.append(length)
    return max(lengths)


def test_it_continues_the_longest_match() -> None:
    """What followed the longest match of the log's end is recalled, not what followed a later one."""
    log = [1, 2, 3, 4, 50, 51, *range(100, 120), 9, 3, 4, 60, *range(200, 220), 1, 2, 3, 4]
    assert History(log).find_continuation(2) == ([50, 51], 4)


def test_of_equal_matches_the_latest_counts() -> None:
    """Of two matches of one length the later is continued, and it counts as unclear."""
    log = [7, 8, 50, *range(100, 120), 7, 8, 60, *range(200, 220), 7, 8]
    assert History(log).find_continuation(1) == ([60], 0)


def test_matches_that_agree_are_clear() -> None:
    """Two matches with the same continuation count in full."""
    log = [7, 8, 50, *range(100, 120), 7, 8, 50, *range(200, 220), 7, 8]
    assert History(log).find_continuation(1) == ([50], 2)


def test_a_match_at_the_very_end_gives_way_to_one_with_text_behind_it() -> None:
    """In a repetition the draft comes from where there is enough to draft."""
    assert len(History([5, 6] * 40).find_continuation(63)[0]) >= suffix_module.MIN_CONTINUATION


def test_new_text_recalls_nothing() -> None:
    """A last token that never occurred before gives no draft, nor does an empty log or a single token."""
    assert History([1, 2, 3, 4]).find_continuation(5) == ([], 0)
    assert History([]).find_continuation(5) == ([], 0)
    assert History([1]).find_continuation(5) == ([], 0)


@given(Few)
def test_the_match_is_the_longest_there_is(log: list[int]) -> None:
    """No longer match exists than the one found, compared with a search by hand."""
    tokens, length = History(log).find_continuation(1)
    longest = longest_by_hand(log)
    assert length in (longest, 0)
    assert bool(tokens) == (longest > 0)


@given(Few, Few, st.data())
def test_truncate_and_extend_equal_a_fresh_build(
    one: list[int], other: list[int], data: st.DataObject
) -> None:
    """A history that was rewound and went another way recalls what one built from that log recalls."""
    length = data.draw(st.integers(0, len(one)))
    history = History(one)
    history.truncate(length)
    history.extend(other)
    fresh = History(one[:length] + other)
    assert len(history) == len(fresh)
    assert history.tail(1000) == one[:length] + other
    assert history.find_continuation(20) == fresh.find_continuation(20)


def test_a_log_of_one_token_is_searched_in_bounded_work() -> None:
    """In 131,072 equal tokens only the latest few places are compared, and the draft is found."""
    text = History([7] * 131_072)
    places, length = suffix_module.longest_matches(text._tokens[: len(text)], text.tail(32))
    assert len(places) <= suffix_module.MAX_PLACES
    assert length == suffix_module.MAX_MATCH
    assert text.find_continuation(10)[0] == [7] * 10


def test_an_old_match_is_found_behind_many_of_its_last_token() -> None:
    """A long match far back is found although its last tokens occurred since, the last one everywhere."""
    rng = random.Random(5)
    noise = [token for _ in range(40_000) for token in (rng.randrange(100, 200), 1)]
    log = [30, 31, 32, 1, 77, 78, *noise, 32, 1, *noise[:400], 30, 31, 32, 1]
    assert History(log).find_continuation(2) == ([77, 78], 4)


def test_it_grows_by_pieces_as_by_one() -> None:
    """Extending token by token or all at once gives the same history."""
    tokens = [random.Random(6).randrange(50) for _ in range(3000)]
    pieces = History()
    for token in tokens:
        pieces.extend([token])
    assert pieces.find_continuation(20) == History(tokens).find_continuation(20)
