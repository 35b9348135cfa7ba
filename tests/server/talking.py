"""Clients for the ugly-path tests: a socket that keeps all it hears, and raw HTTP that can just leave."""

import asyncio
import contextlib
import http.client
import json
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.server.serving import HANG_S
from vivace.client.warm import ServerAddress

ENDS = ("response.completed", "response.incomplete", "response.failed")
HEAR_S = 60.0  # a hang, not a slow machine
Event = dict[str, Any]


class Talker:
    """A socket client. Everything that comes is kept; `heard` is all of it, in its order."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.heard: list[Event] = []

    async def say(self, kind: str, **fields: Any) -> None:
        await self.connection.send(json.dumps({"type": kind} | fields))

    async def create(self, **fields: Any) -> None:
        await self.say("response.create", **fields)

    async def hear(self) -> Event:
        async with asyncio.timeout(HEAR_S):
            self.heard.append(json.loads(await self.connection.recv()))
        return self.heard[-1]

    async def until(self, is_it: Callable[[Event], bool]) -> Event:
        while not is_it(await self.hear()):
            pass
        return self.heard[-1]

    async def until_type(self, *kinds: str) -> Event:
        return await self.until(lambda event: event["type"] in kinds)

    async def created(self) -> str:
        return str((await self.until_type("response.created"))["response"]["id"])

    async def said(self, letters: int = 1) -> str:
        """The response that was begun next, when it has said so much."""
        response_id, count = await self.created(), 0
        while count < letters:
            count += len((await self.until_type("response.output_text.delta"))["delta"])
        return response_id

    async def ended(self) -> Event:
        return await self.until_type(*ENDS)

    async def until_closed(self) -> int:
        """Hear the rest; the code of the close."""
        with contextlib.suppress(ConnectionClosed):
            while True:
                await self.hear()
        code = self.connection.close_code
        assert code is not None
        return code

    async def complete(self, **fields: Any) -> Event:
        """The response at the end of one turn."""
        await self.create(**fields)
        response: Event = (await self.ended())["response"]
        return response


def narrow_socket(address: ServerAddress) -> socket.socket:
    """A connection that holds little: who does not read from it is soon noticed."""
    narrow = socket.socket()
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    narrow.connect(("127.0.0.1", address.port))
    narrow.setblocking(False)
    return narrow


@contextlib.asynccontextmanager
async def talking(address: ServerAddress, **options: Any) -> AsyncIterator[Talker]:
    headers = {"Authorization": f"Bearer {address.token}"}
    async with connect(
        address.socket_url, additional_headers=headers, proxy=None, compression=None, **options
    ) as connection:
        yield Talker(connection)


def post(address: ServerAddress, body: Any, path: str = "/v1/responses", **headers: str) -> bytes:
    """The bytes of a request."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    chosen = {
        "Host": f"127.0.0.1:{address.port}",
        "Authorization": f"Bearer {address.token}",
        "Content-Type": "application/json",
        "Content-Length": str(len(data)),
    } | {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in chosen.items()), "", ""]
    return "\r\n".join(lines).encode() + data


def ask(address: ServerAddress, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Status and JSON of one request, also if the server dies in it: then the connection is closed, too."""
    connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=HANG_S)
    with contextlib.closing(connection):
        headers = {"Authorization": f"Bearer {address.token}", "Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        with connection.getresponse() as answer:
            return answer.status, json.loads(answer.read())


def check_numbers(heard: list[Event]) -> None:
    """Of each response: exactly one terminal event, numbers from 0 without a gap, in the order they came.

    What is told of steers after the end has numbers too, so the terminal event need not be the last.
    """
    current: dict[str | None, str] = {}
    numbers: dict[str, list[int]] = {}
    ends: dict[str, int] = {}
    for event in heard:
        if event["type"] == "error":
            continue
        lane = event.get("stream_id")
        if event["type"] == "response.created":
            current[lane] = event["response"]["id"]
        response_id = _response_of(event) or current[lane]
        numbers.setdefault(response_id, []).append(event["sequence_number"])
        ends[response_id] = ends.get(response_id, 0) + (event["type"] in ENDS)
    for response_id, found in numbers.items():
        assert found == list(range(len(found))), (response_id, found)
        assert ends[response_id] == 1, (response_id, ends[response_id])


def _response_of(event: Event) -> str | None:
    if "response" in event:
        return str(event["response"]["id"])
    if "steer" in event:
        return str(event["steer"]["previous_response_id"])
    return event.get("response_id")
