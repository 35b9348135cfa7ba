"""kill -9 at any point: what was acknowledged is there, once, and the file is sound."""

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.server.store.making import assert_sound, count, make, opened, packed, until


@contextlib.contextmanager
def writing(path: Path, mode: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "tests.server.store.child", str(path), mode]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def acknowledged(child: "subprocess.Popen[str]") -> list[str]:
    assert child.stdout is not None
    lines = child.stdout.read().splitlines()
    assert child.wait() == -signal.SIGKILL
    return lines


async def assert_kept(path: Path, ids: list[str]) -> None:
    """Each is there once with the chain that it ends; at most one more, of which nobody was told."""
    async with opened(path) as store:
        for number, response_id in enumerate(ids):
            record = await store.get(response_id, "alice")
            parent = f"r{number - 1}" if number % 10 else None
            assert record == make(response_id, parent=parent, tokens=packed(number), says=["x" * 50_000])
            log = await store.log(response_id, "alice")
            assert log is not None
            assert log.tokens == packed(*range(number - number % 10, number + 1))
        assert count(path, "responses") - len(ids) in (0, 1)
        assert count(path, "nodes") == count(path, "responses")
        await store.put(make("after"))
    assert_sound(path)


@pytest.mark.parametrize("mode", ["begin", "insert", "commit", "committed"])
async def test_killed_at_a_commit_point(tmp_path: Path, mode: str) -> None:
    """Before the transaction, in it, before its commit, and after it but before the answer."""
    path = tmp_path / "store.db"
    with writing(path, mode) as child:
        ids = acknowledged(child)
    assert len(ids) == 25
    await assert_kept(path, ids)
    assert count(path, "responses") == len(ids) + (mode == "committed") + 1


@pytest.mark.parametrize("delay_us", [0, 50, 200, 500, 1000, 2000, 4000, 8000])
async def test_killed_during_a_checkpoint(tmp_path: Path, delay_us: int) -> None:
    """While the write-ahead log is emptied into the file: it is done again at the next start."""
    path = tmp_path / "store.db"
    with writing(path, f"checkpoint:{delay_us}") as child:
        ids = acknowledged(child)
    assert len(ids) >= 25
    await assert_kept(path, ids)


async def test_killed_at_random(tmp_path: Path) -> None:
    """From outside, at any instant, again and again on the same file."""
    path = tmp_path / "store.db"
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(6):
        with writing(path, "never") as child:
            assert child.stdout is not None
            lines = [child.stdout.readline().strip() for _ in range(chance.randrange(1, 60))]
            os.kill(child.pid, signal.SIGKILL)
            ids = [*lines, *acknowledged(child)]
        async with opened(path) as store:
            for number, response_id in enumerate(ids):
                log = await store.log(response_id, "alice")
                assert log is not None
                assert log.tokens == packed(*range(number - number % 10, number + 1))
        assert_sound(path)


async def test_killed_in_a_deletion(tmp_path: Path) -> None:
    """It was not acknowledged: it is not done at all."""
    path = tmp_path / "store.db"
    with writing(path, "delete") as child:
        ids = acknowledged(child)
    assert len(ids) == 25
    await assert_kept(path, ids)


async def test_nodes_left_by_a_killed_process_are_collected(tmp_path: Path) -> None:
    """What was still to be looked at is in the file, and the next start goes on with it."""
    path = tmp_path / "store.db"
    async with opened(path) as store:
        await store.put(make("r0", tokens=packed(0)))
        for number in range(1, 200):
            await store.put(make(f"r{number}", parent=f"r{number - 1}"))
        await store.sweep(5000)
    async with opened(path):  # closing leaves chores undone, as a kill does
        until(lambda: count(path, "nodes") == 0)
