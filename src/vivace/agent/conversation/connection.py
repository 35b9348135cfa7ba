"""The way to this user's server: opened when it is first needed, and again after the server went away.

Owns when the server is looked for or started. Does not own the socket (`client.responses`), nor what is lost
when it breaks: a turn that was under way is begun again by its caller.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from vivace.agent.model import Model, Tier
from vivace.client import warm
from vivace.client.responses import ResponsesClient
from vivace.client.turn import OnProgress, Turn
from vivace.client.warm import Progress, ServerAddress
from vivace.config import Settings
from vivace.errors import LimitReached, ServerGone
from vivace.protocol.shapes.events import WaitProgress


class LimitedClient(ResponsesClient):
    """A client that refuses to begin more than a number of turns."""

    def __init__(self, address: ServerAddress, on_progress: OnProgress, max_turns: int) -> None:
        super().__init__(address, on_progress)
        self._max_turns = max_turns
        self._begun = 0

    @asynccontextmanager
    async def turn(self, request: dict[str, Any], *, lane: str | None = None) -> AsyncIterator[Turn]:
        self._begun += 1
        if self._begun > self._max_turns:
            raise LimitReached(
                f"The model had its {self._max_turns} turns (--max-turns), and there is more to do.",
                "Allow more turns, or say it more exactly: @path:name leaves less to find.",
            )
        async with super().turn(request, lane=lane) as turn:
            yield turn


class Connection:
    def __init__(
        self,
        settings: Settings,
        progress: Progress = lambda _: None,
        *,
        max_turns: int | None = None,
        tier: Tier = "realtime",
        starts_server: bool = True,
    ) -> None:
        self.settings = settings
        self._starts_server = starts_server  # False: for a child of the server, which ends with it
        self._progress = progress
        self._max_turns = max_turns  # of the model, on one connection; None: any number
        self.tier = tier  # of what is asked on it
        self._client: ResponsesClient | None = None
        self._windows: dict[str, int] = {}  # tokens, by model
        self._opening = asyncio.Lock()
        self.on_progress: OnProgress = self._say_progress  # a conversation shows it instead
        self._is_loading = False
        self._closings = 0  # so far: one that is being opened meanwhile is closed again

    async def client(self) -> ResponsesClient:
        """Return the open client. Start the server if none runs and that is for us to do."""
        async with self._opening:
            if self._client is None:
                closings = self._closings
                address = await asyncio.to_thread(self._address)
                limit, tell = self._max_turns, self._tell_progress
                client = (
                    ResponsesClient(address, tell) if limit is None else LimitedClient(address, tell, limit)
                )
                await client.__aenter__()
                if closings != self._closings:
                    await client.__aexit__(None, None, None)
                    raise ServerGone("The connection was closed while it was opened.")
                self._client = client
            return self._client

    def _tell_progress(self, progress: WaitProgress | None) -> None:
        self.on_progress(progress)

    def _say_progress(self, progress: WaitProgress | None) -> None:
        """Say once that the model is being loaded."""
        is_loading = progress is not None and progress.stage == "loading"
        if progress and is_loading and not self._is_loading:
            self._progress(f"Loading {progress.model}: {progress.amount}…")
        self._is_loading = is_loading

    def _address(self) -> ServerAddress:
        if self._starts_server:
            return warm.ensure_server(self.settings, self._progress)
        return warm.running_server(self.settings)

    async def model(self, name: str) -> Model:
        return Model(await self.client(), name, self.tier)

    async def window_tokens(self, model: str) -> int:
        """Return how many tokens a conversation may have with this model, which was used; 0: not known."""
        if not self._windows.get(model):
            status = await asyncio.to_thread(warm.read_status, self.settings)
            is_it = status is not None and status.engine.model == model
            self._windows[model] = status.engine.session_tokens if status and is_it else 0
        return self._windows[model]

    async def renew(self) -> None:
        """Forget the server that went away; the next call finds or starts another one."""
        await self.close()

    async def close(self) -> None:
        self._closings += 1
        client, self._client = self._client, None
        if client is not None:
            await client.__aexit__(None, None, None)
