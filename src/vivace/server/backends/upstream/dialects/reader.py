"""What every reader of an upstream's answer shares: the end, the usage, and values of strangers' JSON.

Owns the seam between the two APIs and whoever drives a turn. A field of a wrong type is as good as none:
what can be understood of an answer is used, and nothing raises for the rest.
"""

import json
from typing import Any, Protocol

import msgspec

from vivace.protocol.shapes.events import InputTokensDetails, OutputTokensDetails, Usage


class Reader(Protocol):
    reason: str  # why the answer ended; "" until that is known
    is_over: bool  # nothing more is worth waiting for
    has_said_why: bool  # the upstream itself gave the reason, and did not just stop
    usage: Usage | None

    def read_event(self, name: str, data: str) -> None:
        """Read one event. Raise `UpstreamProblem` if it is an error, or not of this API."""
        ...

    def read_whole(self, body: bytes) -> None:
        """Read the whole answer of a server that does not stream."""
        ...

    def end(self) -> None:
        """Note that no more events come. Raise `UpstreamProblem` if the answer is not whole."""
        ...


def decode(data: str | bytes) -> Any:
    """Decode JSON, also with NaN or lone surrogates. Raise `ValueError` if it is none."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53 else 0


def usage_of(given: Any) -> Usage | None:
    """Return the usage, in the names of either API; None if there is none."""
    counts = mapping(given)
    if not counts:
        return None
    read = count(counts.get("input_tokens")) or count(counts.get("prompt_tokens"))
    wrote = count(counts.get("output_tokens")) or count(counts.get("completion_tokens"))
    before = mapping(counts.get("input_tokens_details") or counts.get("prompt_tokens_details"))
    after = mapping(counts.get("output_tokens_details") or counts.get("completion_tokens_details"))
    cached = count(before.get("cached_tokens")) or count(counts.get("prompt_cache_hit_tokens"))
    return Usage(
        read,
        wrote,
        read + wrote,
        InputTokensDetails(min(cached, read), count(before.get("cache_write_tokens"))),
        OutputTokensDetails(
            count(after.get("reasoning_tokens")),
            count(after.get("accepted_prediction_tokens")),
            count(after.get("rejected_prediction_tokens")),
        ),
    )
