"""Old databases are brought forward, newer and foreign ones refused and left as they are."""

import sqlite3
from pathlib import Path

import pytest

from tests.server.store.making import assert_sound, looking, make, opened, packed
from vivace.errors import StartError
from vivace.server.store.migrations import STEPS, migrate, refuse_foreign, version_of

# What a database of each older version may hold: every new step adds an entry, and what becomes of it below.
OLDER: dict[int, tuple[str, ...]] = {
    0: (),
    1: (
        "INSERT INTO nodes VALUES (1, NULL, x'01000000', '[]', '[]', '[]')",
        "INSERT INTO nodes VALUES (2, 1, x'', '[]', '[]', '[]')",
        "INSERT INTO responses VALUES (1, 'bob', 'old', NULL, 'm', 1, 'completed', '{}', 0, '{}', '')",
        "INSERT INTO responses VALUES (2, 'bob', 'empty', 'old', 'm', 2, 'completed', '{}', 0, '{}', '')",
    ),
}


def built(path: Path, version: int, *statements: str) -> None:
    with looking(path) as connection:
        migrate(connection, STEPS[:version])
        for statement in statements:
            connection.execute(statement)


@pytest.mark.parametrize("version", range(len(STEPS)))
async def test_every_older_version_is_brought_forward(tmp_path: Path, version: int) -> None:
    """With what is in it; then it works like a new one."""
    path = tmp_path / "store.db"
    built(path, version, *OLDER[version])
    async with opened(path) as store:
        await store.put(make())
        assert await store.get("resp_1", "alice") == make()
    with looking(path) as connection:
        assert version_of(connection) == len(STEPS)
    assert_sound(path)


async def test_logs_of_the_first_version(tmp_path: Path) -> None:
    """What has tokens has its log. Why a response has none was not kept: it has no log, as it had before."""
    path = tmp_path / "store.db"
    built(path, 1, *OLDER[1])
    async with opened(path) as store:
        log = await store.log("old", "bob")
        assert log is not None
        assert log.tokens == packed(1)
        assert await store.log("empty", "bob") is None


async def test_the_schema_is_the_same_from_every_version(tmp_path: Path) -> None:
    """Brought forward or begun anew, the tables are equal."""
    schemas = set()
    for version in range(len(STEPS) + 1):
        path = tmp_path / f"{version}.db"
        built(path, version)
        async with opened(path):
            pass
        with looking(path) as connection:
            schemas.add(tuple(connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name")))
    assert len(schemas) == 1


async def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    """With a hint, and not a byte of it is changed."""
    path = tmp_path / "store.db"
    async with opened(path) as store:
        await store.put(make())
    with looking(path) as connection:
        connection.execute(f"PRAGMA user_version = {len(STEPS) + 1}")
    before = path.read_bytes()
    with pytest.raises(StartError, match="newer version") as raised:
        async with opened(path):
            pass
    assert raised.value.hint
    assert path.read_bytes() == before


async def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    """It is not ours to change or to move."""
    path = tmp_path / "store.db"
    with looking(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    before = path.read_bytes()
    with pytest.raises(StartError, match="another program"):
        async with opened(path):
            pass
    assert path.read_bytes() == before


def test_a_step_is_done_wholly_or_not_at_all(tmp_path: Path) -> None:
    """A step that fails leaves the version before it; the steps before it stay; it can be tried again."""
    path = tmp_path / "store.db"
    good = ("CREATE TABLE one (a)", "INSERT INTO one VALUES (1)")
    bad = ("CREATE TABLE two (a)", "INSERT INTO one VALUES (2)", "INSERT INTO nowhere VALUES (3)")
    with looking(path) as connection, pytest.raises(sqlite3.OperationalError):
        migrate(connection, (good, bad))
    with looking(path) as connection:
        assert version_of(connection) == 1
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("one",)]
        assert connection.execute("SELECT a FROM one").fetchall() == [(1,)]
        mended = (good, bad[:2])
        refuse_foreign(connection, path, mended)
        migrate(connection, mended)
        assert version_of(connection) == 2
        assert connection.execute("SELECT a FROM one").fetchall() == [(1,), (2,)]


def test_a_step_is_taken_once_by_two_at_once(tmp_path: Path) -> None:
    """One that finds the step taken while it waited for the lock does not take it again."""
    path = tmp_path / "store.db"
    steps = (("CREATE TABLE one (a)",), ("INSERT INTO one VALUES (1)",))
    with looking(path) as first, looking(path) as second:

        def overtake(statement: str) -> None:
            if statement.startswith("BEGIN"):
                first.set_trace_callback(None)
                migrate(second, steps)

        first.set_trace_callback(overtake)
        migrate(first, steps)
        assert first.execute("SELECT a FROM one").fetchall() == [(1,)]
