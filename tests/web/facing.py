"""A face for tests: a WebSocket that keeps all it hears, and asks by name."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from vivace.client.warm import ServerAddress

HEAR_S = 60.0  # a hang, not a slow machine
Frame = dict[str, Any]


class RefusedRequest(Exception):
    """The host answered with an error."""

    def __init__(self, error: dict[str, str]) -> None:
        super().__init__(error)
        self.code = error["code"]
        self.message = error["message"]


class FakeFace:
    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.heard: list[Frame] = []
        self._count = 0
        self._more = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    async def ask(self, do: str, **fields: Any) -> Any:
        """Send a request and return what is in `ok`."""
        self._count += 1
        number = self._count
        await self.connection.send(json.dumps({"id": number, "do": do} | fields))
        frame = await self.until(lambda frame: frame.get("id") == number)
        if "error" in frame:
            raise RefusedRequest(frame["error"])
        return frame["ok"]

    async def until(self, is_it: Callable[[Frame], bool], after: int = 0) -> Frame:
        """Return the first frame that is so, of those heard after this many."""
        async with asyncio.timeout(HEAR_S), self._more:
            while True:
                for frame in self.heard[after:]:
                    if is_it(frame):
                        return frame
                await self._more.wait()

    async def event(self, type_: str, after: int = 0, **fields: Any) -> Frame:
        """Return the first event of this type with these fields."""

        def is_it(frame: Frame) -> bool:
            event = frame.get("event", {})
            return event.get("type") == type_ and all(event.get(name) == fields[name] for name in fields)

        return (await self.until(is_it, after))["event"]  # type: ignore[no-any-return]

    def events(self, kind: str) -> list[Frame]:
        return [frame["event"] for frame in self.heard if frame.get("event", {}).get("type") == kind]

    def text(self, kind: str = "answer.delta", field: str = "text") -> str:
        return "".join(event[field] for event in self.events(kind))

    async def begin(self, **fields: Any) -> str:
        """Say hello and begin a conversation. Return its id when the model can answer."""
        await self.ask("hello")
        conversation = (await self.ask("conversation.open", **fields))["conversation"]
        await self.ready(conversation)
        return str(conversation)

    async def ready(self, conversation: str) -> None:
        await self.until(
            lambda frame: (
                frame.get("conversation") == conversation
                and frame["event"]["type"] == "live.state"
                and not frame["event"].get("activity")
            )
        )

    async def _read(self) -> None:
        with contextlib.suppress(Exception):
            async for message in self.connection:
                async with self._more:
                    self.heard.append(json.loads(message))
                    self._more.notify_all()

    async def close(self) -> None:
        self._reading.cancel()


@contextlib.asynccontextmanager
async def facing(address: ServerAddress, **options: Any) -> AsyncIterator[FakeFace]:
    """Connect a face with the owner's token."""
    headers = {"Authorization": f"Bearer {address.token}"} | options.pop("headers", {})
    url = f"ws://127.0.0.1:{address.port}/v1/vivace/faces"
    async with connect(
        url, additional_headers=headers, proxy=None, compression=None, max_size=None, **options
    ) as connection:
        face = FakeFace(connection)
        try:
            yield face
        finally:
            await face.close()
