"""The server's log: what clients do wrong is no error of the server's."""

import asyncio
import logging
import random
import string
from pathlib import Path

import pytest

from tests.server.inside import served_here, until
from tests.server.serving import fetch, script
from tests.server.talking import narrow_socket, post
from tests.server.transport.attacks.attacking import UPGRADE, Target, raw, request_status
from vivace.client.warm import ServerAddress
from vivace.config import Settings
from vivace.protocol.rundir import log_file
from vivace.server.transport import protocols

SOCKET = Target("UPGRADE", "/v1/responses")
TEXT = "".join(random.Random(5).choices(string.ascii_letters, k=1000))  # nothing to draft from: 1,000 events


def test_a_refused_upgrade_is_no_error(served: Settings, address: ServerAddress) -> None:
    """It is answered, and that is all: no line that speaks of a handshake that was forgotten."""
    for _ in range(3):
        assert request_status(address, SOCKET, Authorization="") == 401
        assert request_status(address, SOCKET, Origin="http://evil.example") == 403
        assert request_status(address, SOCKET, Host="evil.example") in (400, 421)
        assert request_status(address, Target("UPGRADE", "/nowhere")) == 403
    assert fetch(address, "POST", "/v1/responses", {"input": "hi", "store": False})[0] == 200
    lines = log_file(served).read_text().splitlines()
    assert any("vivace.turns: turn" in line for line in lines)
    assert [line for line in lines if " ERROR " in line or " WARNING " in line] == []


def test_a_refused_upgrade_says_why(address: ServerAddress) -> None:
    """In the same shape as over HTTP."""
    lines = [f"GET {SOCKET.path} HTTP/1.1", f"Host: 127.0.0.1:{address.port}"]
    lines += [f"{name}: {value}" for name, value in UPGRADE.items()]
    answer = raw(address, "\r\n".join([*lines, "", ""]).encode()).lower()
    assert answer.startswith(b"http/1.1 401 ")
    assert b"www-authenticate: bearer" in answer
    assert b'"code":"invalid_api_key"' in answer


async def test_a_client_that_is_given_up_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """We say why its connection is closed, and nobody speaks of an answer that was left unfinished."""
    monkeypatch.setattr(protocols, "BLOCKED_S", 0.2)
    model = script(tmp_path, replies={"": TEXT}, step_ms=0.2)
    settings = Settings(
        cache_dir=tmp_path / "c", state_dir=tmp_path, port=0, threads=1, model=model, allow_scripted=True
    )
    with caplog.at_level(logging.WARNING):
        async with served_here(settings, send_buffer_bytes=4096) as inside:
            _, writer = await asyncio.open_connection(sock=narrow_socket(inside.address), limit=1)
            writer.write(post(inside.address, {"input": "go", "stream": True}))
            await until(lambda: caplog.records)
            await inside.calm()
            writer.close()
    said = [record.getMessage() for record in caplog.records]
    assert said == ["a client took nothing for 0 s; closing its connection"]
