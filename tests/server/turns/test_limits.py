"""Limits: requests and tokens a minute, reserved at the start and settled at the end."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.engine.wire.frames import Tier
from vivace.protocol.shapes.refusal import Refusal, body_of, status_of
from vivace.server.store.base import Key
from vivace.server.turns.limits import LOCAL_ID, Allowance, Limits, RateRefused, duration, estimate_tokens

TIERS: list[Tier] = ["realtime", "background"]


class Clock:
    def __init__(self) -> None:
        self.now = 1e6  # a machine that has been up for days: floats are coarser there

    def __call__(self) -> float:
        return self.now


def make(**allowed: int) -> tuple[Limits, Clock]:
    clock = Clock()
    return Limits(Allowance(**allowed), clock), clock


def key(name: str = "ann", limits: bytes = b"{}") -> Key:
    return Key(id=name, name=name, tenant=name, created_at=0, limits=limits)


def refused(limits: Limits, tokens: int = 1, tier: Tier = "realtime", who: Key | None = None) -> RateRefused:
    with pytest.raises(RateRefused) as caught:
        limits.reserve(who or key(), tier, tokens)
    return caught.value


def remaining(limits: Limits, who: Key | None = None) -> int:
    """Tokens left, told by a reservation that takes none."""
    return int(limits.reserve(who or key(), "realtime", 0).headers["x-ratelimit-remaining-tokens"])


@pytest.mark.parametrize("tier", TIERS)
def test_requests_are_counted(tier: Tier) -> None:
    """The fourth request in a minute of three is refused, and says that it was the requests."""
    limits, _ = make(requests_per_minute=3, background_requests_per_minute=3)
    for _ in range(3):
        limits.reserve(key(), tier, 1000)
    error = refused(limits, tier=tier)
    assert error.limit == "requests"
    assert error.retry_after_s == pytest.approx(20)


def test_tokens_are_counted() -> None:
    """What does not fit into what is left of the minute's tokens is refused and takes nothing."""
    limits, _ = make(tokens_per_minute=600)
    limits.reserve(key(), "realtime", 500)
    error = refused(limits, 101)
    assert error.limit == "tokens"
    assert error.retry_after_s == pytest.approx(0.1)
    limits.reserve(key(), "realtime", 100)


def test_the_longer_wait_is_told() -> None:
    """Where both limits are reached, the answer names the one that takes longer."""
    limits, _ = make(requests_per_minute=1, tokens_per_minute=60)
    limits.reserve(key(), "realtime", 10)
    error = refused(limits, 60)
    assert error.limit == "requests"
    assert error.retry_after_s == pytest.approx(60)


def test_the_bucket_fills_evenly() -> None:
    """A request comes back every sixth second of ten a minute, not all ten at the minute's end."""
    limits, clock = make(requests_per_minute=10)
    for _ in range(10):
        limits.reserve(key(), "realtime", 0)
    for _ in range(5):
        refused(limits)
        clock.now += 6
        limits.reserve(key(), "realtime", 0)


def test_rounding_refuses_nobody() -> None:
    """Who waits just as long as is needed, to the last digit, gets in."""
    for per_minute in range(1, 300):
        limits, clock = make(requests_per_minute=per_minute)
        for _ in range(per_minute):
            limits.reserve(key(), "realtime", 0)
        for _ in range(5):
            clock.now += refused(limits).retry_after_s or 0.0
            limits.reserve(key(), "realtime", 0)


def test_a_full_bucket_gets_no_fuller() -> None:
    """An hour of silence earns one minute's worth."""
    limits, clock = make(requests_per_minute=2)
    limits.reserve(key(), "realtime", 0)
    clock.now += 3600
    for _ in range(2):
        limits.reserve(key(), "realtime", 0)
    refused(limits)


def test_tiers_and_keys_are_apart() -> None:
    """What one key used in one tier is missing neither in its other tier nor for another key."""
    limits, _ = make(requests_per_minute=1, background_requests_per_minute=1)
    for who in ("ann", "bob"):
        for tier in TIERS:
            limits.reserve(key(who), tier, 0)
            refused(limits, tier=tier, who=key(who))


def test_this_users_token_has_no_limits() -> None:
    """The token of the user is never refused, and its answers tell of no limits."""
    limits, _ = make(requests_per_minute=1, tokens_per_minute=1)
    for _ in range(100):
        assert limits.reserve(key(LOCAL_ID), "realtime", 10**9).headers == {}
    assert len(limits) == 0


def test_a_keys_own_limits_count() -> None:
    """Each limit that a key has of its own stands in for the setting; 0 lifts it."""
    limits, _ = make(requests_per_minute=1, tokens_per_minute=50)
    who = key(limits=b'{"requests_per_minute":0,"tokens_per_minute":100}')
    limits.reserve(who, "realtime", 60)
    limits.reserve(who, "realtime", 40)
    assert refused(limits, 1, who=who).limit == "tokens"


@pytest.mark.parametrize("own", [b"", b"[]", b'{"requests":1}', b'{"tokens_per_minute":-1}', b"{\xff}"])
def test_unreadable_limits_let_nothing_through(own: bytes) -> None:
    """A key whose limits are damaged is refused, not unlimited."""
    limits, _ = make()
    with pytest.raises(Refusal) as caught:
        limits.reserve(key(limits=own), "realtime", 1)
    assert caught.value.status == 500


@pytest.mark.parametrize("actual", [0, 100, 300])
def test_settling_leaves_what_was_really_used(actual: int) -> None:
    """After settling, the minute has lost just the tokens of the usage: less, or more, than reserved."""
    limits, _ = make(tokens_per_minute=600)
    limits.reserve(key(), "realtime", 200).settle(actual)
    assert remaining(limits) == 600 - actual


def test_settling_counts_once() -> None:
    """However often and with whatever number a reservation is settled, only the first time counts."""
    limits, _ = make(tokens_per_minute=600)
    reservation = limits.reserve(key(), "realtime", 200)
    for actual in (50, 0, 600):
        reservation.settle(actual)
    assert remaining(limits) == 550


def test_a_settled_request_stays_counted() -> None:
    """A turn that failed gives its tokens back, not its request."""
    limits, _ = make(requests_per_minute=1, tokens_per_minute=10)
    limits.reserve(key(), "realtime", 10).settle(0)
    assert refused(limits, 10).limit == "requests"


def test_debt_is_paid_by_waiting() -> None:
    """Who used three minutes' worth in one turn waits until it has flowed in."""
    limits, clock = make(tokens_per_minute=100)
    limits.reserve(key(), "realtime", 10).settle(300)
    assert refused(limits, 10).retry_after_s == pytest.approx(126)
    clock.now += 126
    limits.reserve(key(), "realtime", 10)


def test_what_is_given_back_late_does_not_overfill() -> None:
    """Tokens that come back after the bucket has filled again do not make it hold more than a minute's."""
    limits, clock = make(tokens_per_minute=100)
    reservation = limits.reserve(key(), "realtime", 100)
    clock.now += 600
    reservation.settle(0)
    limits.reserve(key(), "realtime", 100)
    refused(limits)


def test_a_request_larger_than_the_minute_can_never_pass() -> None:
    """It is refused with a message that says so, without a time to come again, and SDKs do not retry it."""
    limits, _ = make(tokens_per_minute=100)
    error = refused(limits, 101)
    assert "can never pass" in error.message
    assert "try again" not in body_of(error).message
    assert error.retry_after_s is None
    assert error.headers["x-should-retry"] == "false"
    assert "retry-after" not in error.headers
    limits.reserve(key(), "realtime", 100)


def test_the_headers_are_openais() -> None:
    """A reservation tells limit, rest and reset of both limits, as they are just after it."""
    limits, _ = make(requests_per_minute=60, tokens_per_minute=6000)
    assert limits.reserve(key(), "realtime", 150).headers == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-limit-tokens": "6000",
        "x-ratelimit-remaining-tokens": "5850",
        "x-ratelimit-reset-tokens": "1.5s",
    }


def test_a_limit_that_is_not_there_has_no_headers() -> None:
    """Where only the tokens are limited, only they are told."""
    limits, _ = make(tokens_per_minute=6000)
    names = limits.reserve(key(), "realtime", 1).headers
    assert len(names) == 3
    assert all(name.endswith("-tokens") for name in names)


def test_a_refusal_says_when_to_come_again() -> None:
    """On the wire it is a 429 whose text Codex can read, with both retry headers, the seconds rounded up."""
    limits, _ = make(requests_per_minute=40)
    for _ in range(40):
        limits.reserve(key(), "realtime", 0)
    error = refused(limits)
    assert (status_of(error), error.code) == (429, "rate_limit_exceeded")
    assert "try again in 1.5s" in body_of(error).message
    assert error.headers["retry-after"] == "2"
    assert error.headers["retry-after-ms"] == "1500"
    assert error.headers["x-ratelimit-remaining-requests"] == "0"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.00001, "1ms"),
        (0.12, "120ms"),
        (1, "1s"),
        (1.5, "1.5s"),
        (59.9999, "1m0s"),
        (360, "6m0s"),
        (92.25, "1m32.25s"),
        (3600, "1h0m0s"),
        (1e6, "277h46m40s"),
    ],
)
def test_durations_read_like_openais(seconds: float, text: str) -> None:
    """Milliseconds below a second, then seconds, minutes and hours without gaps."""
    assert duration(seconds) == text


@given(
    per_minute=st.integers(1, 10**7),
    sizes=st.lists(st.tuples(st.integers(0, 10**7), st.floats(0, 100)), max_size=20),
)
def test_who_waits_as_told_gets_in(per_minute: int, sizes: list[tuple[int, float]]) -> None:
    """After the told milliseconds the same request passes; a bit earlier it does not."""
    limits, clock = make(tokens_per_minute=per_minute)
    for size, pause_s in sizes:
        clock.now += pause_s
        tokens = min(size, per_minute)
        wait_s = told_wait_s(limits, tokens)
        if wait_s > 0.002:
            clock.now += wait_s - 0.002
            refused(limits, tokens)
            clock.now += 0.002
        elif wait_s:
            clock.now += wait_s
        if wait_s:
            limits.reserve(key(), "realtime", tokens)


def told_wait_s(limits: Limits, tokens: int) -> float:
    """Reserve, or say how long the refusal tells to wait, in its text and in its header alike."""
    try:
        limits.reserve(key(), "realtime", tokens)
    except RateRefused as error:
        refusal = error
    else:
        return 0.0
    told = re.search(r"try again in (\d+(?:\.\d+)?)s", refusal.message)
    assert told is not None
    assert float(told[1]) == int(refusal.headers["retry-after-ms"]) / 1000
    return float(told[1])


@given(
    turns=st.lists(
        st.tuples(st.integers(0, 100), st.integers(0, 300), st.floats(0, 30), st.booleans()), max_size=60
    )
)
def test_nobody_uses_more_than_flowed_in(turns: list[tuple[int, int, float, bool]]) -> None:
    """At every admission, what ended turns used and open ones hold is at most one fill and the inflow."""
    limits, clock = make(tokens_per_minute=100)
    began, used, held = clock.now, 0, 0
    waiting = []
    for guess, actual, pause_s, is_settled_late in turns:
        clock.now += pause_s
        try:
            reservation = limits.reserve(key(), "realtime", guess)
        except RateRefused:
            continue
        held += guess
        assert used + held <= 100 + (clock.now - began) * 100 / 60 + 1e-3
        waiting.append((reservation, guess, actual))
        for ended, was_guess, was_actual in [] if is_settled_late else waiting:
            ended.settle(was_actual)
            held, used = held - was_guess, used + was_actual
        if not is_settled_late:
            waiting.clear()


def test_keys_not_seen_for_long_are_forgotten() -> None:
    """Accounts that are full again cost no memory; one whose turn still runs is kept, and its debt counts."""
    limits, clock = make(requests_per_minute=10, tokens_per_minute=100)
    for number in range(1000):
        limits.reserve(key(f"k{number}"), "realtime", 5).settle(5)
    running = limits.reserve(key("slow"), "realtime", 5)
    clock.now += 3600
    limits.reserve(key("other"), "realtime", 0)
    assert len(limits) == 2
    running.settle(205)
    assert refused(limits, 10, who=key("slow")).retry_after_s == pytest.approx(66)


def test_the_guess_is_of_the_text_and_a_modest_answer() -> None:
    """Four bytes a token and the answer's length, but an absurd length does not forbid the request."""
    assert estimate_tokens(401, 10) == 111
    assert estimate_tokens(400, None) == 1124
    assert estimate_tokens(400, 1 << 30) == 1124
