"""Requests under way in both directions, and how either side takes one back: `$/cancel_request`.

Owns which request a task answers, and which one it waits for. The SDK's connection knows neither and has no
route for `$/cancel_request` and `session/delete`; so this stands between it and the pipe. Does not own what a
request does (`agent`).
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from acp import RequestError

CANCEL, DELETE = "$/cancel_request", "session/delete"
REQUEST_CANCELLED = -32800
RequestId = int | str | None
T = TypeVar("T")

# The SDK runs each message in a task that it makes where the message was received, so the task's context has
# this id. A request to the client is sent by the task that waits for its answer.
_answered_id: ContextVar[RequestId] = ContextVar("answered_id", default=None)
_asked_ids: ContextVar[list[RequestId] | None] = ContextVar("asked_ids", default=None)


class Transport(Protocol):
    async def send(self, message: dict[str, Any]) -> None: ...

    async def receive(self) -> dict[str, Any] | None: ...

    async def close(self) -> None: ...


class Requests:
    """A transport around another one. Implements `acp`'s `Transport`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._running: dict[RequestId, Callable[[], object]] = {}  # what cancels each

    async def send(self, message: dict[str, Any]) -> None:
        asked = _asked_ids.get()
        if asked is not None and "method" in message and "id" in message:
            asked.append(message["id"])
        await self._transport.send(message)

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message that the SDK knows; None at the end."""
        while (message := await self._transport.receive()) is not None:
            if message.get("method") == CANCEL:
                # Behind the request itself, whose task may not have begun.
                asyncio.get_running_loop().call_soon(self._cancel, message.get("params"))
                continue
            if message.get("method") == DELETE:
                message = message | {"method": f"_{DELETE}"}  # goes to `ext_method`
            _answered_id.set(message.get("id"))
            return message
        return None

    async def close(self) -> None:
        await self._transport.close()

    # ---- the client's requests --------------------------------------------------------------------

    @contextmanager
    def cancelled_by(self, cancel: Callable[[], object]) -> Iterator[None]:
        """Say what ends the request that this task answers early, if the client does not want it any more."""
        request_id = _answered_id.get()
        self._running[request_id] = cancel
        try:
            yield
        finally:
            self._running.pop(request_id, None)

    async def breakable(self, work: Coroutine[Any, Any, T]) -> T:
        """Answer the request of this task. Raise an error of JSON-RPC if it is cancelled meanwhile."""
        doing = asyncio.ensure_future(work)
        with self.cancelled_by(doing.cancel):
            try:
                return await doing
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                raise RequestError(REQUEST_CANCELLED, "The request was cancelled.") from None

    def _cancel(self, params: object) -> None:
        """Cancel a request. No effect if it is over, or never was."""
        request_id = params.get("requestId") if isinstance(params, dict) else None
        if isinstance(request_id, int | str) and (cancel := self._running.get(request_id)):
            cancel()

    # ---- our requests -----------------------------------------------------------------------------

    async def ask(self, question: Coroutine[Any, Any, T]) -> T:
        """Wait for the client's answer. If nobody waits any more, tell the client."""
        asked: list[RequestId] = []
        token = _asked_ids.set(asked)
        try:
            return await question
        except asyncio.CancelledError:
            for request_id in asked:
                await self._take_back(request_id)
            raise
        finally:
            _asked_ids.reset(token)

    async def _take_back(self, request_id: RequestId) -> None:
        taken_back = {"jsonrpc": "2.0", "method": CANCEL, "params": {"requestId": request_id}}
        with suppress(ConnectionError):
            await self._transport.send(taken_back)
