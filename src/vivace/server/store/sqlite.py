"""The store in one SQLite file: for one machine, and for several processes on it.

Owns who does what in which thread: writes go to the one writer, reads to a few threads with a connection
each, and each read sees one snapshot. The event loop never waits for the disk. Open it before use:
`async with SqliteStore(path) as store`.
"""

import asyncio
import functools
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Self, TypeVar

from vivace.server.store import keys, records, removal
from vivace.server.store.base import Key, Log, Record
from vivace.server.store.database import READERS, Database, open_database, roll_back
from vivace.server.store.problems import StoreUnavailable
from vivace.server.store.writer import Work, Writer

T = TypeVar("T")


class SqliteStore:
    """Implements `Store`. A disk error is `StoreUnavailable`; the next call tries again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened: _Opened | None = None

    async def open(self) -> None:
        """Open the file; raise `StartError` if that is impossible. Set a damaged file aside."""
        assert self._opened is None, "opened twice"
        self._opened = await asyncio.to_thread(_Opened, self._path)

    async def close(self) -> None:
        """Finish what was asked before. Later calls are refused."""
        if self._opened is not None:
            opened, self._opened = self._opened, None
            await asyncio.to_thread(opened.close)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def put(self, record: Record) -> None:
        """Raise `ParentGone` if the parent was deleted: put again without one, with the whole log."""
        await self._write(functools.partial(records.put, record=record))

    async def get(self, response_id: str, tenant: str) -> Record | None:
        return await self._read(functools.partial(records.get, response_id=response_id, tenant=tenant))

    async def log(self, response_id: str, tenant: str) -> Log | None:
        return await self._read(functools.partial(records.log, response_id=response_id, tenant=tenant))

    async def items(self, response_id: str, tenant: str) -> bytes | None:
        return await self._read(functools.partial(records.items, response_id=response_id, tenant=tenant))

    async def delete(self, response_id: str, tenant: str) -> bool:
        return await self._write(functools.partial(removal.delete, response_id=response_id, tenant=tenant))

    async def end_unfinished(self, why: bytes) -> int:
        """Fail unfinished responses; `why` is the JSON of their `error`."""
        return await self._in_batches(
            functools.partial(records.end_unfinished, why=why), records.UNFINISHED_AT_ONCE
        )

    async def sweep(self, older_than: int) -> int:
        return await self._in_batches(
            functools.partial(removal.sweep, older_than=older_than), removal.AT_ONCE
        )

    async def add_key(self, key: Key, secret_hash: bytes) -> None:
        """Raise `UsageError` if there is one with this id or secret."""
        await self._write(functools.partial(keys.add, key=key, secret_hash=secret_hash))

    async def find_key(self, secret_hash: bytes) -> Key | None:
        return await self._read(functools.partial(keys.find, secret_hash=secret_hash))

    async def keys(self) -> list[Key]:
        return await self._read(keys.listed)

    async def remove_key(self, key_id: str) -> bool:
        return await self._write(functools.partial(keys.remove, key_id=key_id))

    async def touch_key(self, key_id: str, used_at: int) -> None:
        await self._write(functools.partial(keys.touch, key_id=key_id, used_at=used_at))

    async def _in_batches(self, work: Work[int], at_once: int) -> int:
        """Work in many small transactions, so that others get their turn in between."""
        total = count = await self._write(work)
        while count == at_once:
            count = await self._write(work)
            total += count
        return total

    async def _write(self, work: Work[T]) -> T:
        return await asyncio.wrap_future(self._now().writer.submit(work))

    async def _read(self, work: Work[T]) -> T:
        opened = self._now()
        return await asyncio.wrap_future(opened.pool.submit(opened.read, work))

    def _now(self) -> "_Opened":
        if self._opened is None:
            raise StoreUnavailable("The store is not open.", "The server is starting or shutting down.")
        return self._opened


class _Opened:
    """The threads and connections of an open store."""

    def __init__(self, path: Path) -> None:
        self._database: Database = open_database(path)
        self._idle: SimpleQueue[sqlite3.Connection] = SimpleQueue()
        for connection in self._database.readers:
            self._idle.put(connection)
        self.writer = Writer(self._database)
        self.pool = ThreadPoolExecutor(READERS, thread_name_prefix="store-reader")

    def read(self, work: Work[T]) -> T:
        """Run in a thread of the pool, which has as many threads as connections."""
        connection = self._idle.get()
        try:
            connection.execute("BEGIN")
            return work(connection)
        except sqlite3.Error as error:
            raise self._database.explain(error) from error
        finally:
            roll_back(connection)
            self._idle.put(connection)

    def close(self) -> None:
        self.writer.close()
        self.pool.shutdown()
        self._database.close()
