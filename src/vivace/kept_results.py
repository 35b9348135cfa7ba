"""Results of `vivace bench` and `vivace eval` on this machine, kept to be looked at later.

Owns one JSON file a result under `state_dir/results`, the newest 200. Does not own what is in a result: each
bench and eval has its own form.
"""

import contextlib
import time
from typing import Any

import msgspec

from vivace.config import Settings

MAX_KEPT = 200


class Result(msgspec.Struct, frozen=True):
    name: str  # such as "bench wire"
    at_s: float  # Unix time
    result: dict[str, Any]


def keep_result(settings: Settings, name: str, result: dict[str, Any]) -> None:
    """Keep a result. A disk that does not take it changes nothing for who waits for the figures."""
    folder, now_ns = settings.state_dir / "results", time.time_ns()
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / file_name(now_ns)).write_bytes(msgspec.json.encode(Result(name, now_ns / 1e9, result)))
        for old in sorted(folder.glob("*.json"))[:-MAX_KEPT]:
            old.unlink(missing_ok=True)


def file_name(at_ns: int) -> str:
    """Return a name that sorts behind those of all moments before it, whatever the time zone does."""
    seconds, ns = divmod(at_ns, 10**9)
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(seconds))}-{ns:09d}.json"


def read_results(settings: Settings, limit: int) -> list[Result]:
    """Return the kept results, the newest first. What cannot be read is passed over."""
    found = []
    for file in sorted((settings.state_dir / "results").glob("*.json"), reverse=True)[:limit]:
        with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
            found.append(msgspec.json.decode(file.read_bytes(), type=Result))
    return found
