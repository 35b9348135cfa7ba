"""A stranger's server, played by a script: real HTTP on a real loopback socket, in threads of its own.

Every request that comes is recorded as a `Call` and handed to the next script, which may answer it well,
badly, slowly or not at all. Scripts block; nothing in them depends on time.
"""

import asyncio
import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any

from vivace.protocol.shapes.events import CustomToolCall, FunctionCall, Terminal
from vivace.protocol.shapes.items import InputItem
from vivace.protocol.shapes.outcomes import Broken, Ended, Outcome, ReasoningDelta, TextDelta
from vivace.protocol.shapes.parsing import parse_create
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.protocol.writing.writer import ResponseWriter
from vivace.server.backends.base import NO_HOOKS, TurnHooks
from vivace.server.backends.upstream.backend import UpstreamBackend
from vivace.server.backends.upstream.settings import read_upstreams
from vivace.server.backends.upstream.turn import UpstreamTurn
from vivace.server.caller import Caller

SSE = "text/event-stream"
JSON = "application/json"


class Call:
    """One request, and the way to answer it."""

    def __init__(self, sock: socket.socket, path: str, headers: dict[str, str], body: bytes) -> None:
        self.path = path
        self.headers = headers
        self.body: dict[str, Any] = json.loads(body) if body else {}
        self.gone = threading.Event()  # the client has closed its connection
        self.is_kept = False  # whether the connection may be used again
        self._sock = sock

    def raw(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self._sock.sendall(data)

    def head(self, status: int = 200, kind: str = SSE, **headers: str) -> None:
        """Status and headers; the body is what `send` sends, in HTTP chunks."""
        lines = [f"HTTP/1.1 {status} Said", f"Content-Type: {kind}", "Transfer-Encoding: chunked"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.raw(("\r\n".join(lines) + "\r\n\r\n").encode())

    def send(self, data: bytes) -> None:
        if data:
            self.raw(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def event(self, data: Any, name: str = "") -> None:
        text = data if isinstance(data, str) else json.dumps(data)
        self.send((f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode())

    def end(self) -> None:
        self.raw(b"0\r\n\r\n")
        self.is_kept = True

    def whole(self, status: int, body: Any, kind: str = JSON, **headers: str) -> None:
        """An answer that is no stream."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.head(status, kind, **headers)
        self.send(data)
        self.end()

    def hang(self) -> None:
        """Say nothing until the client goes away."""
        with contextlib.suppress(OSError):
            while self._sock.recv(4096):
                pass
        self.gone.set()


Script = Callable[[Call], None]


class Fake:
    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.calls: list[Call] = []
        self.connections = 0  # ever made
        self.open = 0
        self._scripts: list[Script] = [lambda call: call.whole(404, {"error": {"message": "not here"}})]
        self._is_closed = False
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._spawn(self._accept)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}/v1"

    def play(self, *scripts: Script) -> None:
        """One for each request; the last for all that follow."""
        self._scripts = list(scripts)

    def close(self) -> None:
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            sockets = list(self._sockets)
        for sock in sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive(), "a script never ended"

    def _spawn(self, run: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=run, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._sockets.add(sock)
                self.connections += 1
                self.open += 1
            self._spawn(self._serve, sock)

    def _serve(self, plain: socket.socket) -> None:
        sock = plain
        try:
            if self._tls:
                sock = self._tls.wrap_socket(plain, server_side=True)
            with plain, sock, sock.makefile("rb") as file:
                while request := _read_request(file):
                    call = Call(sock, *request)
                    with self._lock:
                        self.calls.append(call)
                        script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
                    script(call)
                    if not call.is_kept:
                        return
        except OSError:
            pass
        finally:
            plain.close()
            with self._lock:
                self._sockets.discard(plain)
                self.open -= 1


def _read_request(file: Any) -> tuple[str, dict[str, str], bytes] | None:
    first = file.readline()
    if not first.strip():
        return None
    headers = {}
    while line := file.readline().strip():
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    body = file.read(int(headers.get("content-length", "0")))
    return first.split()[1].decode(), headers, body


@contextlib.contextmanager
def deaf() -> Iterator[int]:
    """A port where connections are neither taken nor refused: its queue is full (on Linux)."""
    with socket.socket() as listener, contextlib.ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(listener.getsockname())
        yield listener.getsockname()[1]


# ---- what well-behaved servers say -----------------------------------------------------------------


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """Of chat completions."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "choices": [choice]} | fields


def tool_call(
    index: int | None, arguments: str, name: str | None = None, id: str | None = None
) -> dict[str, Any]:
    """A piece of a call."""
    call: dict[str, Any] = {"function": {"arguments": arguments}}
    if index is not None:
        call["index"] = index
    if name is not None:
        call["function"]["name"] = name
    if id is not None:
        call |= {"id": id, "type": "function"}
    return {"tool_calls": [call]}


def chat(*events: Any, is_done: bool = True) -> Script:
    """An answer of these chunks."""

    def script(call: Call) -> None:
        call.head()
        for event in events:
            call.event(event)
        if is_done:
            call.event("[DONE]")
        call.end()

    return script


def says(*texts: str, usage: dict[str, Any] | None = None) -> Script:
    """A chat answer with this text."""
    end = [chunk(finish="stop"), {"choices": [], "usage": usage}] if usage else [chunk(finish="stop")]
    return chat(*(chunk({"content": text}) for text in texts), *end)


def responses(*events: dict[str, Any]) -> Script:
    """An answer of these events of the Responses API."""

    def script(call: Call) -> None:
        call.head()
        for event in events:
            call.event(event, event["type"])
        call.end()

    return script


def completed(*output: dict[str, Any], status: str = "completed", **fields: Any) -> dict[str, Any]:
    """The terminal event."""
    response = {"id": "r1", "status": status, "output": list(output)} | fields
    return {"type": f"response.{status}", "response": response}


# ---- whoever asks ----------------------------------------------------------------------------------


class Told:
    """All outcomes of one turn, as a client would see them: they have passed a real writer."""

    def __init__(self, request: ResponseCreate, outcomes: list[Outcome]) -> None:
        self.outcomes = outcomes
        self.end = outcomes[-1]
        writer = ResponseWriter(request, "resp_1", "m")
        events = [event for outcome in outcomes for event in writer.write(outcome)]
        assert writer.is_over
        assert isinstance(events[-1], Terminal)
        self.response = events[-1].response

    @property
    def text(self) -> str:
        return "".join(outcome.delta for outcome in self.outcomes if isinstance(outcome, TextDelta))

    @property
    def musing(self) -> str:
        return "".join(outcome.delta for outcome in self.outcomes if isinstance(outcome, ReasoningDelta))

    @property
    def calls(self) -> list[tuple[str, str]]:
        """Name and arguments of each call that is whole."""
        calls = [item for item in self.response.output if isinstance(item, FunctionCall | CustomToolCall)]
        return [
            (call.name, call.input if isinstance(call, CustomToolCall) else call.arguments) for call in calls
        ]

    @property
    def ended(self) -> Ended:
        assert isinstance(self.end, Ended), self.end
        return self.end

    @property
    def broken(self) -> Broken:
        assert isinstance(self.end, Broken), self.end
        return self.end


class Asker:
    """A backend with one upstream called `box`, and the conversations that are known here."""

    def __init__(self, fake: Fake | int, **settings: Any) -> None:
        url = fake.url if isinstance(fake, Fake) else f"http://127.0.0.1:{fake}/v1"
        self.known: dict[str, list[InputItem]] = {}
        self.answered: list[tuple[str, str]] = []
        upstreams = read_upstreams({"box": {"url": url} | settings})
        self.backend = UpstreamBackend(
            upstreams, self._history, lambda name, how: self.answered.append((name, how))
        )

    async def __aenter__(self) -> "Asker":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.backend.close()

    def begin(self, input: Any = "hello", hooks: TurnHooks = NO_HOOKS, **fields: Any) -> UpstreamTurn:
        body = {"model": "box/m", "input": input} | fields
        return self.backend.begin(parse_create(json.dumps(body)), "resp_1", Caller(), hooks)

    async def ask(self, input: Any = "hello", **fields: Any) -> Told:
        turn = self.begin(input, **fields)
        return Told(turn.request, [outcome async for outcome in turn.outcomes()])

    async def rested(self) -> None:
        """Wait until nothing runs any more: connections that can be used again are."""
        await until(lambda: len(asyncio.all_tasks()) == 1 and not self.backend._turns)

    async def _history(self, response_id: str, _: Caller) -> list[InputItem] | None:
        return self.known.get(response_id)


async def until(is_true: Callable[[], object]) -> None:
    """Wait on state."""
    async with asyncio.timeout(30):
        while not is_true():  # noqa: ASYNC110  the state is another thread's
            await asyncio.sleep(0.002)
