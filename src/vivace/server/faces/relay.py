"""The WebSocket of a face, passed on to the face host message by message.

Owns the two directions: each waits while the other side takes nothing, and both end together. When the host
is gone the face is told to come again (1012); one that takes nothing is closed (1013). Reads no message.
"""

import asyncio
import contextlib
import logging

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from vivace.errors import VivaceError
from vivace.protocol.face_frames import HEAD_BYTES, Arrival, BadFrame, framed, length_of
from vivace.protocol.shapes.refusal import Refusal
from vivace.server.faces.host_process import HostProcess
from vivace.server.transport.access.auth import caller_of
from vivace.server.transport.access.tickets import chosen_subprotocol
from vivace.server.transport.answers import error_response
from vivace.server.transport.protocols import BLOCKED_S, WIRE, WebSocketProtocol
from vivace.server.turns.activity import Activity

UNSUPPORTED, BROKEN, RESTARTING, TRY_AGAIN_LATER = 1003, 1011, 1012, 1013
TOUCH_S = 60.0  # an open face keeps the server warm

log = logging.getLogger(__name__)


class FaceRelay:
    def __init__(self, host: HostProcess, activity: Activity) -> None:
        self._host = host
        self._activity = activity
        self._open: set[WebSocket] = set()

    async def serve(self, websocket: WebSocket) -> None:
        """Serve one face to its end."""
        caller = caller_of(websocket)
        if not caller.is_owner:  # the host reads and writes the owner's files
            refusal = Refusal("Faces are for the owner of this server.", code="owner_only", status=403)
            answer = error_response(refusal, websocket.scope)
            return await answer(websocket.scope, websocket.receive, websocket.send)
        await websocket.accept(chosen_subprotocol(websocket.scope["subprotocols"]))
        self._open.add(websocket)
        try:
            reader, writer = await self._host.connect()
        except (VivaceError, OSError) as error:
            log.warning("no face host: %s", error)
            self._open.discard(websocket)
            return await _close(websocket, BROKEN, "The face host did not start.")
        try:
            writer.write(framed(msgspec.json.encode(Arrival(websocket.scope.get("vivace.folder", "")))))
            code, reason = await self._relay(websocket, reader, writer)
            await _close(websocket, code, reason)
        finally:
            self._open.discard(websocket)
            writer.close()

    async def close(self) -> None:
        """Tell all faces to come again later."""
        closing = [_close(each, RESTARTING, "The server is restarting.") for each in self._open]
        await asyncio.gather(*closing)

    async def _relay(
        self, websocket: WebSocket, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[int, str]:
        """Pass messages both ways until one side ends. Return why, as a close code and a reason."""
        tasks = [
            asyncio.create_task(self._to_host(websocket, writer)),
            asyncio.create_task(_to_face(websocket.scope["extensions"][WIRE], reader)),
            asyncio.create_task(self._keep_warm()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        return next(iter(done)).result()

    async def _to_host(self, websocket: WebSocket, writer: asyncio.StreamWriter) -> tuple[int, str]:
        try:
            while (message := await websocket.receive())["type"] == "websocket.receive":
                self._activity.touch()
                if (text := message.get("text")) is None:
                    return UNSUPPORTED, "Messages are text."
                writer.write(framed(text.encode()))
                await writer.drain()
        except (WebSocketDisconnect, RuntimeError):
            return 1000, ""
        except (ConnectionError, UnicodeEncodeError):
            return RESTARTING, "The face host has gone."
        return 1000, ""

    async def _keep_warm(self) -> tuple[int, str]:
        while True:
            self._activity.touch()
            await asyncio.sleep(TOUCH_S)


async def _to_face(wire: WebSocketProtocol, reader: asyncio.StreamReader) -> tuple[int, str]:
    try:
        while True:
            message = await reader.readexactly(length_of(await reader.readexactly(HEAD_BYTES)))
            if not wire.is_free:
                await wire.freed()
            if not wire.is_open:
                return 1000, ""
            wire.write(message)
    except (asyncio.IncompleteReadError, ConnectionError, BadFrame):
        return RESTARTING, "The face host has gone."
    except TimeoutError:
        log.warning("a face took nothing for %.0f s; closing its connection", BLOCKED_S)
        return TRY_AGAIN_LATER, "The face is too slow."


async def _close(websocket: WebSocket, code: int, reason: str) -> None:
    with contextlib.suppress(TimeoutError, WebSocketDisconnect, RuntimeError):
        async with asyncio.timeout(1.0):
            await websocket.close(code, reason)
