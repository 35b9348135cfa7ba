"""What of a file is read for a completion, and which KV the next one begins with."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.protocol.shapes.requests import Infill
from vivace.server.backends.native.infill_sessions import MOST_PLACES, InfillSessions, shared_tokens
from vivace.server.conversation.infill_prompt import BLOCK_CHARS, around_gap, beginning_of, end_of
from vivace.server.conversation.token_log import Session, Source

TEXT = st.text(st.sampled_from("ab\n"), max_size=600)


@given(TEXT, st.integers(1, 300))
def test_the_end_of_a_text(text: str, most: int) -> None:
    """It is an end of the text, and never longer than allowed."""
    kept = end_of(text, most)
    assert text.endswith(kept)
    assert len(kept) <= most
    assert kept == text or len(text) > most


@given(TEXT, st.integers(1, 300))
def test_the_beginning_of_a_text(text: str, most: int) -> None:
    """It is a beginning of the text, never longer than allowed, and ends with a line where it can."""
    kept = beginning_of(text, most)
    assert text.startswith(kept)
    assert len(kept) <= most


def test_typing_does_not_move_the_cut() -> None:
    """What is cut off a long file stays the same for many lines, so that the rest stays in the KV."""
    file = "".join(f"line {number}\n" for number in range(1000))
    starts = {end_of(file + "x" * typed, 4096)[:40] for typed in range(60)}
    assert len(starts) <= 2
    assert all(start.startswith("line ") for start in starts)


def test_a_prompt_without_a_gap_is_whole() -> None:
    """Only what stands around a gap is cut: a prompt is read, or refused for its length."""
    assert around_gap(Infill("x" * 9000), 4096, 160) == Infill("x" * 9000)
    assert around_gap(Infill("x" * 9000, "y" * 900), 4096, 160) == Infill("x" * 3880, "y" * 160)


def test_one_long_line_is_cut_in_blocks() -> None:
    """A minified file has no lines to cut at."""
    starts = {10_000 + typed - len(end_of("x" * (10_000 + typed), 4096)) for typed in range(300)}
    assert {start % BLOCK_CHARS for start in starts} == {0}
    assert len(starts) <= 2


def opened(tokens: list[int], tenant: str = "") -> Session:
    session = Session(tokens, tenant)
    session.open_in, session.sent_tokens = object(), len(tokens)
    return session


@given(st.lists(st.integers(0, 1), max_size=12), st.lists(st.integers(0, 1), min_size=1, max_size=12))
def test_shared_tokens(one: list[int], other: list[int]) -> None:
    """Both begin with them, they are as many as can be, and one token is always left to compute."""
    shared = shared_tokens(one, other)
    assert one[:shared] == other[:shared]
    assert shared < len(other)
    assert shared == min(len(one), len(other) - 1) or one[shared] != other[shared]


def test_a_prompt_forks_from_the_one_most_like_it() -> None:
    """Of the same tenant only, and only where it is worth it."""
    infills = InfillSessions()
    near, far = opened([*range(50), 99]), opened([*range(30), 98])
    foreign = opened([*range(60)], "someone")
    for session in (near, far, foreign):
        infills.add(session, "")
    assert infills.nearest(Session(range(60))) == Source(near, 50)
    assert infills.nearest(Session([7, 8, 9])) is None
    assert infills.nearest(Session(range(10))) is None, "too few to be worth it"


def test_the_one_that_was_typed_on_goes_and_others_stay() -> None:
    """A place keeps one session, there are few places, and one with a running turn is left alone."""
    infills = InfillSessions()
    other, before, busy = opened([*range(100, 150)]), opened([*range(50)]), opened([*range(200, 250)])
    busy.writer = object()
    for session in (busy, other, before):
        infills.add(session, "")
    after = opened([*range(55)])
    after.source = infills.nearest(after)
    infills.add(after, "")
    assert infills.outdated(after) == [before]
    assert after.source is None
    for place in range(MOST_PLACES):
        last = opened([*range(1000 * (place + 1), 1000 * (place + 1) + 20)])
        infills.add(last, "")
        gone = infills.outdated(last)
        assert busy not in gone
    assert infills.nearest(Session(range(100, 160))) is None, "the oldest place was given up"


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [("x = fo", "o(bar)"), ("x = ", "foo(bar)"), ("x = fx", ""), ("y = fo", ""), ("x =", "")],
)
def test_the_rest_of_a_suggestion_is_expected(prefix: str, expected: str) -> None:
    """Whoever types how it begins is suggested the rest of it; whoever types something else, nothing."""
    infills = InfillSessions()
    session = opened([*range(20)])
    infills.add(session, "x = ")
    session.add_generated(list(b"foo(bar)"))
    assert infills.expected(Source(session, 20), prefix, lambda token: bytes([token])) == expected
    assert infills.expected(None, prefix, lambda token: bytes([token])) == ""
