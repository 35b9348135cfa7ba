"""A process that writes to a store until it is killed: `python -m tests.server.store.child PATH MODE`.

Each id is printed when, and only when, the store has acknowledged it. MODE says where the process kills
itself: before a statement of the writer (`begin`, `insert`, `commit`), after the commit and before the answer
(`committed`), some time after it began to empty the write-ahead log (`checkpoint:MICROSECONDS`), in the
middle of a deletion (`delete`), or not at all (`never`).
"""

import asyncio
import os
import signal
import sys
import threading
from concurrent.futures import Future
from pathlib import Path

from tests.server.store.making import make, packed
from vivace.server.store import writer
from vivace.server.store.sqlite import SqliteStore

CALM = 25  # puts before the fault, so that there is something to lose
FATAL = {"begin": "BEGIN", "insert": "INSERT OR REPLACE", "commit": "COMMIT", "delete": "DELETE FROM nodes"}


class Unanswered(Future):  # type: ignore[type-arg]
    """Dies when it is to be answered."""

    def set_result(self, result: object) -> None:  # noqa: ARG002
        die()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fault(mode: str, statement: str) -> None:
    """Called by SQLite before each statement."""
    kind, _, delay_us = mode.partition(":")
    if kind == "checkpoint" and "wal_checkpoint" in statement:
        threading.Timer(int(delay_us) / 1e6, die).start()
    elif kind in FATAL and statement.startswith(FATAL[kind]):
        die()


async def main(path: Path, mode: str) -> None:
    if mode.startswith("checkpoint"):
        writer.WAL_BYTES = 2 << 20  # reached within the calm puts
    store = SqliteStore(path)
    await store.open()
    for number in range(10_000):
        if number == CALM:
            assert store._opened is not None
            store._opened.writer._connection.set_trace_callback(lambda sql: fault(mode, sql))
            if mode == "committed":
                writer.Future = Unanswered  # type: ignore[attr-defined]
            if mode == "delete":
                await store.delete(f"r{CALM - 1}", "alice")
        parent = f"r{number - 1}" if number % 10 else None
        record = make(f"r{number}", parent=parent, tokens=packed(number), says=["x" * 50_000])
        await store.put(record)
        print(record.id, flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
