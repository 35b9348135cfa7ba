"""Many at once: tasks, readers beside the writer, and other processes on the same file."""

import asyncio
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.store.making import assert_sound, count, looking, make, opened, packed
from vivace.server.store import database
from vivace.server.store.problems import ParentGone, StoreUnavailable
from vivace.server.store.sqlite import SqliteStore

KEYS_CHILD = """
import asyncio, hashlib, sys
from pathlib import Path
from vivace.server.store.base import Key
from vivace.server.store.sqlite import SqliteStore

async def main():
    for number in range(20):
        async with SqliteStore(Path(sys.argv[1])) as store:
            key = Key(id=f"{sys.argv[2]}-{number}", name="n", tenant="t", created_at=number)
            await store.add_key(key, hashlib.sha256(key.id.encode()).digest())
    print("done")

asyncio.run(main())
"""


def adding_keys(path: Path, name: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", KEYS_CHILD, str(path), name]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


async def test_fifty_tasks(tmp_path: Path) -> None:
    """Each builds a chain of its own, reads it after each step and deletes some; none disturbs another."""
    path = tmp_path / "store.db"
    seed = random.randrange(10**6)
    print(f"seed {seed}")

    async def talk(number: int) -> None:
        chance, tenant, parent, tokens = random.Random(seed + number), f"t{number % 7}", None, b""
        for turn in range(8):
            record = make(
                f"r{number}.{turn}",
                tenant=tenant,
                parent=parent,
                tokens=packed(number, turn),
                says=["x" * 3000],
            )
            await store.put(record)
            tokens += record.tokens  # type: ignore[operator]
            assert await store.get(record.id, tenant) == record
            log = await store.log(record.id, tenant)
            assert log is not None
            assert log.tokens == tokens
            if parent and chance.random() < 0.5:
                assert await store.delete(parent, tenant)
            parent = record.id

    async with opened(path) as store:
        await asyncio.gather(*(talk(number) for number in range(50)))
    assert count(path, "nodes") == 50 * 8
    assert_sound(path)


async def test_reading_and_the_loop_go_on_while_a_write_waits(tmp_path: Path) -> None:
    """Somebody else holds the lock: a put waits for him, a get does not; then the put is done."""
    path = tmp_path / "store.db"
    async with opened(path) as store:
        await store.put(make("before"))
        with looking(path) as stranger:
            stranger.execute("BEGIN IMMEDIATE")
            waiting = asyncio.create_task(store.put(make("waiting")))
            for _ in range(20):
                assert await store.get("before", "alice") is not None
                assert await store.get("waiting", "alice") is None
            assert not waiting.done()
            stranger.execute("COMMIT")
        await waiting
        assert await store.get("waiting", "alice") is not None


async def test_puts_that_wait_together_are_committed_together(tmp_path: Path) -> None:
    """Fifty puts, and few commits."""
    path = tmp_path / "store.db"
    commits = []
    async with SqliteStore(path) as store:
        assert store._opened is not None
        store._opened.writer._connection.set_trace_callback(  # now: it would wait for a write that waits
            lambda statement: commits.append(statement) if statement == "COMMIT" else None
        )
        with looking(path) as stranger:
            stranger.execute("BEGIN IMMEDIATE")
            puts = [asyncio.create_task(store.put(make(f"r{number}"))) for number in range(50)]
            await asyncio.sleep(0)  # each has begun
            stranger.execute("COMMIT")
        await asyncio.gather(*puts)
    assert count(path, "responses") == 50
    assert 1 <= len(commits) <= 3


async def test_a_refused_put_does_not_harm_those_beside_it(tmp_path: Path) -> None:
    """In the same commit: one has no parent, the others are written."""
    path = tmp_path / "store.db"
    async with opened(path) as store:
        puts = [store.put(make(f"r{number}")) for number in range(10)]
        puts.insert(5, store.put(make("orphan", parent="nobody")))
        outcomes = await asyncio.gather(*puts, return_exceptions=True)
        assert isinstance(outcomes.pop(5), ParentGone)
        assert outcomes == [None] * 10
    assert count(path, "responses") == count(path, "nodes") == 10


async def test_a_stranger_who_writes_for_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The put is refused with a typed error, and the next one works."""
    monkeypatch.setattr(database, "BUSY_S", 0.05)
    path = tmp_path / "store.db"
    async with opened(path) as store:
        with looking(path) as stranger:
            stranger.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable) as raised:
                await store.put(make())
            assert "Another process" in raised.value.hint
            stranger.execute("COMMIT")
        await store.put(make())
        assert await store.get("resp_1", "alice") is not None


async def test_a_put_that_is_cancelled_in_the_queue(tmp_path: Path) -> None:
    """The others are done, whether it was or not, and the store goes on."""
    path = tmp_path / "store.db"
    async with opened(path) as store:
        with looking(path) as stranger:
            stranger.execute("BEGIN IMMEDIATE")
            puts = [asyncio.create_task(store.put(make(f"r{number}"))) for number in range(10)]
            await asyncio.sleep(0)
            for put in puts[::2]:
                put.cancel()
            stranger.execute("COMMIT")
        await asyncio.gather(*puts, return_exceptions=True)
        assert [put.cancelled() for put in puts] == [True, False] * 5
        for number in range(1, 10, 2):
            assert await store.get(f"r{number}", "alice") is not None
        await store.put(make("r0"))


async def test_closing_does_what_was_asked_before(tmp_path: Path) -> None:
    """Puts that wait are written; calls that come later are refused; closing twice is nothing."""
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    with pytest.raises(StoreUnavailable):
        await store.get("a", "alice")
    await store.open()
    puts = [asyncio.create_task(store.put(make(f"r{number}"))) for number in range(100)]
    await asyncio.sleep(0)
    await store.close()
    await asyncio.gather(*puts)
    assert count(path, "responses") == 100
    for call in (store.put(make()), store.get("r1", "alice")):
        with pytest.raises(StoreUnavailable):
            await call
    await store.close()


async def test_other_processes_write_at_the_same_time(tmp_path: Path) -> None:
    """`vivace keys` while the server runs, and all of them beginning the same file: nobody loses anything."""
    path = tmp_path / "store.db"
    children = [adding_keys(path, name) for name in ("a", "b", "c")]
    number = 0
    async with opened(path) as store:
        while number < 200 or any(child.poll() is None for child in children):
            await store.put(make(f"r{number}", says=["x" * 5000]))
            number += 1
        ends = [child.communicate() for child in children]
        assert [out for out, _ in ends] == [b"done\n"] * 3, ends
        assert len(await store.keys()) == 60
        assert await store.get("r0", "alice") is not None
    assert count(path, "responses") == number
    assert_sound(path)
