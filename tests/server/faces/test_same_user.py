"""A ticket or a cookie that was stolen is of no use to another user, however that one's socket ends."""

import asyncio
import base64
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.server.inside import Inside, served_here
from tests.server.serving import fetch, script, until
from tests.web.facing import facing
from vivace.client.warm import ServerAddress
from vivace.config import Settings
from vivace.server.faces.same_user import is_same_user
from vivace.server.transport.access.auth import FACES_PATH

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell whose a socket is")
on_loop = pytest.mark.asyncio(loop_scope="module")
as_root = pytest.mark.skipif(
    os.getuid() != 0 or not Path("/usr/bin/python3").exists(), reason="only root may become other users"
)

NOBODY, SOMEBODY = 65534, 54321
PYTHON = "/usr/bin/python3"  # which any user may run
# Connects, sends what it reads, ends its side as told, and prints what it hears.
CLIENT = """
import os, socket, struct, sys
port, how = int(sys.argv[1]), sys.argv[2]
client = socket.create_connection(("127.0.0.1", port), timeout=20)
print(client.getsockname()[1], flush=True)
client.sendall(sys.stdin.buffer.read())
if how == "exit":
    os._exit(0)
if how == "reset":
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
if how in ("close", "reset"):
    client.close()
    sys.exit()
if how == "shut":
    client.shutdown(socket.SHUT_WR)
try:
    print(client.recv(65536).decode("latin-1").partition("\\r\\n")[0], flush=True)
except OSError as error:
    print(error, flush=True)
"""
ENDS = ("stay", "shut", "close", "exit", "reset")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def inside(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Inside]:
    folder = tmp_path_factory.mktemp("same-user")
    settings = Settings(
        cache_dir=folder / "cache",
        state_dir=folder,
        port=0,
        threads=1,
        model=script(folder, replies={"": "Hello."}),
        allow_scripted=True,
    )
    async with served_here(settings) as served:
        yield served


@pytest.fixture
def private(tmp_path: Path) -> Path:
    folder = tmp_path / "private"
    folder.mkdir(mode=0o700)
    return folder


def get(address: ServerAddress, path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{address.port}\r\nConnection: close\r\n\r\n".encode()


def upgrade(address: ServerAddress, cookie: str, *requests: dict[str, Any]) -> bytes:
    """A WebSocket of a face and its first messages, all of them at once."""
    origin = f"http://127.0.0.1:{address.port}"
    key = base64.b64encode(os.urandom(16)).decode()
    lines = [
        f"GET {FACES_PATH} HTTP/1.1",
        f"Host: 127.0.0.1:{address.port}",
        f"Origin: {origin}",
        f"Cookie: {cookie}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {key}",
    ]
    frames = b"".join(masked(json.dumps(each).encode()) for each in requests)
    return "\r\n".join([*lines, "", ""]).encode() + frames


def masked(text: bytes) -> bytes:
    assert len(text) < 65536
    return bytes([0x81, 0x80 | 126]) + len(text).to_bytes(2, "big") + bytes(4) + text


async def speak(address: ServerAddress, sent: bytes, how: str, user: int | None = None) -> str:
    """Send this in a process of that user, and return what it heard when the server is done with it."""

    def run() -> str:
        command = [PYTHON, "-c", CLIENT, str(address.port), how]
        options: dict[str, Any] = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        done = subprocess.run(command, input=sent, stdout=subprocess.PIPE, cwd="/", timeout=60, **options)
        port, _, heard = done.stdout.decode().partition("\n")
        until(lambda: not is_connected(address.port, int(port)))
        return heard.strip()

    return await asyncio.to_thread(run)


def is_connected(server: int, client: int) -> bool:
    """Whether the server still has its end of a connection."""
    ends = f":{server:04X}", f":{client:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    return any(row[1].endswith(ends[0]) and row[2].endswith(ends[1]) and row[9] != "0" for row in rows[1:])


async def ticket_of(address: ServerAddress) -> str:
    body = {"purpose": "browser"}
    _, answer = await asyncio.to_thread(fetch, address, "POST", "/v1/vivace/tickets", body)
    return str(answer["ticket"])


async def cookie_for(inside: Inside, folder: Path) -> str:
    """The cookie of a session in this folder, as its owner's browser has it."""
    address = inside.address
    ticket = await ticket_of(address)
    reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
    writer.write(get(address, f"/enter?ticket={ticket}&folder={folder}"))
    answer = (await reader.read()).decode("latin-1")
    writer.close()
    return answer.partition("set-cookie: ")[2].partition(";")[0]


WRITING: tuple[dict[str, Any], ...] = (  # what a face asks in order to make a file
    {"id": 1, "do": "hello"},
    {"id": 2, "do": "files.write", "path": "made.txt", "text": "made\n" * 40, "digest": ""},
)


@on_loop
@as_root
@pytest.mark.parametrize("how", ENDS)
async def test_a_stolen_ticket_lets_nobody_in(inside: Inside, how: str) -> None:
    """Not while the socket is open, half closed, closed or gone; and its owner can still enter with it."""
    ticket = await ticket_of(inside.address)
    heard = await speak(inside.address, get(inside.address, f"/enter?ticket={ticket}"), how, NOBODY)
    assert heard in ("", "HTTP/1.1 403 Forbidden")
    assert (heard != "") == (how in ("stay", "shut"))
    answer = await speak(inside.address, get(inside.address, f"/enter?ticket={ticket}"), "stay")
    assert answer == "HTTP/1.1 200 OK"


@on_loop
@as_root
@pytest.mark.parametrize("how", ENDS)
async def test_a_stolen_cookie_reaches_no_file(inside: Inside, private: Path, how: str) -> None:
    """What is sent together with the end of the connection is not done either."""
    cookie = await cookie_for(inside, private)
    heard = await speak(inside.address, upgrade(inside.address, cookie, *WRITING), how, NOBODY)
    assert "101" not in heard
    async with facing(inside.address, headers={"Origin": f"http://127.0.0.1:{inside.port}"}) as face:
        await face.ask("hello")
    assert not os.listdir(private)  # noqa: PTH208


@on_loop
@pytest.mark.parametrize("how", ["stay", "shut"])
async def test_its_owner_is_served_however_the_socket_ends(inside: Inside, private: Path, how: str) -> None:
    """A client that tells its end together with the request, and waits for the answer, gets it."""
    ticket = await ticket_of(inside.address)
    sent = get(inside.address, f"/enter?ticket={ticket}&folder={private}")
    assert await speak(inside.address, sent, how) == "HTTP/1.1 200 OK"
    cookie = await cookie_for(inside, private)
    sent = upgrade(inside.address, cookie, *WRITING)
    assert await speak(inside.address, sent, how) == "HTTP/1.1 101 Switching Protocols"


# ---- for an ordinary user -----------------------------------------------------------------------------

JUDGE = f"""
import os, runpy, socket, sys
is_same_user = runpy.run_path(sys.argv[1])["is_same_user"]
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
os.setgroups([])
os.setgid({SOMEBODY})
os.setuid({SOMEBODY})
print(listener.getsockname()[1], flush=True)
while True:
    connection, client = listener.accept()
    while len(connection.recv(100, socket.MSG_PEEK)) == 0:
        pass
    sys.stdin.readline()
    print(is_same_user(client, connection.getsockname()), flush=True)
    connection.close()
"""


@as_root
@pytest.mark.parametrize("how", ["stay", "shut", "close", "exit"])
@pytest.mark.parametrize(("user", "is_let_in"), [(SOMEBODY, True), (NOBODY, False), (0, True)])
def test_an_ordinary_user_is_told_from_others(user: int, is_let_in: bool, how: str) -> None:
    """Root is let in as it is; whose socket is gone already is nobody's, not root's as the table says."""
    judge = subprocess.Popen(
        [PYTHON, "-c", JUDGE, is_same_user.__code__.co_filename],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert judge.stdin is not None
    assert judge.stdout is not None
    try:
        port = int(judge.stdout.readline())
        client = subprocess.Popen(
            [PYTHON, "-c", CLIENT, str(port), how],
            user=user,
            group=user,
            extra_groups=[],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
        )
        assert client.stdin is not None
        assert client.stdout is not None
        own = int(client.stdout.readline())
        client.stdin.write(b"x" * 10)
        client.stdin.close()
        if how in ("close", "exit"):
            client.wait(20)
        elif how == "shut":
            until(lambda: state_of(port, own) in ("04", "05"))
        judge.stdin.write("\n")
        judge.stdin.flush()
        said = judge.stdout.readline().strip()
    finally:
        judge.kill()
        judge.wait()
        client.wait(20)
        for pipe in (judge.stdin, judge.stdout, client.stdout):
            pipe.close()
    assert said == str(is_let_in and how in ("stay", "shut"))


def state_of(server: int, client: int) -> str:
    """The state of the client's end."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    ends = f":{client:04X}", f":{server:04X}"
    return next((row[3] for row in rows[1:] if row[1].endswith(ends[0]) and row[2].endswith(ends[1])), "")


def test_what_is_not_known_is_a_no() -> None:
    """No such socket, no address, one that is no IPv4 address, or an older connection that is over."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = listener.getsockname()
        client = socket.create_connection(server)
        accepted, place = listener.accept()
        assert is_same_user(place, server)
        assert not is_same_user(None, server)
        assert not is_same_user(place, None)
        assert not is_same_user(("::1", place[1]), server)
        assert not is_same_user((place[0], 1), server)
        accepted.close()
        client.close()
        assert not is_same_user(place, server)
