"""Bytes of tokens to text that may be sent."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from vivace.protocol.writing.text_stream import TextStream

FEW = st.text("ab\u00e9\U0001f600", max_size=30)  # a small alphabet, so that stops occur and overlap


def cut(data: bytes, places: list[int]) -> list[bytes]:
    marks = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in itertools.pairwise(marks)]


def cut_before_stop(text: str, stops: list[str]) -> str:
    """What a reader who sees one character after the other would keep."""
    for end in range(len(text) + 1):
        hits = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if hits:
            return text[: min(hits)]
    return text


@given(st.binary(max_size=60), st.lists(st.integers(0, 100)))
def test_any_bytes_become_the_text_they_are(data: bytes, places: list[int]) -> None:
    """However bytes are cut into tokens, the text is that of all bytes, bad ones replaced."""
    stream = TextStream()
    text = "".join(stream.feed(piece) for piece in cut(data, places)) + stream.finish()
    assert text == data.decode("utf-8", "replace")


@given(FEW, st.lists(st.integers(0, 200)))
def test_a_character_is_never_cut(text: str, places: list[int]) -> None:
    """Every delta of good UTF-8 is a part of the text: no replacement character on the way."""
    stream = TextStream()
    deltas = [stream.feed(piece) for piece in cut(text.encode(), places)]
    assert "".join(deltas) == text
    assert stream.finish() == ""


@given(FEW, st.lists(st.text("ab\u00e9", min_size=1, max_size=4), min_size=1), st.lists(st.integers(0, 200)))
def test_text_ends_before_the_first_stop_string(text: str, stops: list[str], places: list[int]) -> None:
    """Whatever was sent at any time is a beginning of the text before the stop: no part of one leaks."""
    stream, sent, wanted = TextStream(stops), "", cut_before_stop(text, stops)
    for piece in cut(text.encode(), places):
        sent += stream.feed(piece)
        assert wanted.startswith(sent)
    sent += stream.finish()
    assert sent == wanted
    assert stream.is_stopped == (wanted != text)


def test_what_cannot_become_a_stop_is_sent_at_once() -> None:
    """Only the possible beginning of a stop string waits."""
    stream = TextStream(["STOP"])
    assert [stream.feed(piece) for piece in (b"go S", b"T", b"x", b"S")] == ["go ", "", "STx", ""]
    assert stream.finish() == "S"
