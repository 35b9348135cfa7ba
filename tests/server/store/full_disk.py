"""A process whose files may not grow, as on a full disk: `… full_disk PATH`. Ends with 0 if all is well.

The limit is the system's (RLIMIT_FSIZE), for this process alone.
"""

import asyncio
import resource
import sys
from pathlib import Path

import pytest

from tests.server.store.making import make, packed, size_of, until
from vivace.server.store import writer
from vivace.server.store.problems import StoreUnavailable
from vivace.server.store.sqlite import SqliteStore

BIG = ["x" * 2_000_000]


def limit(most_bytes: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))


async def main(path: Path) -> None:
    wal = path.with_name(f"{path.name}-wal")
    writer.WAL_BYTES = 1 << 40
    async with SqliteStore(path) as store:
        await store.put(make("before", tokens=packed(1)))

        limit(size_of(wal) + 100_000)
        for attempt in range(3):
            with pytest.raises(StoreUnavailable) as raised:
                await store.put(make(f"big{attempt}", says=BIG))
            assert raised.value.code == "store_unavailable"
            assert "disk" in raised.value.hint
        assert await store.get("before", "alice") is not None
        assert await store.get("big0", "alice") is None
        await store.put(make("small", parent="before", tokens=packed(2)))

        limit(resource.RLIM_INFINITY)
        await store.put(make("big0", parent="small", tokens=packed(3), says=BIG))
        log = await store.log("big0", "alice")
        assert log is not None
        assert log.tokens == packed(1, 2, 3)

        # The log has room, the file has none: it cannot be emptied, and nothing is lost.
        assert size_of(path) < 1_000_000 < size_of(wal)
        limit(1_000_000)
        writer.QUIET_S = 0.01
        assert store._opened is not None
        await store.touch_key("nobody", 1)
        until(lambda: store._opened and store._opened.writer._is_ailing)
        assert (await store.get("big0", "alice")) is not None
        limit(resource.RLIM_INFINITY)
        await store.touch_key("nobody", 1)
        until(lambda: size_of(wal) == 0)
        assert not store._opened.writer._is_ailing


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
