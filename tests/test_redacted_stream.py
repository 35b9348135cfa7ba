"""Secrets that are cut between two pieces of a stream."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.events.task import AnyStep, RedactedSteps, TextGrew, TurnBegan, encode_step
from vivace.redaction import MAX_HELD, RedactedStream, redact

BODY = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJ"
SECRETS = (
    f"sk-{BODY}",
    f"ghp_{BODY}",
    f"github_pat_{BODY}",
    f"glpat-{BODY}",
    f"hf_{BODY}",
    f"vv_{BODY}",
    f"npm_{BODY}",
    f"AIza{BODY}",
    f"eyJ{BODY}.eyJ{BODY}.{BODY}",
    "AKIAABCDEFGHIJKLMNOP",
    f"Bearer {BODY}",
    f"https://someone:{BODY}@example.org/",
    f"export DB_PASSWORD={BODY}",
    f'"api_key": "{BODY}"',
    f"-----BEGIN RSA PRIVATE KEY-----\n{BODY}\n{BODY}\n-----END RSA PRIVATE KEY-----",
)
WORDS = ("the", "task-list", "is", "secret", "a", "https://example.org", "x = 1", "bear", "--", "s", "\n")


def streamed(pieces: list[str]) -> str:
    stream = RedactedStream()
    return "".join([*map(stream.grow, pieces), stream.end()])


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_found_wherever_it_is_cut(secret: str) -> None:
    """In two pieces at every place, and character by character."""
    text = f"It is {secret} and no more."
    assert BODY[:20] not in redact(text)
    for at in range(len(text)):
        assert streamed([text[:at], text[at:]]) == redact(text)
    assert streamed(list(text)) == redact(text)


@given(st.lists(st.sampled_from([*SECRETS, *WORDS]), max_size=6), st.integers())
def test_pieces_give_what_the_whole_gives(parts: list[str], seed: int) -> None:
    """However the text is cut."""
    text, at = " ".join(parts), 0
    draw, pieces = random.Random(seed), []
    while at < len(text):
        step = draw.randint(1, 12)
        pieces.append(text[at : at + step])
        at += step
    assert streamed(pieces) == redact(text)


@given(st.lists(st.text(max_size=20), max_size=20))
def test_nothing_else_is_lost(pieces: list[str]) -> None:
    """Text without secrets comes out as it went in."""
    text = "".join(pieces)
    if redact(text) == text:
        assert streamed(pieces) == text


def test_plain_words_are_not_held_back() -> None:
    """What cannot begin a secret is given on at once."""
    stream = RedactedStream()
    assert stream.grow("hello world. ") == "hello world. "
    assert stream.grow("number 1") == "number 1"


def test_what_is_held_is_bounded() -> None:
    """A key without an end does not hold the stream for ever."""
    stream = RedactedStream()
    given_on = stream.grow("-----BEGIN PRIVATE KEY-----")
    for _ in range(60):
        given_on += stream.grow("A" * 1000)
        assert len(stream._held) <= MAX_HELD
    assert given_on


def test_steps_of_a_task_are_written_without_it() -> None:
    """A text in pieces; what was held back comes before the step that follows it."""
    written = RedactedSteps()
    secret = SECRETS[0]
    steps: list[AnyStep] = [
        TextGrew(text="key "),
        *(TextGrew(text=each) for each in secret),
        TurnBegan(turn=2),
    ]
    lines = [encode_step(each) for step in steps for each in written.take(step)]
    assert not [line for line in lines if BODY[:8] in line]
    assert "[redacted:api-key]" in lines[-2]
    assert "task.turn" in lines[-1]
