"""What of a file is read for a completion, and which KV the next one begins with."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.protocol.shapes.requests import Infill
from vivace.server.backends.native.infill_sessions import MOST_PLACES, InfillSessions, shared_tokens
from vivace.server.conversation.infill_text import Gap, Window, beginning_of, end_of, gap_of
from vivace.server.conversation.token_log import Session, Source

TEXT = st.text(st.sampled_from("ab \n"), max_size=600)
WINDOW = Window(cold=200, most=500, behind=40, is_line_begun=True)
NOTHING = Gap("", None)
FILE = "".join(f"value_{number} = {number}\n" for number in range(100))
BEHIND = "\nprint(total)\n"


@given(TEXT, st.integers(1, 300))
def test_the_end_of_a_text(text: str, most: int) -> None:
    """It is an end of the text, never longer than allowed, and begins with a line where it can."""
    kept = end_of(text, most)
    assert text.endswith(kept)
    assert len(kept) <= most
    assert kept == text or len(text) > most
    assert len(kept) in (len(text), most) or text[-len(kept) - 1 :].startswith("\n")


@given(TEXT, st.integers(1, 300))
def test_the_beginning_of_a_text(text: str, most: int) -> None:
    """It is a beginning of the text, never longer than allowed, and ends with a line where it can."""
    kept = beginning_of(text, most)
    assert text.startswith(kept)
    assert len(kept) <= most


@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=4), st.sampled_from(["", "a", "b ", "\n"]))
def test_what_is_read_is_what_stands_around_the_gap(places: list[tuple[str, str]], stop: str) -> None:
    """However often and wherever: an end of the prefix, a beginning of the suffix, never too much."""
    earlier: list[Gap] = []
    for prefix, suffix in places:
        gap = gap_of(Infill(prefix, suffix), WINDOW, earlier, [stop] if stop else [])
        assert prefix.endswith(gap.prefix)
        assert gap.behind is not None
        assert suffix.startswith(gap.behind)
        assert len(gap.prefix) <= WINDOW.most
        assert len(gap.prefix) >= min(len(prefix), WINDOW.cold // 2) or "\n" in prefix
        assert not stop or stop not in gap.repeated
        earlier.insert(0, gap)


def test_letters_change_only_the_end() -> None:
    """While one types, over several lines too, what is before and behind stays as it was first read."""
    first = gap_of(Infill(f"{FILE}total = ", BEHIND), WINDOW, [])
    assert first.begun + first.repeated == "total = "
    earlier = [first]
    for typed in ("v", "va", "va * b\n", "va * b\nother = tot"):
        gap = gap_of(Infill(f"{FILE}total = {typed}", BEHIND), WINDOW, earlier)
        assert (gap.before, gap.behind) == (first.before, first.behind)
        assert gap.begun + gap.repeated == f"total = {typed}"
        earlier.insert(0, gap)


def test_a_new_place_begins_where_the_old_one_did() -> None:
    """Further down in the same text what was read is read no more, until it is too much."""
    first = gap_of(Infill(f"{FILE}total = ", BEHIND), WINDOW, [])
    more = "".join(f"more_{number} = {number}\n" for number in range(10))
    below = gap_of(Infill(f"{FILE}{more}x = ", "\nend\n"), WINDOW, [first])
    assert below.before == first.before + more
    far = gap_of(Infill(f"{FILE}{more * 5}x = ", "\nend\n"), WINDOW, [below, first])
    assert len(far.prefix) <= WINDOW.cold, "and then it begins anew, with little"


def test_an_edit_above_begins_anew() -> None:
    """A text that was changed in the middle is read as it is now."""
    first = gap_of(Infill(f"{FILE}total = ", BEHIND), WINDOW, [])
    changed = FILE.replace("value_98", "other_98")
    gap = gap_of(Infill(f"{changed}total = ", BEHIND), WINDOW, [first])
    assert "other_98" in gap.before
    assert f"{changed}total = ".endswith(gap.prefix)


@pytest.mark.parametrize(
    ("line", "repeated"),
    [
        ("    retu", " retu"),
        ("x = self.pun", ".pun"),
        ("if x not in ", " "),
        ("        ", "        "),
        ("call(", "("),
        ("x =", " ="),
        ("x = 12", ""),
        ("max_wid", "_wid"),
        ("", ""),
    ],
)
def test_the_last_word_is_said_again(line: str, repeated: str) -> None:
    """A token that the cursor divides is left to the model, which must begin with these letters."""
    gap = gap_of(Infill(f"a = 1\n{line}", "\n"), WINDOW, [])
    assert (gap.begun + gap.repeated, gap.repeated) == (line, repeated)


def test_a_stop_text_in_the_last_word_divides_at_the_cursor() -> None:
    """What was there before must not end the answer."""
    gap = gap_of(Infill("a = 1\nfoo(", "\n"), WINDOW, [], ["("])
    assert gap == Gap("a = 1\nfoo(", "\n")


def test_a_gpu_divides_at_the_cursor() -> None:
    """It reads what is behind in no time, and needs no grammar."""
    window = WINDOW._replace(is_line_begun=False)
    first = gap_of(Infill(f"{FILE}total = ", BEHIND), window, [])
    assert (first.begun, first.repeated) == ("", "")
    more = gap_of(Infill(f"{FILE}total = value", BEHIND), window, [first])
    assert more.before == f"{first.before}value"


def test_a_prompt_without_a_gap_is_whole() -> None:
    """Only what stands around a gap is cut: a prompt is read, or refused for its length."""
    assert gap_of(Infill("x" * 9000), WINDOW, []) == Gap("x" * 9000, None)
    cut = gap_of(Infill("x" * 9000, "y" * 900), WINDOW, [])
    assert (len(cut.prefix), cut.behind) == (WINDOW.cold, "y" * 40)


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
        infills.add(session, NOTHING)
    assert infills.nearest(Session(range(60))) == Source(near, 50)
    assert infills.nearest(Session([7, 8, 9])) is None
    assert infills.nearest(Session(range(10))) is None, "too few to be worth it"


def test_the_one_that_was_typed_on_goes_and_others_stay() -> None:
    """A place keeps one session, there are few places, and one with a running turn is left alone."""
    infills = InfillSessions()
    other, before, busy = opened([*range(100, 150)]), opened([*range(50)]), opened([*range(200, 250)])
    busy.writer = object()
    for session in (busy, other, before):
        infills.add(session, NOTHING)
    after = opened([*range(55)])
    after.source = infills.nearest(after)
    infills.add(after, NOTHING)
    assert infills.outdated(after) == [before]
    assert after.source is None
    for place in range(MOST_PLACES):
        last = opened([*range(1000 * (place + 1), 1000 * (place + 1) + 20)])
        infills.add(last, NOTHING)
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
    infills.add(session, Gap("x = ", ""))
    session.add_generated(list(b"foo(bar)"))
    assert infills.expected(Source(session, 20), prefix, lambda token: bytes([token])) == expected
    assert infills.expected(None, prefix, lambda token: bytes([token])) == ""
