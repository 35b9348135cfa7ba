"""How much each key may ask for: requests and tokens a minute, for each tier on its own.

Owns the counting, the refusal and the headers that tell of both. A request and a guess at its tokens are
taken when it begins, and settled once when it has ended. Does no I/O; the clock is given. Does not own the
keys (`keys`) or who goes first (`queue`).
"""

import math
import time
from collections.abc import Callable
from typing import Annotated

import msgspec

from vivace.engine.wire.frames import Tier
from vivace.protocol.shapes.refusal import Refusal
from vivace.server.store.base import Key

LOCAL_ID = "local"  # the token of this user, which has no limits
MINUTE_S = 60.0
ROUNDING_S = 1e-6  # who waited as long as we said shall not fail by a rounding error
BYTES_PER_TOKEN = 4
OUTPUT_GUESS_TOKENS = 1024  # of an answer whose length nobody knows yet

Count = Annotated[int, msgspec.Meta(ge=0)]


class Allowance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a key may use in a minute. 0 means no limit."""

    requests_per_minute: Count = 0
    tokens_per_minute: Count = 0
    background_requests_per_minute: Count = 0
    background_tokens_per_minute: Count = 0

    def of(self, tier: Tier) -> tuple[int, int]:
        """Return the limits of a tier: requests, tokens."""
        if tier == "background":
            return self.background_requests_per_minute, self.background_tokens_per_minute
        return self.requests_per_minute, self.tokens_per_minute

    def for_key(self, key: Key) -> "Allowance":
        """Return the key's own limits where it has some. Unreadable limits let nothing through."""
        try:
            own = msgspec.json.decode(key.limits, type=dict[str, int])
            return msgspec.convert(msgspec.structs.asdict(self) | own, Allowance)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise Refusal(
                f"The limits of key {key.id} cannot be read: {error}.",
                "Remove the key with `vivace keys rm`, and add another.",
                code="bad_key_limits",
                status=500,
            ) from error


class RateRefused(Refusal):
    """Refuse a request that is beyond a limit: for now, or always if `retry_after_s` is None."""

    def __init__(
        self, message: str, *, limit: str, retry_after_s: float | None, headers: dict[str, str]
    ) -> None:
        if retry_after_s is not None:  # in seconds only: clients look for just this
            message = f"{message} Please try again in {_milliseconds(retry_after_s) / 1000:.12g}s."
        super().__init__(message, code="rate_limit_exceeded", status=429)
        self.limit = limit  # requests, tokens or queue
        self.retry_after_s = retry_after_s
        self.headers = headers | retry_headers(retry_after_s)


class TokenBucket:
    """A token bucket that holds one minute's worth and refills evenly.

    Its whole state is one number: when it will be full again. What is consumed is counted in the seconds that
    it takes to refill. Debt is possible, and is paid by waiting.
    """

    def __init__(self) -> None:
        self._full_at = -math.inf

    def full_in_s(self, now: float) -> float:
        return max(0.0, self._full_at - now)

    def wait_s(self, amount_s: float, now: float) -> float:
        """Return the seconds until this much is there, if it fits at all."""
        wait_s = self.full_in_s(now) + amount_s - MINUTE_S
        return wait_s if wait_s > ROUNDING_S else 0.0

    def consume(self, amount_s: float, now: float) -> None:
        self._full_at = max(self._full_at, now) + amount_s

    def give_back(self, amount_s: float) -> None:
        self._full_at -= amount_s


class _Account:
    """One key in one tier."""

    def __init__(self) -> None:
        self.requests = TokenBucket()
        self.tokens = TokenBucket()
        self.open = 0  # reservations not settled

    def is_idle(self, now: float) -> bool:
        """Return whether it is full and not in use: a new one would be equal."""
        return not (self.open or self.requests.full_in_s(now) or self.tokens.full_in_s(now))


class Reservation:
    """What a request has reserved. Settle it however the request ends; only the first time counts."""

    def __init__(
        self,
        account: _Account,
        tokens: int,
        per_minute: int,
        clock: Callable[[], float],
        headers: dict[str, str],
    ) -> None:
        self.headers = headers  # as they are just after the reservation
        self._account = account
        self._tokens = tokens
        self._per_minute = per_minute
        self._clock = clock
        self._is_settled = False
        account.open += 1

    def settle(self, actual_tokens: int) -> None:
        """Give back what was not used, or consume what was used beyond. The request stays counted."""
        assert actual_tokens >= 0, actual_tokens
        if self._is_settled:
            return
        self._is_settled = True
        self._account.open -= 1
        beyond_s = _inflow_s(actual_tokens - self._tokens, self._per_minute)
        if beyond_s > 0:
            self._account.tokens.consume(beyond_s, self._clock())
        else:
            self._account.tokens.give_back(-beyond_s)


class Limits:
    """The accounts of all keys. `default` is for keys without limits of their own."""

    def __init__(self, default: Allowance, clock: Callable[[], float] = time.monotonic) -> None:
        self._default = default
        self._clock = clock
        self._accounts: dict[tuple[str, Tier], _Account] = {}
        self._sweep_at = -math.inf

    def __len__(self) -> int:
        return len(self._accounts)

    def reserve(self, key: Key, tier: Tier, tokens: int) -> Reservation:
        """Reserve one request and this many tokens, or raise `RateRefused` and reserve nothing."""
        assert tokens >= 0, tokens
        now = self._clock()
        self._sweep(now)
        allowance = Allowance() if key.id == LOCAL_ID else self._default.for_key(key)
        per_minute = allowance.of(tier)
        if per_minute == (0, 0):
            return Reservation(_Account(), tokens, 0, self._clock, {})
        account = self._accounts.setdefault((key.id, tier), _Account())
        self._refuse_if_too_much(account, tier, tokens, per_minute, now)
        account.requests.consume(_inflow_s(1, per_minute[0]), now)
        account.tokens.consume(_inflow_s(tokens, per_minute[1]), now)
        return Reservation(account, tokens, per_minute[1], self._clock, _headers(account, per_minute, now))

    def _refuse_if_too_much(
        self, account: _Account, tier: Tier, tokens: int, per_minute: tuple[int, int], now: float
    ) -> None:
        headers = _headers(account, per_minute, now)
        requests_per_minute, tokens_per_minute = per_minute
        if tokens_per_minute and tokens > tokens_per_minute:
            raise RateRefused(
                f"This request needs about {tokens:,} tokens, and this key has {tokens_per_minute:,} a minute"
                f" ({tier}): it can never pass. Send less, or ask for a shorter answer.",
                limit="tokens",
                retry_after_s=None,
                headers=headers,
            )
        requests_s = account.requests.wait_s(_inflow_s(1, requests_per_minute), now)
        tokens_s = account.tokens.wait_s(_inflow_s(tokens, tokens_per_minute), now)
        if requests_s or tokens_s:
            is_requests = requests_s >= tokens_s
            limit = f"{requests_per_minute:,} requests" if is_requests else f"{tokens_per_minute:,} tokens"
            raise RateRefused(
                f"This key has used up its {limit} a minute ({tier}).",
                limit="requests" if is_requests else "tokens",
                retry_after_s=max(requests_s, tokens_s),
                headers=headers,
            )

    def _sweep(self, now: float) -> None:
        """Once a minute, forget the accounts that a new one would equal."""
        if now >= self._sweep_at:
            self._sweep_at = now + MINUTE_S
            self._accounts = {name: each for name, each in self._accounts.items() if not each.is_idle(now)}


def estimate_tokens(input_bytes: int, max_output_tokens: int | None) -> int:
    """Guess how many tokens to reserve before anything is known. Settling corrects it."""
    return -(-input_bytes // BYTES_PER_TOKEN) + min(
        max_output_tokens or OUTPUT_GUESS_TOKENS, OUTPUT_GUESS_TOKENS
    )


def retry_headers(retry_after_s: float | None) -> dict[str, str]:
    """Return headers that say when to try again. OpenAI's SDKs obey them by themselves."""
    if retry_after_s is None:
        return {"x-should-retry": "false"}
    wait_ms = _milliseconds(retry_after_s)
    return {"retry-after": str(-(-wait_ms // 1000)), "retry-after-ms": str(wait_ms)}


def duration(seconds: float) -> str:
    """Format seconds as OpenAI's headers do: 120ms, 1.5s, 6m0s, 1h0m0s."""
    total_ms = _milliseconds(seconds)
    if 0 < total_ms < 1000:
        return f"{total_ms}ms"
    minutes, rest_ms = divmod(total_ms, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{rest_ms / 1000:g}s"
    return f"{hours}h{minutes}m{text}" if hours else f"{minutes}m{text}" if minutes else text


def _headers(account: _Account, per_minute: tuple[int, int], now: float) -> dict[str, str]:
    """Return OpenAI's headers for each limit that is set."""
    headers = {}
    meters = {"requests": account.requests, "tokens": account.tokens}
    for (name, meter), limit in zip(meters.items(), per_minute, strict=True):
        if limit:
            full_in_s = meter.full_in_s(now)
            remaining = math.floor(limit - (full_in_s - ROUNDING_S) * limit / MINUTE_S)
            headers[f"x-ratelimit-limit-{name}"] = str(limit)
            headers[f"x-ratelimit-remaining-{name}"] = str(min(max(remaining, 0), limit))
            headers[f"x-ratelimit-reset-{name}"] = duration(full_in_s)
    return headers


def _inflow_s(amount: int, per_minute: int) -> float:
    """Return the seconds in which this much refills; 0 without a limit."""
    return amount * MINUTE_S / per_minute if per_minute else 0.0


def _milliseconds(seconds: float) -> int:
    """Round up to milliseconds, but not because of a rounding error."""
    return max(0, math.ceil((seconds - ROUNDING_S) * 1000))
