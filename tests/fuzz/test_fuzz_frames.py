"""Frames between engine and server, messages of faces, and WebSocket frames: nonsense is refused in words."""

import asyncio
import itertools
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.conversation.sharing.wire import frames as sharing
from vivace.client.websocket import BadFrame, FrameReader
from vivace.engine.wire import frames
from vivace.protocol import face_frames
from vivace.protocol.shapes.parsing import parse_create
from vivace.protocol.shapes.refusal import Refusal
from vivace.web.messages.requests import AnyRequest

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
ENGINE = [frames.Interrupt(turn="t"), frames.Close(session="s"), frames.Stats()]
_decode_request = msgspec.json.Decoder(AnyRequest).decode


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """Return the data as a stream may bring it."""
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(places)]


@given(st.lists(st.binary(max_size=40), max_size=4), st.lists(st.integers(0, 500)), st.data())
def test_an_engine_takes_frames_or_refuses_the_stream(
    noise: list[bytes], cuts: list[int], data: st.DataObject
) -> None:
    """Whole frames come out however they are cut; what is none is a `FrameError`, and nothing else."""
    whole = data.draw(st.lists(st.sampled_from(ENGINE), max_size=4))
    sent = b"".join(map(frames.pack, whole))
    unpacker = frames.engine_unpacker()
    got = [frame for piece in pieces(sent, cuts) for frame in unpacker.feed(piece)]
    assert got == whole
    try:
        for each in noise:
            unpacker.feed(each)
    except frames.FrameError:
        pass


@given(st.lists(st.binary(max_size=60), max_size=6))
def test_a_server_takes_frames_or_refuses_the_stream(noise: list[bytes]) -> None:
    """The same for what an engine sends."""
    unpacker = frames.server_unpacker()
    try:
        for each in noise:
            unpacker.feed(each)
    except frames.FrameError:
        pass


@given(ANY_JSON)
def test_any_msgpack_is_a_frame_or_refused(value: Any) -> None:
    """Well-formed MessagePack of another shape is refused, too."""
    try:
        body = msgspec.msgpack.encode(value)
    except OverflowError:
        return
    with suppress(frames.FrameError):
        frames.engine_unpacker().feed(len(body).to_bytes(4, "big") + body)


@given(ANY_JSON, st.sampled_from(["hello", "files.read", "conversation.send", "approve", "x"]))
def test_any_message_of_a_face_is_a_request_or_refused(value: Any, do: str) -> None:
    """A browser may send anything: it is a request, or msgspec says what is wrong with it."""
    fields = value if isinstance(value, dict) else {"text": value}
    with suppress(msgspec.DecodeError, OverflowError):
        _decode_request(msgspec.json.encode({"id": 1, "do": do} | fields))


@given(st.binary(min_size=4, max_size=4))
def test_a_length_is_bounded(head: bytes) -> None:
    """No length makes the host wait for more than it would keep."""
    try:
        assert face_frames.length_of(head) <= face_frames.MAX_FRAME_BYTES
    except face_frames.BadFrame:
        assert int.from_bytes(head, "big") > face_frames.MAX_FRAME_BYTES


@given(st.binary(max_size=200))
def test_faces_of_one_conversation_refuse_nonsense(data: bytes) -> None:
    """What comes over the socket between two faces is a frame, or the connection is over."""

    async def read() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        while True:
            sharing.decode_from_holder(await sharing.read_frame(reader))

    with pytest.raises((EOFError, ValueError)):
        asyncio.run(read())


@given(ANY_JSON | st.binary(max_size=80))
def test_any_request_for_a_response_is_parsed_or_refused(value: Any) -> None:
    """A message on the server's socket is a request, or an error with words."""
    with suppress(Refusal, OverflowError):
        parse_create(value if isinstance(value, bytes) else msgspec.json.encode(value))


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_a_websocket_of_ours_takes_frames_or_refuses(data: list[bytes]) -> None:
    """What a server may not send is a `BadFrame`, however it is cut."""
    whole, cut = FrameReader(), FrameReader()

    def outcome(reader: FrameReader, parts: list[bytes]) -> object:
        try:
            return [(code, bytes(payload)) for part in parts for code, payload in reader.feed(part)]
        except BadFrame as error:
            return str(error)

    assert outcome(whole, [b"".join(data)]) == outcome(cut, data)
