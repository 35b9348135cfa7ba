"""Prefill of text that is still being typed, so that little is left to read when Enter comes.

Owns which text is prefilled: always the latest, one request at a time, and nothing in between. It is best
effort: a refusal or a lost server leaves the text for the real turn. Does not own what is typed.
"""

import asyncio
import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Any

from vivace.client.responses import ResponsesClient
from vivace.errors import RequestRefused, ServerGone
from vivace.protocol.shapes.events import Response

Prefilled = Callable[[dict[str, Any], Response], None]


class TypedAhead:
    """Call `update` at every change, and leave the block before the real turn is begun.

    The real turn sends the same request without `generate` and `is_provisional`, in the same lane.
    """

    def __init__(
        self,
        client: ResponsesClient,
        *,
        lane: str | None = None,
        on_prefilled: Prefilled = lambda _request, _response: None,
    ) -> None:
        self._client = client
        self._lane = lane
        self._on_prefilled = on_prefilled  # called with each request whose input is in the KV now
        self._latest: dict[str, Any] | None = None
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.prefilled: dict[str, Any] | None = None  # the last request whose input is in the KV

    async def __aenter__(self) -> "TypedAhead":
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    def update(self, request: dict[str, Any]) -> None:
        """Prefill this input next. What was given before and has not begun is forgotten."""
        self._latest = request
        self._changed.set()

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            request = self._latest
            assert request is not None
            with contextlib.suppress(RequestRefused, ServerGone):
                response = await self._client.prefill(request | {"is_provisional": True}, lane=self._lane)
                self.prefilled = request
                self._on_prefilled(request, response)
