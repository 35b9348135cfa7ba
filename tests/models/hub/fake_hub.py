"""A model hub on loopback that answers as the real one does, and a second server that holds the bytes.

The API says which commit, files and sha-256 sums there are, page by page; a file is a redirect to the other
server. Gated and missing repositories are refused with the real one's words. Owns the fake. Holds no test.
"""

import hashlib
import json
import re
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import msgspec

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>{% endfor %}"
)
COMMIT = "c0ffee" * 6 + "abcd"


class Repo(msgspec.Struct):
    files: dict[str, bytes]
    is_gated: bool = False
    sums: dict[str, str] = {}  # where the hub says another sha-256 than the bytes have
    sizes: dict[str, int] = {}  # that are not those of the bytes
    tags: tuple[str, ...] = ("gguf", "license:apache-2.0")


class Asked(msgspec.Struct, frozen=True):
    path: str
    token: str
    begin: int


class FakeServer(ThreadingHTTPServer):
    daemon_threads = False

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.asked: list[Asked] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away in the middle is what some tests are about."""


class FakeHub(FakeServer):
    def __init__(self, store: "FakeStore") -> None:
        super().__init__(_HubHandler)
        self.store = store
        self.repos: dict[str, Repo] = {}
        self.tokens = {"hf_good"}  # that have agreed to the terms of gated repositories
        self.page_size = 1000
        self.status: tuple[int, dict[str, str]] | None = None  # answered to everything
        self.redirect_to = ""  # instead of the store

    def add(self, name: str, files: Mapping[str, bytes], **facts: object) -> Repo:
        self.repos[name] = Repo(dict(files), **facts)  # type: ignore[arg-type]
        return self.repos[name]


class FakeStore(FakeServer):
    """Where the bytes are: another host than the hub."""

    def __init__(self) -> None:
        super().__init__(_StoreHandler)
        self.contents: dict[str, bytes] = {}
        self.hold_after_bytes: int | None = None  # of a whole file; then nothing more until `released`
        self.released = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    def answer(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def note(self, server: FakeServer) -> Asked:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        begin = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
        server.asked.append(Asked(self.path, token, int(begin[1]) if begin else 0))
        return server.asked[-1]

    def log_message(self, format: str, *args: object) -> None:
        pass


class _HubHandler(_Handler):
    server: FakeHub

    def do_GET(self) -> None:
        asked = self.note(self.server)
        path = unquote(urlsplit(self.path).path)
        if self.server.status:
            self.answer(self.server.status[0], b"{}", self.server.status[1])
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(/tree/\w+)?", path):
            self._api(match[1], is_tree=bool(match[2]))
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/(\w+)/(.+)", path):
            self._file(match[1], match[2], match[3], asked)
        else:
            self.answer(404)

    def _api(self, name: str, *, is_tree: bool) -> None:
        repo = self.server.repos.get(name)
        if repo is None:
            self.answer(401, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif is_tree:
            self._tree(repo)
        else:
            self.answer(200, json.dumps({"id": name, "sha": COMMIT, "tags": repo.tags}).encode())

    def _tree(self, repo: Repo) -> None:
        page = int((re.search(r"cursor=(\d+)", self.path) or [0, 0])[1])
        begin, end = page * self.server.page_size, (page + 1) * self.server.page_size
        entries = [{"type": "directory", "path": "sub", "oid": "1", "size": 0}, *_entries(repo)]
        headers = {"Link": f'<{self.server.url}{urlsplit(self.path).path}?cursor={page + 1}>; rel="next"'}
        self.answer(200, json.dumps(entries[begin:end]).encode(), headers if end < len(entries) else {})

    def _file(self, name: str, commit: str, path: str, asked: Asked) -> None:
        repo = self.server.repos[name]
        if repo.is_gated and asked.token not in self.server.tokens:
            self.answer(403 if asked.token else 401, b"", {"X-Error-Code": "GatedRepo"})
        elif path not in repo.files or commit not in ("main", COMMIT):
            self.answer(404, b"", {"X-Error-Code": "EntryNotFound"})
        else:
            self.server.store.contents[path] = repo.files[path]
            self.answer(302, b"", {"Location": self.server.redirect_to or f"{self.server.store.url}/{path}"})


def _entries(repo: Repo) -> list[dict[str, object]]:
    return [
        {
            "type": "file",
            "path": path,
            "oid": "0" * 40,
            "size": repo.sizes.get(path, len(data)),
            "lfs": {
                "oid": repo.sums.get(path, hashlib.sha256(data).hexdigest()),
                "size": repo.sizes.get(path, len(data)),
                "pointerSize": 135,
            },
            "xetHash": "f" * 64,
        }
        for path, data in repo.files.items()
    ] + [{"type": "file", "path": "README.md", "oid": "2", "size": 10}]


class _StoreHandler(_Handler):
    server: FakeStore

    def do_GET(self) -> None:
        self.note(self.server)
        content = self.server.contents[unquote(self.path[1:])]
        span = re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        begin = int(span[1]) if span else 0
        end = int(span[2]) + 1 if span and span[2] else len(content)
        body = content[begin:end]
        self.send_response(206)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Range", f"bytes {begin}-{begin + len(body) - 1}/{len(content)}")
        self.end_headers()
        hold = self.server.hold_after_bytes
        if hold is not None and end == len(content):
            self.wfile.write(body[: hold - begin])
            self.server.released.wait(60)
            body = body[hold - begin :]
        self.wfile.write(body)


@contextmanager
def serving() -> Iterator[FakeHub]:
    """Run a hub and its store; both end with the block."""
    with ExitStack() as stack:
        store = FakeStore()
        hub = FakeHub(store)
        for server in (store, hub):
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            stack.callback(server.server_close)
            stack.callback(thread.join)
            stack.callback(server.shutdown)
        stack.callback(store.released.set)
        yield hub


# ---- GGUF files ------------------------------------------------------------------------------------------


def gguf(
    fields: Mapping[str, object] | None = None,
    tensors: Mapping[str, int] | None = None,  # name → bytes
    *,
    architecture: str = "qwen2",
    template: str = CHATML,
    vocabulary: int = 50,
    padding: int = 2000,
) -> bytes:
    """Return a file with a header that a reader must take, a vocabulary before the template, and padding."""
    named: dict[str, object] = {
        "general.architecture": architecture,
        f"{architecture}.context_length": 4096,
        "tokenizer.ggml.tokens": [f"token {number}" for number in range(vocabulary)],
        "tokenizer.ggml.token_type": list(range(vocabulary)),
        **({"tokenizer.chat_template": template} if template else {}),
        **(fields or {}),
    }
    body = b"".join(_text(name) + _value(value) for name, value in named.items())
    infos, offset = b"", 0
    for name, size in (tensors or {}).items():
        infos += _text(name) + struct.pack("<IQIQ", 1, size, 0, offset)
        offset += size
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors or {}), len(named))
    return head + body + infos + bytes(offset) + bytes(range(250)) * (padding // 250)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: object) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    assert isinstance(value, list)
    if value and isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))
    return struct.pack("<IIQ", 9, 4, len(value)) + struct.pack(f"<{len(value)}I", *value)
