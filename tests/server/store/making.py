"""What the store's tests share: records to put, and a look into the file behind the store's back."""

import contextlib
import json
import sqlite3
import time
from array import array
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from vivace.server.store.base import Record, Store
from vivace.server.store.sqlite import SqliteStore


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Store]:
    """As everybody else sees it: a `Store`."""
    async with SqliteStore(path) as store:
        yield store


def packed(*tokens: int) -> bytes:
    return array("i", tokens).tobytes()


def item(text: str) -> dict[str, Any]:
    return {"id": f"msg_{text}", "type": "message", "content": [{"type": "input_text", "text": text}]}


def as_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def make(response_id: str = "resp_1", **fields: Any) -> Record:
    """A record whose input is `asks` and whose output is `says`, each a list of texts."""
    asks, says = fields.pop("asks", ["hi"]), fields.pop("says", ["hello"])
    status = fields.get("status", "completed")
    response = {
        "id": response_id,
        "object": "response",
        "tools": [],
        "status": status,
        "error": None,
        "output": [item(text) for text in says],
        "metadata": {},
    }
    values: dict[str, Any] = {
        "tenant": "alice",
        "model": "qwen",
        "created_at": 1000,
        "status": status,
        "response": as_json(response),
        "input": as_json([item(text) for text in asks]),
        "tokens": packed(1, 2, 3),
        "log_contents": b'{"instructions":"be brief"}',
    }
    return Record(id=response_id, **(values | fields))


def texts(items: bytes | None) -> list[str]:
    assert items is not None
    return [each["content"][0]["text"] for each in json.loads(items)]


@contextlib.contextmanager
def looking(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path, timeout=20, isolation_level=None)) as connection:
        yield connection


def count(path: Path, table: str) -> int:
    with looking(path) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def size_of(path: Path, ending: str = "") -> int:
    return path.with_name(path.name + ending).stat().st_size


def assert_sound(path: Path) -> None:
    with looking(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


def until(ask: Callable[[], Any], timeout_s: float = 60.0) -> None:
    """Wait until `ask` gives something true."""
    deadline = time.monotonic() + timeout_s
    while not ask():
        assert time.monotonic() < deadline, f"never came true: {ask}"
        time.sleep(0.005)
