"""Local means local: token, Host, Origin, sizes."""

import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.server.serving import fetch, send
from vivace.client.warm import ServerAddress
from vivace.config import Settings
from vivace.errors import StartError
from vivace.protocol.shapes.requests import MAX_BODY_BYTES
from vivace.server.transport.access.auth import ensure_token

GUARDED = [
    ("GET", "/v1/models"),
    ("GET", "/v1/vivace/status"),
    ("POST", "/v1/responses"),
    ("GET", "/nowhere"),
]


@pytest.mark.parametrize(("method", "path"), GUARDED)
@pytest.mark.parametrize("token", ["", "Bearer wrong", "Basic {token}", "Bearer {token}x", "{token}"])
def test_every_route_needs_the_token(address: ServerAddress, method: str, path: str, token: str) -> None:
    """Without exactly our bearer token the answer is 401, also for paths that do not exist."""
    status, answer = fetch(address, method, path, {}, Authorization=token.format(token=address.token))
    assert (status, answer["error"]["code"]) == (401, "invalid_api_key")


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_needs_no_token(address: ServerAddress, path: str) -> None:
    """Health is for anyone on this machine, and tells nothing else."""
    status, answer = fetch(address, "GET", path, Authorization="")
    assert status == 200
    assert set(answer) <= {"status", "pid", "version"}


@pytest.mark.parametrize("path", ["/healthz", "/v1/models"])
@pytest.mark.parametrize("host", ["evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil:{port}"])
def test_a_foreign_host_is_refused(address: ServerAddress, path: str, host: str) -> None:
    """A name that was rebound to loopback gets nothing, not even health."""
    status, answer = fetch(address, "GET", path, Host=host.format(port=address.port))
    assert (status, answer["error"]["code"]) == (421, "wrong_host")


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:{port}", "http://localhost"]
)
def test_a_foreign_origin_is_refused(address: ServerAddress, origin: str) -> None:
    """A page of another site is refused even with the token."""
    status, answer = fetch(address, "GET", "/v1/models", Origin=origin.format(port=address.port))
    assert (status, answer["error"]["code"]) == (403, "wrong_origin")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_our_own_names_are_served(address: ServerAddress, host: str) -> None:
    """Loopback names with our port are ours, as Host and as Origin; no CORS header is ever sent."""
    name = f"{host}:{address.port}"
    answer = send(address, "GET", "/v1/models", Host=name, Origin=f"http://{name}")
    assert answer.status == 200
    assert not [header for header in answer.headers if header.lower().startswith("access-control")]
    answer.read()
    answer.vivace_connection.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer x"}, 401),
        ({"Authorization": "Bearer {token}", "Origin": "http://evil.example"}, 403),
    ],
)
async def test_the_upgrade_is_guarded_too(
    address: ServerAddress, headers: dict[str, str], status: int
) -> None:
    """A WebSocket is refused before it is one."""
    chosen = {name: value.format(token=address.token) for name, value in headers.items()}
    with pytest.raises(InvalidStatus) as caught:
        await connect(address.socket_url, additional_headers=chosen, proxy=None)
    assert caught.value.response.status_code == status


async def test_the_upgrade_at_a_foreign_host_is_refused(address: ServerAddress) -> None:
    """A rebound name gets no WebSocket, token or not."""
    headers = {"Authorization": f"Bearer {address.token}"}
    url = address.socket_url.replace("127.0.0.1", "evil.example")
    with pytest.raises(InvalidStatus) as caught:
        await connect(url, host="127.0.0.1", port=address.port, additional_headers=headers, proxy=None)
    assert caught.value.response.status_code == 421


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "invalid_json"),
        (b"", "invalid_json"),
        (b'{"other":' + b"[" * 50_000, "invalid_json"),
        (b'{"input": {}}', "invalid_value"),
        (b'{"input": "x", "max_output_tokens": 1e400}', "invalid_value"),
    ],
)
def test_hostile_bodies_are_answered(address: ServerAddress, body: bytes, code: str) -> None:
    """Bad JSON is a 400 in the shape of every error."""
    status, answer = fetch(address, "POST", "/v1/responses", body)
    assert status == 400
    assert answer["error"]["code"] == code
    assert set(answer["error"]) == {"message", "type", "code", "param"}


def test_a_body_that_is_too_large_is_413(address: ServerAddress) -> None:
    """It is refused by its length, before it is read."""
    status, answer = fetch(address, "POST", "/v1/responses", Content_Length=str(MAX_BODY_BYTES + 1))
    assert (status, answer["error"]["code"]) == (413, "request_too_large")


async def test_a_message_that_is_too_large_is_413(address: ServerAddress) -> None:
    """On a socket it is an error frame, and the socket stays."""
    headers = {"Authorization": f"Bearer {address.token}"}
    async with connect(
        address.socket_url, additional_headers=headers, proxy=None, compression=None
    ) as socket:
        await socket.send("x" * (MAX_BODY_BYTES + 1))
        assert '"status":413' in str(await socket.recv())
        await socket.send("{}")
        assert '"status":400' in str(await socket.recv())


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/v2", 404), ("DELETE", "/v1/models", 405)])
def test_unknown_urls_are_answered_in_our_shape(
    address: ServerAddress, method: str, path: str, status: int
) -> None:
    """404 and 405 have the error body, too."""
    answered, answer = fetch(address, method, path)
    assert (answered, answer["error"]["code"]) == (status, "unknown_url")


def test_the_token_is_made_once_and_for_us_alone(settings: Settings) -> None:
    """256 bits in a file that nobody else may read; many starts at once agree on one."""
    tokens: list[str] = []
    threads = [threading.Thread(target=lambda: tokens.append(ensure_token(settings))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tokens) == 16
    assert len(set(tokens)) == 1
    assert len(tokens[0]) >= 43
    assert stat.S_IMODE(settings.token_file.stat().st_mode) == 0o600
    assert settings.token_file.read_text() == tokens[0]  # what is in the file is what SDKs send
    assert [file.name for file in settings.state_dir.iterdir()] == ["token"]


def test_a_token_that_came_in_between_is_kept(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who finds no token, and then one in place when its own is ready, takes the other's."""
    token = ensure_token(settings)
    monkeypatch.setattr(Path, "exists", lambda _: False)
    assert ensure_token(settings) == token


@pytest.mark.parametrize(("content", "mode"), [("", 0o600), ("short", 0o600), ("x" * 43, 0o644)])
def test_a_bad_token_file_is_not_used(settings: Settings, content: str, mode: int) -> None:
    """An empty, short or readable token is no token: the start fails and says what to do."""
    write(settings.token_file, content, mode)
    with pytest.raises(StartError):
        ensure_token(settings)


def write(path: Path, content: Any, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    path.chmod(mode)
