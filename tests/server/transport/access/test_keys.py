"""Keys: made, found, forgotten, removed; and `vivace keys` as a person sees it."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from vivace.cli.server.keys import keys as command
from vivace.config import load_settings
from vivace.errors import UsageError
from vivace.server.store.base import Key
from vivace.server.store.problems import StoreUnavailable
from vivace.server.store.sqlite import SqliteStore
from vivace.server.transport.access.keys import MAX_REMEMBERED, REMEMBER_S, Keys, add_key, hash_of, remove_key
from vivace.server.turns.limits import Allowance


class Counting(SqliteStore):
    """The store, and how often it was asked."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.finds = 0
        self.is_asked = asyncio.Event()
        self.notes: list[int] = []
        self.is_full = False

    async def find_key(self, secret_hash: bytes) -> Key | None:
        self.finds += 1
        self.is_asked.set()
        return await super().find_key(secret_hash)

    async def touch_key(self, key_id: str, used_at: int) -> None:
        if self.is_full:
            raise StoreUnavailable("The disk is full.")
        self.notes.append(used_at)
        await super().touch_key(key_id, used_at)


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Counting]:
    async with Counting(tmp_path / "state" / "vivace.db") as store:
        yield store


async def test_a_key_is_found_by_its_secret(store: Counting) -> None:
    """What was given out opens the door, as the key that it was made as; anything else does not."""
    key, secret = await add_key(store, "ci", tenant="team", limits={"tokens_per_minute": 5})
    other, _ = await add_key(store, "laptop")
    keys = Keys(store)
    assert await keys.find(secret) == key
    assert (key.name, key.tenant, other.tenant) == ("ci", "team", "laptop")
    assert Allowance().for_key(key).tokens_per_minute == 5
    assert await keys.find(secret[:-1] + ("a" if secret[-1] != "a" else "b")) is None
    await keys.close()


async def test_the_secret_is_random_and_not_kept(store: Counting, tmp_path: Path) -> None:
    """A secret has 256 bits after its prefix, and no file holds it."""
    _, secret = await add_key(store, "ci")
    _, another = await add_key(store, "ci2")
    assert secret.startswith("vv_")
    assert len(secret) == 46
    assert secret != another
    assert not any(secret.encode() in file.read_bytes() for file in (tmp_path / "state").iterdir())


@pytest.mark.parametrize(
    "text", ["", "vv_", "Bearer", "vv_" + "a" * 44, "vv_" + "é" * 43, "xx_" + "a" * 43, "vv_" + "a" * 10**6]
)
async def test_what_is_no_secret_is_not_looked_up(store: Counting, text: str) -> None:
    """Text without the form of a secret costs no disk read."""
    assert await Keys(store).find(text) is None
    assert store.finds == 0


async def test_a_key_in_use_costs_no_disk_read(store: Counting) -> None:
    """Many requests in a few seconds look it up once."""
    key, secret = await add_key(store, "ci")
    clock = Clock(100.0)
    keys = Keys(store, clock)
    for _ in range(20):
        assert await keys.find(secret) == key
        clock.now += REMEMBER_S / 21
    assert store.finds == 1
    await keys.close()


async def test_a_removed_key_stops_working(store: Counting) -> None:
    """When it is not remembered any more, seconds later, it is unknown; asking often does not keep it."""
    key, secret = await add_key(store, "ci")
    clock = Clock(100.0)
    keys = Keys(store, clock)
    assert await keys.find(secret)
    await remove_key(store, key.id)
    clock.now += REMEMBER_S / 2
    assert await keys.find(secret)
    clock.now += REMEMBER_S / 2
    assert await keys.find(secret) is None
    assert await keys.find_hashed(hash_of(secret)) is None
    await keys.close()


async def test_a_slow_look_does_not_prolong_a_key(store: Counting) -> None:
    """What was found holds from when it was asked for: it may have been removed since."""
    _, secret = await add_key(store, "ci")
    clock = Clock(100.0)
    keys = Keys(store, clock)
    finding = asyncio.create_task(keys.find(secret))
    await store.is_asked.wait()
    clock.now += REMEMBER_S
    assert await finding
    assert await keys.find(secret)
    assert store.finds == 2
    await keys.close()


async def test_the_last_use_is_written_once_a_minute(store: Counting) -> None:
    """However many requests, also at the same time, there is one note a minute, and the list shows it."""
    key, secret = await add_key(store, "ci")
    clock, now = Clock(0.0), Clock(key.created_at + 10.5)
    keys = Keys(store, clock, now)
    began = int(now.now)
    for _ in range(13):
        await asyncio.gather(*(keys.find(secret) for _ in range(5)))
        await keys.close()
        clock.now, now.now = clock.now + 10, now.now + 10
    assert store.notes == [began, began + 60, began + 120]
    assert [each.last_used_at for each in await store.keys()] == [began + 120]


async def test_a_restart_keeps_to_the_minute(store: Counting) -> None:
    """Another server that finds a key used a moment ago writes nothing."""
    key, secret = await add_key(store, "ci")
    await store.touch_key(key.id, 5000)
    keys = Keys(store, now=Clock(5059.0))
    await keys.find(secret)
    await keys.close()
    assert store.notes == [5000]


async def test_a_disk_that_refuses_the_note_refuses_nobody(
    store: Counting, caplog: pytest.LogCaptureFixture
) -> None:
    """A key works although its last use cannot be written down; the log says so, without the secret."""
    key, secret = await add_key(store, "ci")
    store.is_full = True
    keys = Keys(store)
    assert await keys.find(secret) == key
    await keys.close()
    assert f"key {key.id} is not written down: The disk is full." in caplog.text
    assert secret not in caplog.text


async def test_a_store_that_cannot_be_read_lets_nobody_in(store: Counting) -> None:
    """Whether a key is still good cannot be known then, and the answer says so."""
    _, secret = await add_key(store, "ci")
    clock = Clock(0.0)
    keys = Keys(store, clock)
    assert await keys.find(secret)
    await keys.close()
    await store.close()
    clock.now += REMEMBER_S
    with pytest.raises(StoreUnavailable):
        await keys.find(secret)


async def test_only_so_many_keys_are_remembered(store: Counting) -> None:
    """Memory is bounded; who was pushed out is looked up again."""
    count = MAX_REMEMBERED + 10
    hashes = [bytes([*number.to_bytes(2), *[0] * 30]) for number in range(count)]
    await asyncio.gather(
        *(store.add_key(Key(f"k{n}", f"n{n}", "t", 0, 2**40), hashes[n]) for n in range(count))
    )
    keys = Keys(store, Clock(0.0), Clock(2**40))
    for secret_hash in hashes:
        assert await keys.find_hashed(secret_hash)
    assert len(keys._found) == MAX_REMEMBERED
    for secret_hash in hashes[:20]:
        assert await keys.find_hashed(secret_hash)
    assert store.finds == count + 20


@pytest.mark.parametrize("name", ["", " ", " ci", "a\nb", "\x1b[31mred", "x" * 65, "vv_" + "a" * 43])
async def test_odd_names_are_refused(store: Counting, name: str) -> None:
    """A name can be shown on one line, and is not a secret; nor is a tenant."""
    with pytest.raises(UsageError):
        await add_key(store, name)
    with pytest.raises(UsageError):
        await add_key(store, "fine", tenant=name)
    assert await store.keys() == []


async def test_names_are_taken_once(store: Counting) -> None:
    """A second key of the same name, or named as another one's id, would be removed by mistake."""
    key, _ = await add_key(store, "ci")
    for name in ("ci", key.id):
        with pytest.raises(UsageError):
            await add_key(store, name)


async def test_a_tenant_is_shared_only_on_demand(store: Counting) -> None:
    """A key whose name happens to be a tenant's does not get at that tenant's responses."""
    await add_key(store, "ann", tenant="team")
    with pytest.raises(UsageError):
        await add_key(store, "team")
    key, _ = await add_key(store, "bob", tenant="team")
    assert key.tenant == "team"


async def test_an_ambiguous_name_removes_nothing(store: Counting) -> None:
    """Two keys that got the same name in the same moment are told apart by their ids; an id goes first."""
    for number, name in enumerate(["same", "same", "k0"]):
        await store.add_key(Key(f"k{number}", name, "t", 0), bytes([number] * 32))
    with pytest.raises(UsageError, match="2 keys"):
        await remove_key(store, "same")
    assert (await remove_key(store, "k0")).name == "same"
    assert [key.name for key in await store.keys()] == ["same", "k0"]


# ---- the command ----------------------------------------------------------------------------------------


@pytest.fixture
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VIVACE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("VIVACE_PORT", "8399")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "state"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments, catch_exceptions=False, standalone_mode=False)


def add(*arguments: str) -> tuple[str, dict[str, object]]:
    """Its secret, and what the list says of it."""
    secret = run("add", *arguments).stdout.strip()
    return secret, json.loads(run("list", "--json").stdout)[-1]


@pytest.mark.usefixtures("state_dir")
def test_add_shows_the_secret_once() -> None:
    """The secret is all there is on stdout; how to use it is said beside it, and no list shows it again."""
    result = run("add", "ci", "--tenant", "team", "--requests-per-minute", "60")
    secret = result.stdout.removesuffix("\n")
    assert len(secret) == 46
    assert secret.startswith("vv_")
    assert "OPENAI_BASE_URL=http://127.0.0.1:8399/v1" in result.stderr
    assert "60 requests" in result.stderr
    assert secret not in result.stderr
    for shown in (run(), run("list"), run("list", "--json")):
        assert secret[3:] not in shown.output
        assert hash_of(secret).hex() not in shown.output


@pytest.mark.usefixtures("state_dir")
def test_list_is_a_table() -> None:
    """Each key has a line with its id, name, tenant, times and limits."""
    _, ci = add(
        "ci", "--tenant", "team", "--tokens-per-minute", "10000", "--background-requests-per-minute", "0"
    )
    _, laptop = add("laptop")
    lines = run("list").output.splitlines()
    assert lines[0].split() == ["ID", "NAME", "TENANT", "CREATED", "LAST", "USED", "LIMITS", "A", "MINUTE"]
    assert lines[1].startswith(f"{ci['id']}  ci      team    20")
    assert lines[1].endswith("  never      10,000 tokens, any background requests")
    assert lines[2].startswith(f"{laptop['id']}  laptop  laptop  20")
    assert lines[2].endswith("  as in the settings")


@pytest.mark.usefixtures("state_dir")
def test_list_for_programs() -> None:
    """JSON has the limits that were given and nothing secret."""
    _, key = add("ci", "--tokens-per-minute", "7", "--background-tokens-per-minute", "8")
    assert set(key) == {"id", "name", "tenant", "created_at", "last_used_at", "limits"}
    assert key["limits"] == {"tokens_per_minute": 7, "background_tokens_per_minute": 8}
    assert key["last_used_at"] is None


def test_looking_makes_no_database(state_dir: Path) -> None:
    """Where no key was ever made the list says so, and writes nothing."""
    assert "vivace keys add NAME" in run("list").output
    assert run("list", "--json").output == "[]\n"
    assert not state_dir.exists()


@pytest.mark.usefixtures("state_dir")
def test_rm_takes_an_id_or_a_name() -> None:
    """Either names the key; what is not there is an error with a hint."""
    add("one")
    _, two = add("two")
    assert "one" in run("rm", "one").output
    assert "two" in run("rm", str(two["id"])).output
    with pytest.raises(UsageError) as caught:
        run("rm", "one")
    assert "vivace keys list" in caught.value.hint


@pytest.mark.usefixtures("state_dir")
def test_rm_does_not_repeat_a_secret() -> None:
    """Who names a key by its secret is helped without the secret being shown again."""
    secret, _ = add("one")
    with pytest.raises(UsageError) as caught:
        run("rm", secret)
    assert secret not in caught.value.message + caught.value.hint


@pytest.mark.usefixtures("state_dir")
async def test_the_command_works_beside_a_server() -> None:
    """A key that is added while the store is open elsewhere works there, and stops when it is removed."""
    async with SqliteStore(load_settings().database) as store:
        clock = Clock(0.0)
        keys = Keys(store, clock)
        secret, _ = await asyncio.to_thread(add, "ci")
        found = await keys.find(secret)
        assert found is not None
        assert found.name == "ci"
        await asyncio.to_thread(run, "rm", "ci")
        clock.now += REMEMBER_S
        assert await keys.find(secret) is None
        await keys.close()
