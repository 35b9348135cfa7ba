"""What tests of parked KV share: a cache on a folder, and states that are known by their tokens."""

from collections.abc import Sequence
from pathlib import Path

from vivace.engine.kv.parked_cache import ParkedCache
from vivace.engine.runners.base import KVState

LIMIT = 10_000
ANN = "ann"


def make_parked_cache(folder: Path, limit_bytes: int = LIMIT, kv_format: str = "test") -> ParkedCache:
    return ParkedCache(folder, kv_format=kv_format, limit_bytes=limit_bytes)


def state_of(tokens: Sequence[int], size_bytes: int = 500) -> bytes:
    return (bytes(token % 256 for token in tokens) * size_bytes)[:size_bytes]


def park(parked_cache: ParkedCache, tokens: Sequence[int], size_bytes: int = 500, tenant: str = ANN) -> None:
    parked_cache.park(tenant, tokens, lambda: state_of(tokens, size_bytes))


def find(parked_cache: ParkedCache, tokens: Sequence[int], tenant: str = ANN) -> KVState | None:
    """The state of a file that holds exactly these tokens."""
    found = parked_cache.find(tenant, tokens)
    if found is None or found.length != len(tokens) or len(found.parked.tokens) != len(tokens):
        return None
    saved = parked_cache.read(found.parked)
    return saved.state if saved else None


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*/*/*") if path.is_file())
