"""Frames over a socket pair: whole, in order, however they are cut; and one end, from whichever side."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.engine.wire.frames import (
    Finished,
    FromEngine,
    Interrupt,
    Stats,
    Tokens,
    Waterfall,
    engine_unpacker,
    pack,
)
from vivace.server.backends.native.engines.transport import EngineTransport, SocketTransport

FRAMES: list[FromEngine] = [Tokens("t", [1, 2, 3]), Tokens("u", []), Finished("t", "stop", Waterfall())]


class Peer:
    """The engine's end, and what the server's end told of it."""

    def __init__(self, theirs: socket.socket) -> None:
        self.socket = theirs
        self.frames: list[FromEngine] = []
        self.reads: list[int] = []  # how many frames came in each
        self.ends = 0

    def on_frames(self, frames: list[FromEngine]) -> None:
        self.frames += frames
        self.reads.append(len(frames))

    def on_closed(self) -> None:
        self.ends += 1

    async def heard(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.frames) < count:  # noqa: ASYNC110 - a callback's state
                await asyncio.sleep(0.001)

    async def ended(self) -> None:
        async with asyncio.timeout(30):
            while not self.ends:  # noqa: ASYNC110 - a callback's state
                await asyncio.sleep(0.001)


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[EngineTransport, Peer]]:
    ours, theirs = socket.socketpair()
    peer = Peer(theirs)
    transport = await SocketTransport.open(ours, peer.on_frames, peer.on_closed)
    try:
        yield transport, peer
    finally:
        transport.close()
        await peer.ended()
        theirs.close()
    assert peer.ends == 1


async def test_frames_go_both_ways() -> None:
    """What one side packs the other unpacks."""
    async with opened() as (transport, peer):
        transport.send(Interrupt("t"))
        transport.send(Stats())
        peer.socket.sendall(b"".join(map(pack, FRAMES)))
        await peer.heard(len(FRAMES))
        sent = list(engine_unpacker().feed(peer.socket.recv(1 << 16)))
    assert peer.frames == FRAMES
    assert sent == [Interrupt("t"), Stats()]


async def test_what_came_together_is_given_together() -> None:
    """Three frames that came in one read are given in one call."""
    async with opened() as (_, peer):
        peer.socket.sendall(b"".join(map(pack, FRAMES)))
        await peer.heard(len(FRAMES))
    assert peer.reads == [3]


@given(cuts=st.lists(st.integers(min_value=1, max_value=40), max_size=30))
def test_frames_are_whole_however_they_are_cut(cuts: list[int]) -> None:
    """The socket may deliver any number of bytes at a time."""
    peer = Peer(socket.socket())
    transport = SocketTransport(peer.on_frames, peer.on_closed)
    data = b"".join(map(pack, FRAMES))
    for cut in cuts:
        transport.data_received(data[:cut])
        data = data[cut:]
    transport.data_received(data)
    peer.socket.close()
    assert peer.frames == FRAMES


@pytest.mark.parametrize("ending", ["engine", "server", "no frame", "too long"])
async def test_the_end_is_told_once(ending: str) -> None:
    """Whoever closes, and whatever was sent; a frame after the end goes nowhere."""
    async with opened() as (transport, peer):
        assert not transport.is_closed
        match ending:
            case "engine":
                peer.socket.close()
            case "server":
                transport.close()
            case "no frame":
                peer.socket.sendall(b"\x00\x00\x00\x03abc")
            case "too long":
                peer.socket.sendall(b"\xff\xff\xff\xff")
        await peer.ended()
        assert transport.is_closed
        transport.send(Stats())
        transport.close()
    assert peer.frames == []
