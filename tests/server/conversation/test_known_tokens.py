"""A history that is sent again, in the tokens in which it was written."""

from hypothesis import given
from hypothesis import strategies as st

from vivace.server.conversation.known_tokens import in_known_tokens
from vivace.server.conversation.token_log import TokenLog

# Tokens of one to three letters; 90 and above are control tokens, which say nothing.
PIECES = [*"ab", *(x + y for x in "ab" for y in "ab"), *(x + y + z for x in "ab" for y in "ab" for z in "ab")]
CONTROL = 90


def bytes_of(token: int) -> bytes:
    return b"" if token >= CONTROL else PIECES[token].encode()


def said(tokens: list[int]) -> list[bytes | int]:
    """Text and control tokens in their order."""
    found: list[bytes | int] = [b""]
    for token in tokens:
        if token >= CONTROL:
            found += [token, b""]
        else:
            assert isinstance(found[-1], bytes)
            found[-1] += bytes_of(token)
    return found


def known(prompt: list[int], *logs: list[int]) -> list[int]:
    return in_known_tokens(prompt, [TokenLog(log) for log in logs], bytes_of)


def token(text: str) -> int:
    return PIECES.index(text)


def test_the_same_text_takes_the_logs_tokens() -> None:
    """And what follows it is the same again."""
    prompt = [91, token("ab"), token("a"), 92, token("b"), 93]
    log = [91, token("a"), token("ba"), 92, token("b")]
    assert known(prompt, log) == [*log, 93]


def test_other_text_stays_as_it_is() -> None:
    """Up to the last place where both have said the same."""
    assert known([token("ab"), token("b")], [token("a"), token("b"), token("a")]) == [0, 1, token("b")]
    assert known([token("ab")], [token("aa")]) == [token("ab")]
    assert known([token("ab")], []) == [token("ab")]
    assert known([]) == []


def test_a_control_token_is_no_text() -> None:
    """It is never taken for text, and text is never taken for it."""
    assert known([token("ab"), 91], [token("a"), 91]) == [token("ab"), 91]
    assert known([91, token("ab")], [92, token("ab")]) == [91, token("ab")]


def test_the_log_that_has_most_counts() -> None:
    """Whichever comes first."""
    short, long = [token("a"), token("b")], [token("a"), token("b"), 91, token("b"), token("b")]
    prompt = [token("ab"), 91, token("bb"), token("a")]
    assert known(prompt, short, long) == known(prompt, long, short) == [*long, token("a")]


TOKENS = st.lists(st.integers(0, len(PIECES) - 1) | st.integers(CONTROL, CONTROL + 2), max_size=40)


@given(TOKENS, st.lists(TOKENS, max_size=3))
def test_nothing_else_is_said(prompt: list[int], logs: list[list[int]]) -> None:
    """Whatever the logs hold."""
    assert said(known(prompt, *logs)) == said(prompt)


@given(st.text("ab", min_size=1, max_size=300), st.data())
def test_any_way_to_write_a_text_is_found(text: str, data: st.DataObject) -> None:
    """However often the two differ on the way."""

    def written() -> list[int]:
        tokens, at = [], 0
        while at < len(text):
            length = min(data.draw(st.integers(1, 3)), len(text) - at)
            tokens.append(token(text[at : at + length]))
            at += length
        return tokens

    log = [91, *written(), 92]
    assert known([91, *written(), 92, 93], log) == [*log, 93]
