"""Which responses are known, and to whom: the latest in memory, all that were stored in the store.

A response with `store: false` is known on the connection that made it, and leaves nothing behind.
Owns what is remembered and what is written. Does not own logs (`token_log`) or the database (`store`).
"""

import asyncio
import sys
from array import array
from collections import Counter, OrderedDict
from typing import Any

import msgspec

from vivace.protocol.shapes.events import Response
from vivace.protocol.shapes.items import InputItem
from vivace.server.caller import Caller
from vivace.server.conversation.input_items import complete_items
from vivace.server.conversation.token_log import LogContents, Session, StoredResponse
from vivace.server.store.base import Record, Store
from vivace.server.store.problems import ParentGone
from vivace.server.watch.metrics import Metrics

MAX_IN_MEMORY = 512
MAX_UNSTORED = 64  # on one connection

_items = msgspec.json.Decoder(list[InputItem])


class Library:
    def __init__(self, store: Store, metrics: Metrics | None = None, capacity: int = MAX_IN_MEMORY) -> None:
        self.store = store
        self._metrics = metrics or Metrics()
        self._capacity = capacity
        self._stored: OrderedDict[str, StoredResponse] = OrderedDict()  # least recently used first
        self._unstored: dict[
            str, OrderedDict[str, StoredResponse]
        ] = {}  # by connection, as long as it is open
        self._held: Counter[StoredResponse] = Counter()  # what a turn that is not over yet goes on from

    def peek(self, response_id: str, caller: Caller) -> StoredResponse | None:
        """Return the response if it is in memory and this caller may know it."""
        known = self._stored.get(response_id)
        if known and known.tenant == caller.tenant:
            self._stored.move_to_end(response_id)
            return known
        mine = self._unstored.get(caller.connection)
        if mine and response_id in mine:
            return mine[response_id]
        return next((held for held in self._held if held.id == response_id and _is_for(held, caller)), None)

    async def find(self, response_id: str, caller: Caller) -> StoredResponse | None:
        """Return the response; load it from the store if it is not in memory."""
        if known := self.peek(response_id, caller):
            return known
        record = await self.store.get(response_id, caller.tenant)
        if record is None or record.status in ("queued", "in_progress"):
            return None
        known = await self._remembered(record)
        return self.peek(response_id, caller) or self.keep(known)  # another may have been quicker

    def keep(self, known: StoredResponse) -> StoredResponse:
        if known.is_stored:
            self._stored[known.id] = known
            if len(self._stored) > self._capacity:
                self._stored.popitem(last=False)
        elif (mine := self._unstored.get(known.connection)) is not None:
            mine[known.id] = known
            if len(mine) > MAX_UNSTORED:
                mine.popitem(last=False)
        return known

    def hold(self, known: StoredResponse | None) -> None:
        """Keep the response known to those who know it until the turn that continues it is over."""
        if known:
            self._held[known] += 1

    def release(self, known: StoredResponse | None) -> None:
        """Release what `hold` held: the turn is over."""
        if known and known in self._held:
            self._held[known] -= 1
            if not self._held[known]:
                del self._held[known]

    async def commit(self, known: StoredResponse, response: Response, events: bytes = b"") -> None:
        """Remember the response; durable when this returns, if it is to be stored at all."""
        known.output = msgspec.to_builtins(response.output)
        if known.is_stored:
            try:
                with self._metrics.store_write():
                    record = await self._record(known, response, events)
                    await asyncio.shield(self.store.put(record))  # also if the client goes away now
            except ParentGone:  # deleted meanwhile: from now on this one has everything itself
                known.follows = False
                await self.store.put(await self._record(known, response, events))

    async def begin(self, known: StoredResponse, response: Response) -> None:
        """Store that a response was promised, before there is any output."""
        await self.store.put(await self._record(known, response, b""))

    async def inputs(self, record: Record) -> list[dict[str, Any]]:
        """Return the items before a stored response's output, oldest first, each with an id."""
        data = await self.store.items(record.id, record.tenant)
        items: list[dict[str, Any]] = msgspec.json.decode(data or b"[]")
        output = msgspec.json.decode(record.response)["output"]
        return complete_items(items[: len(items) - len(output)], record.id)

    async def history(self, known: StoredResponse | None) -> list[InputItem]:
        """Return every item of the conversation, this response's output included."""
        parts: list[list[InputItem]] = []
        while known:
            if known.is_stored and (data := await self.store.items(known.id, known.tenant)) is not None:
                parts.append(_items.decode(data))
                break
            parts += [msgspec.convert(known.output, list[InputItem]), known.input]
            known = known.parent
        return [item for part in reversed(parts) for item in part]

    async def conversation(self, response_id: str, caller: Caller) -> list[InputItem] | None:
        """Return the same by a response's id; None if the caller knows no such response."""
        known = await self.find(response_id, caller)
        return await self.history(known) if known else None

    async def _record(self, known: StoredResponse, response: Response, events: bytes) -> Record:
        """Make the record, with only what its parent does not have if the parent is stored."""
        parent = known.parent if known.parent and known.parent.is_stored and known.follows else None
        start = parent.length if parent else 0
        history = [] if parent else await self.history(known.parent)
        return Record(
            id=known.id,
            tenant=known.tenant,
            parent=parent.id if parent else None,
            model=known.model,
            created_at=response.created_at,
            status=response.status,
            response=msgspec.json.encode(response),
            input=msgspec.json.encode(known.input),
            history=msgspec.json.encode(history),
            tokens=known.session.log.between(start, known.length) if known.session else None,
            log_contents=msgspec.json.encode(known.log_contents),
            events=events,
        )

    def forget(self, response_id: str, caller: Caller) -> None:
        """Forget the response on the caller's connection."""
        if mine := self._unstored.get(caller.connection):
            mine.pop(response_id, None)

    def join(self, connection: str) -> None:
        """Begin to remember responses that are not stored for this connection."""
        self._unstored[connection] = OrderedDict()

    def leave(self, connection: str) -> None:
        """Forget what only this connection knew: it is closed."""
        self._unstored.pop(connection, None)

    async def delete(self, response_id: str, caller: Caller) -> bool:
        if (known := self._stored.get(response_id)) and known.tenant == caller.tenant:
            del self._stored[response_id]
        return await self.store.delete(response_id, caller.tenant)

    async def _remembered(self, record: Record) -> StoredResponse:
        log = await self.store.log(record.id, record.tenant)
        session = Session(_tokens(log.tokens), record.tenant) if log else None
        known = StoredResponse(
            record.id,
            tenant=record.tenant,
            connection="",
            is_stored=True,
            model=record.model,
            log_contents=msgspec.json.decode(
                log.log_contents if log else record.log_contents, type=LogContents
            ),
            session=session,
            length=len(session.log) if session else 0,
            input=_items.decode(record.input),
        )
        known.output = msgspec.json.decode(record.response)["output"]
        return known


def _is_for(known: StoredResponse, caller: Caller) -> bool:
    """Return whether this caller may know the response."""
    return known.tenant == caller.tenant and (known.is_stored or known.connection == caller.connection)


def _tokens(data: bytes) -> "array[int]":
    tokens = array("i", data)
    if sys.byteorder == "big":
        tokens.byteswap()
    return tokens
