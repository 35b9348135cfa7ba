"""Our side of a WebSocket: frames in any pieces, refused handshakes, pings, a close from either side."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.protocol import Side
from websockets.server import ServerProtocol

from vivace.client.websocket import BadFrame, FrameReader, HandshakeRefused, WebSocket, framed

HANG_S = 30.0
TEXTS = st.lists(st.text(max_size=200), max_size=8)
SIZES = st.integers(1, 400)
MESSAGE = 1
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def split(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    return [*pieces, data]


def server_frame(opcode: Opcode, payload: bytes, *, fin: bool = True) -> bytes:
    return Frame(opcode, payload, fin).serialize(mask=False)


@given(TEXTS, st.lists(SIZES, max_size=20), st.data())
def test_messages_are_the_same_in_any_pieces(texts: list[str], sizes: list[int], data: st.DataObject) -> None:
    """However a message is cut into frames, and the bytes into reads, it comes whole and in order."""
    sent = b""
    for text in texts:
        parts = split(text.encode(), data.draw(st.lists(SIZES, max_size=3)))
        for number, part in enumerate(parts):
            opcode = Opcode.CONT if number else Opcode.TEXT
            sent += server_frame(opcode, part, fin=number == len(parts) - 1)
            if data.draw(st.booleans()):
                sent += server_frame(Opcode.PING, b"there?")
    reader = FrameReader()
    found = [each for piece in split(sent, sizes) for each in reader.feed(piece)]
    assert [payload.decode() for opcode, payload in found if opcode == MESSAGE] == texts


@pytest.mark.parametrize("length", [0, 125, 126, 65535, 65536, 200_000])
def test_lengths_at_the_borders(length: int) -> None:
    """Each of the three forms of a length is read and written."""
    text = b"x" * length
    ((opcode, payload),) = FrameReader().feed(server_frame(Opcode.TEXT, text))
    assert (opcode, payload) == (MESSAGE, text)
    assert framed(MESSAGE, text)[-length:] != text or length < 4


@given(st.binary(max_size=70_000))
def test_what_we_send_is_what_the_library_reads(payload: bytes) -> None:
    """A frame of ours is masked, and a server makes the same bytes of it."""
    server = ServerProtocol()
    server.state = 1  # type: ignore[assignment]  # open: the handshake is over
    server.parser = server.parse()
    next(server.parser)
    server.receive_data(framed(Opcode.BINARY, payload))
    (frame,) = server.events_received()
    assert isinstance(frame, Frame)
    assert frame.data == payload
    assert server.side is Side.SERVER


@pytest.mark.parametrize(
    "data",
    [
        b"\x81\x85masked!!!",
        b"\xc1\x00",
        b"\x00\x01x",
        b"\x09\x00",
        b"\x83\x00",
        server_frame(Opcode.TEXT, b"x", fin=False) + server_frame(Opcode.TEXT, b"y"),
    ],
)
def test_what_no_server_may_send_is_refused(data: bytes) -> None:
    """Masks, extensions, unknown opcodes and parts in a wrong order are errors."""
    with pytest.raises(BadFrame):
        FrameReader().feed(data)


@asynccontextmanager
async def listening(answer: Answer) -> AsyncIterator[str]:
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", 401),
        (b"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: wrong\r\n\r\n", 101),
        (b"what?\r\n\r\n", 0),
        (b"", 0),
    ],
)
async def test_a_handshake_that_fails_is_told(answer: bytes, status: int) -> None:
    """A refusal has its status; an answer that is none has 0; nothing hangs."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with asyncio.timeout(HANG_S), listening(refuse) as url:
        with pytest.raises(HandshakeRefused) as caught:
            await WebSocket(lambda _: None, lambda: None).open(url, "token")
    assert caught.value.status == status


async def test_a_flood_comes_whole_and_is_read_in_large_pieces() -> None:
    """Ten thousand messages come in order, though the socket is read seldom; a ping is answered."""
    count = 10_000

    async def flood(connection: ServerConnection) -> None:
        pong = await connection.ping()
        for number in range(count):
            await connection.send(str(number))
        await pong
        await connection.send("end")
        with contextlib.suppress(ConnectionClosed):
            await connection.recv()

    got: list[str] = []
    done, lost = asyncio.Event(), asyncio.Event()

    def take(message: bytearray) -> None:
        got.append(message.decode())
        if got[-1] == "end":
            done.set()

    async with asyncio.timeout(HANG_S), serve(flood, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        socket = WebSocket(take, lost.set)
        await socket.open(f"ws://127.0.0.1:{port}/", "token")
        await done.wait()
        await socket.close()
        await lost.wait()
    assert got == [*map(str, range(count)), "end"]


async def test_a_close_from_the_server_is_answered() -> None:
    """The server closes: the connection is lost once, and the server sees a proper end."""
    lost: list[bool] = []
    ended = asyncio.Event()

    async def leave(connection: ServerConnection) -> None:
        await connection.close()
        assert connection.close_code == 1000
        ended.set()

    async with asyncio.timeout(HANG_S), serve(leave, "127.0.0.1", 0) as server:
        socket = WebSocket(lambda _: None, lambda: lost.append(True))
        await socket.open(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/", "token")
        await ended.wait()
        await socket.close()
    assert lost == [True]
