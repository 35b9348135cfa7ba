"""The store: responses as they were given, and the token logs they end in. SQLite now, Postgres when shared.

Owns the seam and the shapes. Everything is per tenant: another tenant's response is not there. What is put is
durable against kill -9 of the server when `put` returns.
"""

from typing import Protocol

import msgspec


class Record(msgspec.Struct, kw_only=True):
    """One response, with only what is new in it.

    A response continues its parent exactly (law 1): `tokens` follow those of `parent`, and `input` follows
    `parent`'s input and output. If the parent is not stored (`store: false`), `parent` is None, `tokens` are
    the whole log, and `history` has the earlier items.
    """

    id: str
    tenant: str
    parent: str | None = None  # the stored response that this one continues
    model: str
    created_at: int
    status: str  # of the response: queued, in_progress, completed, incomplete, failed, cancelled
    response: bytes  # the Response as JSON, as it was last sent
    input: bytes = b"[]"  # JSON list of this request's input items, each with an id
    history: bytes = b"[]"
    tokens: bytes | None = None  # int32, little endian; "" if it added none; None: it has no log
    log_contents: bytes = b"{}"  # JSON: what the log tells of already (instructions, tools)
    events: bytes = b""  # JSON lines of all events, for a background response that can be streamed again


class Log(msgspec.Struct):
    """The whole log of a response."""

    model: str
    tokens: bytes
    log_contents: bytes


class Key(msgspec.Struct, frozen=True):
    """A key that was issued. Only its hash is stored."""

    id: str  # short, for `vivace keys list`
    name: str
    tenant: str
    created_at: int
    last_used_at: int | None = None
    limits: bytes = b"{}"  # JSON: this key's own limits, where they differ from the settings


class Store(Protocol):
    """All calls are coroutines: the work is done in other threads."""

    async def put(self, record: Record) -> None:
        """Write a response or overwrite it. A background response is put when it begins and when it ends."""
        ...

    async def get(self, response_id: str, tenant: str) -> Record | None:
        """Return the record, without its parent's part; None if it is not there."""
        ...

    async def log(self, response_id: str, tenant: str) -> Log | None:
        """Return the tokens of the whole chain in order; None if the response is not there.

        None also if a response of the chain has no log (an upstream's, or one that failed before its prompt):
        what it said is not in any tokens.
        """
        ...

    async def items(self, response_id: str, tenant: str) -> bytes | None:
        """Return every item of the chain, this response's output included, as a JSON list; None if gone."""
        ...

    async def delete(self, response_id: str, tenant: str) -> bool:
        """Delete a response; those that continue it keep what they need. Return whether it was there."""
        ...

    async def end_unfinished(self, why: bytes) -> int:
        """Mark responses as `failed` that were queued or in progress when the last server died."""
        ...

    async def sweep(self, older_than: int) -> int:
        """Delete responses created before this time (retention). Return how many."""
        ...

    async def add_key(self, key: Key, secret_hash: bytes) -> None: ...

    async def find_key(self, secret_hash: bytes) -> Key | None: ...

    async def keys(self) -> list[Key]: ...

    async def remove_key(self, key_id: str) -> bool: ...

    async def touch_key(self, key_id: str, used_at: int) -> None: ...

    async def close(self) -> None: ...
