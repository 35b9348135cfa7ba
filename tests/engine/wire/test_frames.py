"""Frames on a byte stream."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.engine.wire.frames import (
    FrameError,
    Generate,
    Open,
    ToEngine,
    Tokens,
    engine_unpacker,
    pack,
    server_unpacker,
)

FRAMES: list[ToEngine] = [Open("s", [1, 2]), Generate("s", "t", [3], stop=["\n```"]), Open("ü", [])]


@given(st.lists(st.integers(1, 20)))
def test_frames_survive_any_cut_of_the_stream(cuts: list[int]) -> None:
    """However the stream is cut, the same frames come out."""
    stream = b"".join(map(pack, FRAMES))
    unpacker, seen = engine_unpacker(), []
    for cut in [*cuts, len(stream)]:
        seen += list(unpacker.feed(stream[:cut]))
        stream = stream[cut:]
    assert seen == FRAMES


def test_a_frame_that_claims_to_be_huge_is_refused() -> None:
    """A length that nobody would send is an error at once, not a wait for gigabytes."""
    with pytest.raises(FrameError):
        list(engine_unpacker().feed(b"\xff\xff\xff\xff"))


def test_what_is_not_a_frame_is_refused() -> None:
    """Bytes that are no frame of this side's are a FrameError."""
    with pytest.raises(FrameError):
        list(engine_unpacker().feed(pack(Tokens("t", [1]))))
    with pytest.raises(FrameError):
        list(server_unpacker().feed(b"\0\0\0\3abc"))
