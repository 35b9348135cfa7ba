"""Upstreams behind TLS: whom we trust, and interrupts. Certificates are made with the openssl command."""

import asyncio
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.backends.upstream.fake import Asker, Call, Fake, chunk, says, until
from vivace.protocol.shapes.outcomes import TextDelta

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """For 127.0.0.1, signed by itself, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=box"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*make.split(), *names], check=True, capture_output=True)
    return cert, key


@pytest.fixture
def fake(certificate: tuple[Path, Path]) -> Iterator[Fake]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    fake = Fake(context)
    yield fake
    fake.close()


async def test_a_certificate_that_nobody_signed_is_refused(fake: Fake) -> None:
    """It says so, and the request and its key are never sent."""
    async with Asker(fake, api="chat", api_key="hush") as box:
        broken = (await box.ask()).broken
    assert broken.code == "upstream_unreachable"
    assert "certificate" in broken.message.lower()
    assert not fake.calls


async def test_an_interrupt_in_the_handshake_closes_the_connection() -> None:
    """A server that takes the connection and never answers: it is left at once, and sees it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/v1"
        async with Asker(0, url=url, connect_s=600) as box:
            turn = box.begin()
            taken, _ = await asyncio.to_thread(listener.accept)
            with taken:
                assert await asyncio.to_thread(taken.recv, 65536)  # its part of the handshake
                turn.interrupt()
                assert await asyncio.to_thread(taken.recv, 65536) == b""
            await box.rested()


async def test_an_interrupt_closes_a_connection_behind_tls(
    fake: Fake, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once: no farewell of the other side is waited for. A certificate of one's own can be trusted."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))

    def streaming(call: Call) -> None:
        call.head()
        call.event(chunk({"content": "Hel"}))
        call.hang()

    fake.play(says("x"), streaming)
    async with Asker(fake, api="chat") as box:
        assert (await box.ask()).text == "x"
        turn = box.begin()
        async for outcome in turn.outcomes():
            assert outcome == TextDelta("Hel")
            break
        turn.interrupt()
        await until(fake.calls[-1].gone.is_set)
        await box.rested()
