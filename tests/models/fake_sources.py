"""A model hub and a package index on loopback, and a tiny model that both can serve.

Owns the fakes that the download tests share. Holds no test.
"""

import hashlib
import io
import random
import re
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from vivace.models.catalog import ModelCard, ModelFile, Wheel

WHEEL_BYTES = 100_000
WHEELS = 3
CONTENT = random.Random(1).randbytes(WHEEL_BYTES * WHEELS)


def tiny_card(**changes: object) -> ModelCard:
    """A model of three wheels; `changes` replace fields."""
    wheels = tuple(
        Wheel(f"tiny-model-part{n}", "1.0", f"tiny_model_part{n}/data/part.bin", WHEEL_BYTES)
        for n in range(1, WHEELS + 1)
    )
    fields: dict[str, object] = {
        "name": "tiny",
        "title": "Tiny",
        "files": (ModelFile("tiny.gguf", len(CONTENT), hashlib.sha256(CONTENT).hexdigest()),),
        "licence": "Apache-2.0",
        "context_tokens": 64,
        "purpose": "tests",
        "family": "chatml",
        "hub_repo": "someone/tiny",
        "wheels": wheels,
    }
    return ModelCard(**(fields | changes))  # type: ignore[arg-type]


class FakeServer(ThreadingHTTPServer):
    """Answers on loopback, remembers who asked for what, and can stop half-way."""

    daemon_threads = False  # so that closing waits for every answer and leaves no socket behind

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.content = CONTENT
        self.pages: dict[str, bytes] = {}
        self.asked: list[tuple[str, str]] = []  # path, Range
        self.status = 200
        self.content_type = "application/octet-stream"
        self.ranges = True
        self.break_after_bytes: int | None = None  # then close the connection, once
        self.hold_after_bytes: int | None = None  # then say nothing more until `released`
        self.hold_page: str | None = None  # answer this page only when `released`
        self.released = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away in the middle is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    server: FakeServer

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Range", "")))
        if self.path in self.server.pages:
            if self.path == self.server.hold_page:
                self.server.released.wait(60)
            self._answer(200, self.server.pages[self.path], "text/html" if self.path.endswith("/") else "")
        elif "/resolve/main/" not in self.path:
            self._answer(404, b"no such page")
        else:
            self._answer_model()

    def _answer_model(self) -> None:
        begin = int((re.match(r"bytes=(\d+)-", self.headers.get("Range", "")) or [0, 0])[1])
        if self.server.status != 200:
            self._answer(self.server.status, b"no")
        elif begin and self.server.ranges:
            total = len(self.server.content)
            span = {"Content-Range": f"bytes {begin}-{total - 1}/{total}"}
            self._answer(206, self.server.content[begin:], self.server.content_type, span)
        else:
            self._answer(200, self.server.content, self.server.content_type)

    def _answer(
        self, status: int, body: bytes, content_type: str = "", headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", content_type or "application/octet-stream")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if status < 400 and "/resolve/" in self.path:
            body = self._interfere(body)
        self.wfile.write(body)

    def _interfere(self, body: bytes) -> bytes:
        if (count := self.server.hold_after_bytes) is not None:
            self.wfile.write(body[:count])
            self.server.released.wait(60)
            return body[count:]
        if (count := self.server.break_after_bytes) is not None:
            self.server.break_after_bytes = None
            self.close_connection = True
            return body[:count]
        return body

    def log_message(self, format: str, *args: object) -> None:
        pass


def add_index(server: FakeServer, card: ModelCard, content: bytes = CONTENT) -> None:
    """Put the card's wheels on the server as a simple package index."""
    for number, wheel in enumerate(card.wheels):
        piece = content[number * WHEEL_BYTES : (number + 1) * WHEEL_BYTES]
        file = f"{wheel.package.replace('-', '_')}-{wheel.version}-py3-none-any.whl"
        server.pages[f"/{file}"] = build_wheel(wheel, piece)
        server.pages[f"/simple/{wheel.package}/"] = f'<a href="/{file}">{file}</a>'.encode()


def build_wheel(wheel: Wheel, piece: bytes) -> bytes:
    info = f"{wheel.package.replace('-', '_')}-{wheel.version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {wheel.package}\nVersion: {wheel.version}\n"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(wheel.member, piece)
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return buffer.getvalue()


@contextmanager
def serving() -> Iterator[FakeServer]:
    server = FakeServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
