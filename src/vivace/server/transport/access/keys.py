"""Keys for other programs and people: how one is made, kept, found again and taken back.

Owns the secret's form and its hash, the rules for names, and a short memory of keys found, so that a request
costs no disk read and a removed key still stops working within seconds. Does not own the rows (`store`), what
a key may use (`limits`) or the token of this user (`auth`).

A secret is 256 random bits, so a plain SHA-256 is enough: slow hashes make guessing dear where people choose
short passwords, and nobody guesses 256 bits. It is found by its hash, so comparing leaks nothing by its time:
whoever could choose what the hash begins with could break SHA-256.
"""

import asyncio
import hashlib
import logging
import secrets
import time
from collections.abc import Callable, Mapping

import msgspec

from vivace.errors import UsageError, VivaceError
from vivace.server.store.base import Key, Store
from vivace.server.turns.limits import Allowance

PREFIX = "vv_"
SECRET_CHARS = len(PREFIX) + 43
NAME_CHARS = 64
REMEMBER_S = 3.0
MAX_REMEMBERED = 1024
NOTE_USE_S = 60

log = logging.getLogger(__name__)


def hash_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


async def add_key(
    store: Store, name: str, *, tenant: str | None = None, limits: Mapping[str, int] | None = None
) -> tuple[Key, str]:
    """Make a key. Return it and its secret, which is stored nowhere. Without a tenant it shares nothing."""
    _check_name(name, "name")
    known = await store.keys()
    if any(name in (key.name, key.id) for key in known):
        raise UsageError(
            f"There is a key {name!r} already.", "Choose another name, or remove it with `vivace keys rm`."
        )
    if tenant is not None:
        _check_name(tenant, "tenant")
    elif any(name == key.tenant for key in known):
        raise UsageError(
            f"There is a tenant {name!r} already.",
            f"Choose another name, or share what that tenant has stored: `--tenant {name}`.",
        )
    msgspec.convert(limits or {}, Allowance)
    key = Key(
        id=secrets.token_hex(4),
        name=name,
        tenant=name if tenant is None else tenant,
        created_at=int(time.time()),
        limits=msgspec.json.encode(limits or {}),
    )
    secret = PREFIX + secrets.token_urlsafe(32)
    await store.add_key(key, hash_of(secret))
    return key, secret


async def remove_key(store: Store, id_or_name: str) -> Key:
    """Remove a key by its id or name, and return it. An id goes before a name."""
    known = await store.keys()
    found = [key for key in known if key.id == id_or_name] or [key for key in known if key.name == id_or_name]
    if len(found) > 1:
        ids = ", ".join(key.id for key in found)
        raise UsageError(f"{len(found)} keys have the name {id_or_name!r}.", f"Use an id: {ids}.")
    if not found or not await store.remove_key(found[0].id):
        # Who gives the secret itself shall not find it in a log.
        shown = (
            "No key has its secret as id or name"
            if is_secret(id_or_name)
            else f"There is no key {id_or_name!r}"
        )
        raise UsageError(f"{shown}.", "`vivace keys list` shows ids and names.")
    return found[0]


def is_secret(text: str) -> bool:
    """Return whether the text has the form of a secret; no other is looked up in the store."""
    return text.startswith(PREFIX) and len(text) == SECRET_CHARS and text.isascii()


class Keys:
    """Finds keys for the gate."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._clock = clock
        self._now = now
        self._found: dict[bytes, tuple[Key, float]] = {}  # by hash: the key, and until when this holds
        self._used_at: dict[str, int] = {}  # by id: as it was last written down
        self._notes: set[asyncio.Task[None]] = set()

    async def find(self, secret: str) -> Key | None:
        """Return the key with this secret, or None; raise `StoreUnavailable` if that cannot be known now."""
        return await self.find_hashed(hash_of(secret)) if is_secret(secret) else None

    async def find_hashed(self, secret_hash: bytes) -> Key | None:
        """Find a key by the hash of its secret. A connection does so before each of its turns."""
        asked_at = self._clock()
        key, until = self._found.get(secret_hash, (None, 0.0))
        if key is None or asked_at >= until:
            key = await self._store.find_key(secret_hash)
            self._remember(secret_hash, key, asked_at + REMEMBER_S)
        if key is not None:
            self._note_use(key)
        return key

    async def close(self) -> None:
        """Wait for writes that are under way. Call it before the store is closed."""
        while self._notes:
            await asyncio.wait(self._notes)

    def _remember(self, secret_hash: bytes, key: Key | None, until: float) -> None:
        """Remember a key that was found. Wrong secrets are not remembered: they would push out right ones."""
        self._found.pop(secret_hash, None)
        if key is not None:
            self._found[secret_hash] = (key, until)
            if len(self._found) > MAX_REMEMBERED:
                del self._found[next(iter(self._found))]  # the oldest

    def _note_use(self, key: Key) -> None:
        """Note that the key was used, at most once a minute, without waiting for the write."""
        used_at = int(self._now())
        if 0 <= used_at - self._used_at.get(key.id, key.last_used_at or 0) < NOTE_USE_S:
            return
        if len(self._used_at) >= MAX_REMEMBERED:
            self._used_at.clear()
        self._used_at[key.id] = used_at
        note = asyncio.create_task(self._write_use(key.id, used_at))
        self._notes.add(note)
        note.add_done_callback(self._notes.discard)

    async def _write_use(self, key_id: str, used_at: int) -> None:
        try:
            await self._store.touch_key(key_id, used_at)
        except VivaceError as error:
            log.warning("the last use of key %s is not written down: %s", key_id, error.message)


def _check_name(text: str, what: str) -> None:
    if not text.strip() or text != text.strip() or len(text) > NAME_CHARS or not text.isprintable():
        raise UsageError(
            f"This is no {what} for a key.", f"A {what} has 1 to {NAME_CHARS} characters that can be printed."
        )
    if text.startswith(PREFIX):
        raise UsageError(
            f"This looks like a secret, not like a {what}.", "Choose a name that people may see."
        )
