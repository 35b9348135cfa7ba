"""A face host that plays what a test tells it to, for what depends on timing, size or ill will.

Owns a server on loopback with the app's files under the policy that they must work with, and one socket. Says
whatever it is told, in the shapes of `vivace.web.messages`; does not check them, and has no conversation.
"""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import FileResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from tests import REPOSITORY

STATIC = REPOSITORY / "src" / "vivace" / "web" / "static"
POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
FOLDER = "/work/logs"
TALK = "talk1"

Json = dict[str, Any]


class ScriptedHost:
    """Use as a context manager. Methods may be called from the test's thread."""

    def __init__(self) -> None:
        self.requests: list[Json] = []
        self.answers: dict[str, Callable[[Json], Any]] = {}
        self.records: list[Json] = []
        self.live: list[Json] = []
        self.missed: list[Json] | None = None  # events for a face that comes back; None: all records again
        self.is_away = False  # no face is let in
        self.seq = 0
        self.url = ""
        self._socket: WebSocket | None = None

    def __enter__(self) -> "ScriptedHost":
        routes = [
            Route("/", lambda _request: FileResponse(STATIC / "index.html")),
            Mount("/app", StaticFiles(directory=STATIC / "app")),
            WebSocketRoute("/v1/vivace/faces", self._serve),
        ]
        app = Starlette(routes=routes, middleware=[Middleware(_Policy)])
        config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", ws="websockets-sansio")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        self.url = f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}/"
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=10)

    # ---- what a test says -------------------------------------------------------------------------------

    def tell(self, *events: Json) -> None:
        """Send events of the conversation, each with the next number."""
        self._wait(self._tell(events))

    def play(self, events: Iterable[tuple[float, Json]]) -> None:
        """Send each event at its time, in seconds from now, late or not."""
        self._wait(self._play(list(events)), timeout=60)

    def drop(self) -> None:
        """Close the connection under the face."""
        assert self._socket is not None
        self._wait(self._socket.close(code=1012))

    def asked(self, operation: str) -> list[Json]:
        """Return the requests of one kind so far."""
        return [request for request in self.requests if request["do"] == operation]

    # ---- the socket -------------------------------------------------------------------------------------

    async def _serve(self, socket: WebSocket) -> None:
        if self.is_away:
            await socket.close(code=1013)
            return
        await socket.accept()
        self._socket, self._loop = socket, asyncio.get_running_loop()
        try:
            while True:
                request = json.loads(await socket.receive_text())
                self.requests.append(request)
                answer = self.answers.get(request["do"], self._answer)(request)
                kind = "error" if "code" in answer and "message" in answer else "ok"
                await socket.send_text(json.dumps({"id": request["id"], kind: answer}))
        except (WebSocketDisconnect, RuntimeError):
            return

    async def _tell(self, events: Iterable[Json]) -> None:
        assert self._socket is not None
        for event in events:
            self.seq += 1
            await self._socket.send_text(json.dumps({"conversation": TALK, "seq": self.seq, "event": event}))

    async def _play(self, events: list[tuple[float, Json]]) -> None:
        began = time.monotonic()
        for at_s, event in events:
            await asyncio.sleep(max(0, began + at_s - time.monotonic()))
            await self._tell([event])

    def _wait(self, work: Any, timeout: float = 10) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    def _answer(self, request: Json) -> Json:
        match request["do"]:
            case "hello":
                return welcome()
            case "conversation.open":
                return self._snapshot(request)
            case "conversations.list" | "conversations.search":
                return {"conversations": []}
            case "files.tree":
                return {"entries": [], "is_cut": False}
            case "files.find":
                return {"paths": []}
        return {}

    def _snapshot(self, request: Json) -> Json:
        is_whole = self.missed is None or not request.get("after")
        events = (
            []
            if is_whole
            else [
                {"seq": request["after"] + 1 + n, "event": each} for n, each in enumerate(self.missed or [])
            ]
        )
        self.seq += len(events)
        started = {
            "type": "conversation.started",
            "schema": 2,
            "id": TALK,
            "folder": FOLDER,
            "model": "qwen2.5-coder-1.5b",
            "at_s": 0,
        }
        return {
            "conversation": TALK,
            "folder": FOLDER,
            "epoch": "e1",
            "seq": self.seq,
            "is_whole": is_whole,
            "is_running": False,
            "title": "",
            "records": [started, *self.records] if is_whole else [],
            "events": events,
            "live": [state(), *self.live],
        }


class _Policy:
    """Every answer has the policy."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"content-security-policy", POLICY.encode())]
            await send(message)

        await self.app(scope, receive, with_policy)


# ---- shapes -----------------------------------------------------------------------------------------------


def welcome() -> Json:
    model = {"name": "qwen2.5-coder-1.5b", "is_default": True}
    return {
        "version": 1,
        "program": "0",
        "folder": FOLDER,
        "models": [model, {"name": "smollm2-135m", "is_default": False}],
        "model": model["name"],
        "effort": "medium",
        "efforts": ["low", "medium", "high", "xhigh"],
        "policies": [],
        "settings": {},
    }


def state(**values: Any) -> Json:
    known = {
        "model": "qwen2.5-coder-1.5b",
        "effort": "medium",
        "policy": "workspace",
        "approval": "ask",
        "faces": 1,
        "window_tokens": 32768,
    }
    return {"type": "live.state", **known, **values}


def turn(number: int, text: str, answer: str) -> list[Json]:
    """Return the events of a whole turn."""
    return [
        {"type": "turn.started", "turn": number, "text": text},
        {"type": "turn.intent", "kind": "question", "by": "words"},
        {"type": "attempt.started"},
        {"type": "answer.delta", "text": answer},
        {"type": "turn.ended", "turn": number, "status": "completed", "total_tokens": 100 * number},
    ]


def file_answers(files: dict[str, str]) -> dict[str, Callable[[Json], Any]]:
    """Return answers that read and write these files, with digests."""

    def key(request: Json) -> str:
        return str(request["path"]).removeprefix(f"{FOLDER}/")

    def read(request: Json) -> Json:
        path = key(request)
        if path not in files:
            return {"code": "no_such_file", "message": "There is no such file."}
        return {
            "path": path,
            "absolute": str(Path(FOLDER) / path),
            "text": files[path],
            "digest": str(hash(files[path])),
            "is_writable": True,
        }

    def write(request: Json) -> Json:
        path = key(request)
        if request["digest"] != str(hash(files[path])):
            return {"code": "changed", "message": "The file on disk has changed."}
        files[path] = request["text"]
        return {"digest": str(hash(files[path]))}

    entries = [{"path": path, "is_folder": False} for path in sorted(files)]
    return {
        "files.read": read,
        "files.write": write,
        "files.tree": lambda _request: {"entries": entries, "is_cut": False},
        "files.find": lambda request: {"paths": [path for path in files if request["words"] in path]},
    }
