"""Keys in the store: found by the hash of their secret, listed, touched and removed."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server.store.making import opened
from vivace.errors import UsageError
from vivace.server.store.base import Key, Store


def hashed(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with opened(tmp_path / "store.db") as store:
        yield store


async def test_a_key_is_found_by_its_secrets_hash(store: Store) -> None:
    """As it was added; another secret finds nothing."""
    key = Key(id="k1", name="laptop", tenant="alice", created_at=5, limits=b'{"realtime":{"rpm":3}}')
    await store.add_key(key, hashed("one"))
    assert await store.find_key(hashed("one")) == key
    assert await store.find_key(hashed("two")) is None
    assert await store.find_key(b"") is None


async def test_keys_are_listed_oldest_first(store: Store) -> None:
    """And those of one second in the order in which they were added."""
    for number, created_at in enumerate([7, 5, 5, 9]):
        key = Key(id=f"k{number}", name="same", tenant="t", created_at=created_at)
        await store.add_key(key, hashed(key.id))
    assert [key.id for key in await store.keys()] == ["k1", "k2", "k0", "k3"]


async def test_a_removed_key_is_gone(store: Store) -> None:
    """It is not found any more, and removing it again says that it was not there."""
    await store.add_key(Key(id="k1", name="n", tenant="t", created_at=1), hashed("one"))
    assert await store.remove_key("k1")
    assert not await store.remove_key("k1")
    assert not await store.remove_key("\udcff")
    assert await store.find_key(hashed("one")) is None
    assert await store.keys() == []


async def test_last_use_never_goes_back(store: Store) -> None:
    """Touches may come in any order; one for a removed key is nothing."""
    await store.add_key(Key(id="k1", name="n", tenant="t", created_at=1), hashed("one"))
    for used_at in (50, 70, 60):
        await store.touch_key("k1", used_at)
    await store.touch_key("gone", 80)
    (key,) = await store.keys()
    assert key.last_used_at == 70


async def test_a_second_key_of_the_same_id_or_secret_is_refused(store: Store) -> None:
    """In words; the first one stays."""
    first = Key(id="k1", name="first", tenant="t", created_at=1)
    await store.add_key(first, hashed("one"))
    for key_id, secret in (("k1", "two"), ("k2", "one")):
        with pytest.raises(UsageError):
            await store.add_key(Key(id=key_id, name="n", tenant="t", created_at=2), hashed(secret))
    assert await store.keys() == [first]
