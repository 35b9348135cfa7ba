"""How a browser gets in: a ticket that works once, a cookie, and everything that is refused."""

import asyncio
import http.client
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.server.inside import Inside, served_here
from tests.server.serving import fetch, script
from tests.server.transport.attacks.attacking import targets
from vivace.client.warm import ServerAddress
from vivace.config import Settings
from vivace.server.faces.same_user import is_same_user
from vivace.server.faces.sessions import MAX_SESSIONS, VALID_S, Sessions
from vivace.server.transport.access.keys import add_key

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def inside(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Inside]:
    folder = tmp_path_factory.mktemp("entrance")
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


class Answer:
    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status = answer.status
        self.headers = {name.lower(): value for name, value in answer.getheaders()}
        self.body = answer.read()


async def get(address: ServerAddress, path: str, method: str = "GET", **headers: str) -> Answer:
    """One request as a browser sends it: without our token."""

    def request() -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=60)
        try:
            connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name.replace("_", "-"), value)
            connection.endheaders()
            return Answer(connection.getresponse())
        finally:
            connection.close()

    return await asyncio.to_thread(request)


async def ticket_of(address: ServerAddress, body: Any = None) -> str:
    body = {"purpose": "browser"} if body is None else body
    status, answer = await asyncio.to_thread(fetch, address, "POST", "/v1/vivace/tickets", body)
    assert status == 200, answer
    return str(answer["ticket"])


async def entered(address: ServerAddress, folder: str = "/") -> str:
    """Return the cookie of a new session, as a browser sends it back."""
    answer = await get(address, f"/enter?ticket={await ticket_of(address)}&folder={folder}")
    assert answer.status == 200
    return answer.headers["set-cookie"].partition(";")[0]


async def opened(
    address: ServerAddress, cookie: str = "", origin: str | None = "ours", path: str = ""
) -> int:
    """Return 101 if a page with this cookie and Origin gets a WebSocket, else the status."""
    ours = f"http://127.0.0.1:{address.port}"
    url = f"ws://127.0.0.1:{address.port}{path or '/v1/vivace/faces'}"
    headers = {"Cookie": cookie} if cookie else {}
    given = ours if origin == "ours" else origin
    try:
        async with connect(url, additional_headers=headers, origin=given, proxy=None):  # type: ignore[arg-type]
            return 101
    except InvalidStatus as error:
        return error.response.status_code


async def test_a_ticket_becomes_a_session_once(inside: Inside) -> None:
    """The cookie cannot be read by scripts nor sent by other sites; the address is worthless afterwards."""
    ticket = await ticket_of(inside.address)
    first = await get(inside.address, f"/enter?ticket={ticket}")
    assert (first.status, first.headers["cache-control"]) == (200, "no-store")
    cookie = first.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    second = await get(inside.address, f"/enter?ticket={ticket}")
    assert (second.status, "set-cookie" in second.headers) == (403, False)
    assert b"vivace web" in second.body


async def test_the_front_page_depends_on_the_session(inside: Inside) -> None:
    """Without one it says how to get in; both need no token."""
    assert b"vivace web" in (await get(inside.address, "/")).body
    cookie = await entered(inside.address)
    shown = await get(inside.address, "/", Cookie=cookie)
    assert (shown.status, b"not signed in" in shown.body) == (200, False)


async def test_the_faces_socket_opens_with_the_cookie_and_the_origin(inside: Inside) -> None:
    """Both are needed: any page of this machine would send the cookie along."""
    cookie = await entered(inside.address)
    name = cookie.partition("=")[0]
    assert await opened(inside.address, cookie) == 101
    assert await opened(inside.address) == 401
    assert await opened(inside.address, f"{name}=wrong") == 401
    assert await opened(inside.address, cookie, origin=None) == 401
    assert await opened(inside.address, cookie, origin="http://evil.example") == 403
    assert await opened(inside.address, cookie, origin="null") == 403
    assert await opened(inside.address, cookie, origin=f"http://127.0.0.1:{inside.address.port + 1}") == 403


async def test_the_app_opens_in_the_folder_of_the_command(inside: Inside, tmp_path: Path) -> None:
    """The folder comes with the session; one that is no path is not taken."""
    ours, url = (
        f"http://127.0.0.1:{inside.address.port}",
        f"ws://127.0.0.1:{inside.address.port}/v1/vivace/faces",
    )
    for given, expected in ((str(tmp_path), str(tmp_path)), ("not/absolute", str(Path.home()))):
        headers = {"Cookie": await entered(inside.address, given)}
        async with connect(url, additional_headers=headers, origin=ours, proxy=None) as connection:  # type: ignore[arg-type]
            await connection.send('{"id": 1, "do": "hello"}')
            assert json.loads(await connection.recv())["ok"]["folder"] == expected


async def test_the_cookie_opens_nothing_else(inside: Inside) -> None:
    """Not one other route takes it, with the right Origin or without: nothing can be forged with it."""
    cookie, origin = await entered(inside.address), f"http://127.0.0.1:{inside.address.port}"
    assert await opened(inside.address, cookie, path="/v1/responses") == 401
    closed = [each for each in targets() if each.method != "UPGRADE" and not each.is_open]
    assert ("POST", "/v1/responses") in closed
    for method, path in closed:
        for headers in ({"Cookie": cookie}, {"Cookie": cookie, "Origin": origin}):
            assert (await get(inside.address, path, method, **headers)).status == 401, (method, path)


async def test_a_name_that_was_rebound_gets_nothing(inside: Inside) -> None:
    """Another Host is refused on every page, also with a session."""
    cookie = await entered(inside.address)
    for path in ("/", "/enter", "/app/signed-out.css"):
        answer = await get(inside.address, path, Cookie=cookie, Host=f"evil.example:{inside.address.port}")
        assert answer.status == 421
        foreign = await get(inside.address, path, Cookie=cookie, Origin="http://evil.example")
        assert foreign.status == 403


async def test_tickets_of_one_kind_are_none_of_the_other(inside: Inside) -> None:
    """A socket's ticket does not sign a browser in, and a browser's opens no socket."""
    socket_ticket = await ticket_of(inside.address, {})
    assert (await get(inside.address, f"/enter?ticket={socket_ticket}")).status == 403
    url, browser_ticket = (
        f"ws://127.0.0.1:{inside.address.port}/v1/vivace/faces",
        await ticket_of(inside.address),
    )
    with pytest.raises(InvalidStatus):
        await connect(url, subprotocols=["vivace", f"bearer.{browser_ticket}"], proxy=None)  # type: ignore[list-item]
    ticket = f"bearer.{await ticket_of(inside.address, {})}"
    async with connect(url, subprotocols=["vivace", ticket], proxy=None):  # type: ignore[list-item]
        pass


async def test_a_key_is_not_the_owner(inside: Inside) -> None:
    """Whoever has only a key gets no browser ticket and no face: the host works on the owner's files."""
    _, secret = await add_key(inside.store, "guest")
    guest = msgspec.structs.replace(inside.address, token=secret)
    body = {"purpose": "browser"}
    status, answer = await asyncio.to_thread(fetch, guest, "POST", "/v1/vivace/tickets", body)
    assert (status, answer["error"]["code"]) == (403, "owner_only")
    url, headers = f"ws://127.0.0.1:{guest.port}/v1/vivace/faces", {"Authorization": f"Bearer {secret}"}
    with pytest.raises(InvalidStatus) as refused:
        await connect(url, additional_headers=headers, proxy=None)
    assert refused.value.response.status_code == 403


async def test_every_answer_forbids_frames_and_foreign_content(inside: Inside) -> None:
    """Pages, files, refusals and the API's answers alike."""
    for path in ("/", "/enter?ticket=x", "/app/signed-out.css", "/app/nothing.js", "/v1/models", "/healthz"):
        headers = (await get(inside.address, path)).headers
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert (
            headers["cross-origin-resource-policy"] == headers["cross-origin-opener-policy"] == "same-origin"
        )


@pytest.mark.parametrize(
    "path",
    [
        "../messages/requests.py",
        "..%2f..%2fconfig.py",
        "%2e%2e/host.py",
        "....//host.py",
        "/etc/passwd",
        "%2fetc/passwd",
        "signed-out.css%00.html",
        "signed-out.css/",
        "",
        "..\\host.py",
    ],
)
async def test_no_name_leads_out_of_the_app(inside: Inside, path: str) -> None:
    """Only the files of the app have names."""
    assert (await get(inside.address, f"/app/{path}")).status == 404


async def test_files_are_compressed_and_kept(inside: Inside) -> None:
    """A browser that has a file gets nothing again; one that understands gzip gets that."""
    plain = await get(inside.address, "/app/signed-out.css")
    assert plain.headers["content-type"] == "text/css; charset=utf-8"
    packed = await get(inside.address, "/app/signed-out.css", Accept_Encoding="gzip")
    assert packed.headers["content-encoding"] == "gzip"
    again = await get(inside.address, "/app/signed-out.css", If_None_Match=plain.headers["etag"])
    assert (again.status, again.body) == (304, b"")


async def test_binary_messages_end_the_connection(inside: Inside) -> None:
    """Messages are text; anything else is told as what it is."""
    headers = {"Authorization": f"Bearer {inside.address.token}"}
    url = f"ws://127.0.0.1:{inside.address.port}/v1/vivace/faces"
    async with connect(url, additional_headers=headers, proxy=None) as connection:
        await connection.send(b"\x00\xff")
        with pytest.raises(ConnectionClosed):
            await connection.recv()
        assert connection.close_code == 1003


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell")
async def test_another_user_of_the_machine_is_known(tmp_path: Path) -> None:
    """By the system's table of sockets: only one that is connected counts, and what is not there is a no."""
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
    line = "   0: 0100007F:{:04X} 0100007F:{:04X} {} 00000000:00000000 00:00000000 00000000 {:5d} 0 {}\n"
    table = tmp_path / "tcp"
    other = os.getuid() + 1000
    table.write_text(
        head
        + line.format(5001, 80, "06", 0, 1)  # an old connection from the same port
        + line.format(5001, 8377, "01", other, 1)
        + line.format(5002, 8377, "01", os.getuid(), 1)
        + line.format(5004, 8377, "05", 0, 0)  # nobody has it any more: its user is told as root
    )
    server = ("127.0.0.1", 8377)
    assert not is_same_user(("127.0.0.1", 5001), server, (table,))
    assert is_same_user(("127.0.0.1", 5002), server, (table,))
    assert not is_same_user(("127.0.0.1", 5003), server, (table,))
    assert not is_same_user(("127.0.0.1", 5004), server, (table,))
    assert not is_same_user(None, server, (table,))
    assert not is_same_user(("127.0.0.1", 5001), server, (tmp_path / "nothing",))


async def test_where_the_system_does_not_tell_it_is_us(monkeypatch: pytest.MonkeyPatch) -> None:
    """On macOS nobody can be told from another; SECURITY.md says so."""
    monkeypatch.setattr("vivace.server.faces.same_user.DOES_TELL", False)
    assert is_same_user(("127.0.0.1", 5003), ("127.0.0.1", 8377))


async def test_a_ticket_of_somebody_else_stays_valid(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user who saw the address gets nothing, and its owner can still enter with it."""
    ticket, cookie = await ticket_of(inside.address), await entered(inside.address)
    with monkeypatch.context() as patch:
        for module in ("faces.sessions", "transport.access.auth"):
            patch.setattr(f"vivace.server.{module}.is_same_user", lambda *_: False)
        assert (await get(inside.address, f"/enter?ticket={ticket}")).status == 403
        assert await opened(inside.address, cookie) == 401
    assert (await get(inside.address, f"/enter?ticket={ticket}")).status == 200


async def test_sessions_end() -> None:
    """After half a day without use, and the oldest when there are too many."""
    now = [0.0]
    sessions = Sessions(1, lambda: now[0])

    def is_known(secret: str) -> bool:
        return sessions.find([(b"cookie", f"vivace-1={secret}".encode())]) is not None

    used, unused = sessions.begin("/"), sessions.begin("/")
    now[0] = VALID_S - 1
    assert is_known(used)
    now[0] = VALID_S + 1
    assert (is_known(used), is_known(unused)) == (True, False)
    for _ in range(MAX_SESSIONS):
        sessions.begin("/")
    assert not is_known(used)
    assert sessions.find([(b"cookie", b'vivace-1="')]) is None
    assert sessions.find([(b"cookie", b"a=b"), (b"cookie", b"c=d")]) is None
