"""Server-sent events of strangers: any cuts, any line ends, and a limit."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.server.backends.upstream.sse import EventStream, ServerEvent, TooLong

PIECES = [b"data: {}", b"data:x", b"data", b"data: \xf0\x9f\x98\x80", b"event: e", b": hm", b"id: 1", b"\xff"]
ENDS = [b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n", b"\r\r", b""]
streams = st.lists(st.sampled_from([*PIECES, *ENDS]) | st.binary(max_size=6)).map(b"".join)


def events_of(chunks: list[bytes]) -> list[ServerEvent]:
    stream = EventStream()
    return [event for chunk in chunks for event in stream.feed(chunk)] + stream.finish()


def reference(data: bytes) -> list[ServerEvent]:
    """The same, slowly and from the whole text."""
    events, name, lines = [], "", list[str]()
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    for line in [*re.split("\r\n|\r|\n", text), ""]:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            events += [ServerEvent(name, "\n".join(lines))] if lines else []
            name, lines = "", []
        elif field == "data":
            lines.append(value)
        elif field == "event":
            name = value
    return events


@given(streams, st.lists(st.integers(0, 200)))
def test_cuts_change_nothing(data: bytes, cuts: list[int]) -> None:
    """However the bytes are cut, between CR and LF or inside a character: the same events."""
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    chunks = [data[start:end] for start, end in itertools.pairwise(places)]
    assert events_of(chunks) == events_of([data]) == reference(data)


@given(streams)
def test_single_bytes_are_chunks_too(data: bytes) -> None:
    """One byte at a time gives the same."""
    assert events_of([data[at : at + 1] for at in range(len(data))]) == reference(data)


def test_an_event_is_given_when_its_empty_line_ends() -> None:
    """Not a byte later: with bare CRs nothing waits for a line feed that may never come."""
    stream = EventStream()
    assert stream.feed(b"event: a\rdata: 1\rdata: 2\r") == []
    assert stream.feed(b"\r") == [ServerEvent("a", "1\n2")]
    assert stream.feed(b"\ndata: 3\n\n") == [ServerEvent("", "3")]


def test_what_is_no_data_is_passed_over() -> None:
    """Comments, ids and unknown fields are no events; a byte order mark is no part of the first field."""
    assert events_of([b"\xef\xbb\xbfdata: 1\n\n: ping\n\nid: 7\nretry: 1\nother\n\n"]) == [
        ServerEvent("", "1")
    ]


def test_bytes_that_are_no_characters_are_replaced() -> None:
    """Half of a character is one replacement, and the rest of the event is there."""
    assert events_of([b"data: a\xf0\x9f", b"\x98z\n\n"]) == [ServerEvent("", "a\ufffdz")]


@pytest.mark.parametrize("piece", [b"x" * 100, b"data: y\n", b"data\n", b"data: " + b"z" * 200])
def test_an_event_that_never_ends_is_refused(piece: bytes) -> None:
    """Neither a long line nor endless lines are held for ever."""
    stream = EventStream(max_bytes=1000)
    with pytest.raises(TooLong):
        list(map(stream.feed, [piece] * 2000))


def test_many_short_events_are_no_long_one() -> None:
    """The limit is for one event, whatever comes in between."""
    stream = EventStream(max_bytes=100)
    count = sum(len(stream.feed(b": hm\r\nevent: e\r\ndata: 12345\r\n\r\n")) for _ in range(1000))
    assert count == 1000


def test_comments_for_ever_are_no_long_event() -> None:
    """A server that only says that it is alive may do so for hours."""
    stream = EventStream(max_bytes=100)
    for _ in range(1000):
        assert stream.feed(b": still here\n") == []
