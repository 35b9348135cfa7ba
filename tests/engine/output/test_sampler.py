"""Choosing tokens: greedy, or drawn with noise that is a function of (seed, position, token)."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.thorough import examples
from vivace.engine.output import sampler
from vivace.engine.output.sampler import FLOOR, Mask, Row, Sampler, check_sampling, log_probability
from vivace.engine.wire.frames import Sampling
from vivace.errors import UsageError

SHARES = [0.5, 0.3, 0.15, 0.05]


def read_only(values: object) -> Row:
    row = np.asarray(values, np.float32)
    row.flags.writeable = False  # as the runner's memory is to be treated
    return row


LOGITS = read_only(np.log(SHARES))


def drawn(sampling: Sampling, count: int, row: Row = LOGITS, allowed: Mask | None = None) -> list[int]:
    sampler = Sampler(sampling, ())
    return [sampler.sample(row, position, allowed) for position in range(count)]


def random_row(seed: int, size: int) -> Row:
    return read_only(np.random.default_rng(seed).normal(0, 6, size))


# ---- greedy ----------------------------------------------------------------------------------------


def test_zero_temperature_takes_the_likeliest() -> None:
    """Greedy is the argmax, whatever the seed; of equals the first."""
    row = read_only([1, 3, 2, 3])
    assert {Sampler(Sampling(seed=seed), ()).sample(row, 3) for seed in range(20)} == {1}


def test_greedy_takes_the_likeliest_that_is_allowed() -> None:
    """With a mask, greedy is the argmax among what the mask allows."""
    for count in (1, 3, 2500, 4999):
        row, allowed = random_row(count, 5000), np.zeros(5000, np.bool_)
        allowed[np.random.default_rng(count).choice(5000, count, replace=False)] = True
        best = max(np.flatnonzero(allowed), key=lambda token: row[token])
        assert Sampler(Sampling(), ()).sample(row, 0, allowed) == best


# ---- draws -----------------------------------------------------------------------------------------


@given(st.integers(-(2**63), 2**64), st.integers(0, 200_000), st.lists(st.integers(0, 99), max_size=5))
def test_a_draw_is_a_function_of_seed_and_position(seed: int, position: int, before: list[int]) -> None:
    """The same seed at the same position draws the same token, whatever was drawn before."""
    sampler = Sampler(Sampling(temperature=0.8, top_p=0.95, seed=seed), ())
    first = sampler.sample(LOGITS, position)
    for other in before:
        sampler.sample(LOGITS, other)
    assert sampler.sample(LOGITS, position) == first
    assert Sampler(Sampling(temperature=0.8, top_p=0.95, seed=seed), ()).sample(LOGITS, position) == first


def test_other_seeds_draw_other_tokens() -> None:
    """Neighbouring seeds, and neighbouring positions, have nothing to do with each other."""
    flat = read_only(np.zeros(1000))
    rows = np.array([drawn(Sampling(temperature=1, seed=seed), 200, flat) for seed in range(20)])
    same_place = (rows[1:] == rows[:-1]).mean()
    shifted = (rows[1:, 1:] == rows[:-1, :-1]).mean()
    assert max(same_place, shifted, (rows[:, 1:] == rows[:, :-1]).mean()) < 0.01
    assert len(set(rows.flat)) > 950


def test_draws_follow_the_distribution() -> None:
    """Over many positions, tokens come about as often as they are likely."""
    shares = np.bincount(drawn(Sampling(temperature=1, seed=7), 8000), minlength=4) / 8000
    assert shares == pytest.approx(SHARES, abs=0.02)


def test_temperature_sharpens_the_distribution() -> None:
    """At temperature 0.5 probabilities are squared, at 2 their roots are taken, and made to sum to one."""
    for temperature in (0.5, 2.0):
        expected = np.array(SHARES) ** (1 / temperature)
        shares = np.bincount(drawn(Sampling(temperature=temperature, seed=3), 8000), minlength=4) / 8000
        assert shares == pytest.approx(expected / expected.sum(), abs=0.02)


def test_the_unlikely_many_get_their_share() -> None:
    """Of 50,000 tokens that are each far too unlikely to look at, one is drawn as often as all are likely."""
    row = np.full(50_001, -13.0, np.float32)  # 50,000 · e⁻¹³ = 0.113 against 1
    row[17] = 0.0
    tail = 50_000 * math.exp(-13.0)
    far = [token for token in drawn(Sampling(temperature=1, seed=5), 3000, read_only(row)) if token != 17]
    assert len(far) / 3000 == pytest.approx(tail / (1 + tail), abs=0.02)
    assert len(set(far)) > 0.95 * len(far)
    allowed = np.arange(50_001) % 2 == 1
    bound = drawn(Sampling(temperature=1, seed=5), 1000, read_only(row), allowed)
    assert all(allowed[bound])
    assert np.mean(np.array(bound) != 17) == pytest.approx(tail / 2 / (1 + tail / 2), abs=0.02)


@settings(max_examples=examples(200))
@given(st.integers(0, 2**32), st.integers(0, 10_000), st.floats(0.05, 2.0))
def test_looking_at_fewer_tokens_draws_the_same(seed: int, position: int, temperature: float) -> None:
    """The quick way to draw from all tokens gives what adding noise to every one of them gives."""
    row = random_row(seed, 3000)
    quick = Sampler(Sampling(temperature=temperature, seed=seed), ())
    slow = Sampler(Sampling(temperature=temperature, seed=seed, top_k=3000), ())
    assert quick.sample(row, position) == slow.sample(row, position)


@settings(max_examples=examples(100))
@given(st.integers(0, 2**32 - 1), st.integers(1, 5000), st.integers(1, 10**7))
def test_a_hash_is_traced_back_to_its_token(key: int, count: int, hashes: int) -> None:
    """Tokens whose hash is among the highest are those that hashing all of them finds, in order."""
    least = 2**32 - hashes
    every = sampler._hash(np.arange(count, dtype=np.uint32), key)
    assert sampler._ids_with_hash(least, count, key).tolist() == np.flatnonzero(every >= least).tolist()
    highest = int(every.max())
    assert int(every.argmax()) in sampler._id_of_hash(np.array([highest], np.uint32), key)


@settings(max_examples=examples(100))
@given(st.integers(0, 2**32), st.integers(0, 10_000))
def test_a_mask_moves_a_draw_only_if_it_must(seed: int, position: int) -> None:
    """Where the grammar allows what would be drawn without it, that is drawn; else something it allows."""
    row = random_row(seed, 2000)
    allowed = np.random.default_rng(seed).random(2000) < 0.5
    sampler = Sampler(Sampling(temperature=1, seed=seed), ())
    free, bound = sampler.sample(row, position), sampler.sample(row, position, allowed)
    assert bound == free if allowed[free] else allowed[bound]


def test_rounding_hardly_ever_changes_a_draw() -> None:
    """Logits that differ as those of other batch sizes do (by 0.001) change fewer than 1 draw in 100."""
    changed = 0
    for seed in range(1000):
        row = random_row(seed, 1000) / 3
        other = row + np.random.default_rng(~seed & 0xFFFF).normal(0, 0.001, 1000).astype(np.float32)
        sampler = Sampler(Sampling(temperature=0.8, top_p=0.95, seed=seed), ())
        changed += sampler.sample(row, seed) != sampler.sample(other, seed)  # type: ignore[arg-type]
    assert changed < 10


def test_a_temperature_near_zero_is_greedy() -> None:
    """As the temperature goes to zero, draws become the argmax, without a warning on the way."""
    row = random_row(1, 5000)
    for temperature in (1e-3, 1.1e-5, 1e-8, 1e-45, 5e-324):
        assert set(drawn(Sampling(temperature=temperature), 50, row)) == {int(row.argmax())}


# ---- top_k, top_p, min_p ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sampling", "kept"),
    [
        (Sampling(top_k=2), {0, 1}),
        (Sampling(top_k=9), {0, 1, 2, 3}),
        (Sampling(top_p=0.7), {0, 1}),
        (Sampling(top_p=0.79), {0, 1}),
        (Sampling(top_p=0.81), {0, 1, 2}),
        (Sampling(top_p=0.0001), {0}),
        (Sampling(min_p=0.25), {0, 1, 2}),
        (Sampling(min_p=0.35), {0, 1}),
        (Sampling(min_p=1.0), {0}),
        (Sampling(top_k=3, top_p=0.84), {0, 1}),  # of three, 0.8 / 0.95 is just 0.842
        (Sampling(top_k=3, top_p=0.95, min_p=0.5), {0, 1}),
    ],
)
def test_unlikely_tokens_are_left_out(sampling: Sampling, kept: set[int]) -> None:
    """top_k, top_p and min_p leave exactly the tokens that they say."""
    warm = Sampling(1.0, sampling.top_p, sampling.top_k, sampling.min_p)
    assert set(drawn(warm, 600)) == kept


def test_of_equals_the_first_are_kept() -> None:
    """Where top_k cuts among equally likely tokens, those with the smaller ids stay."""
    row = read_only(np.arange(5000) % 2)
    assert set(drawn(Sampling(temperature=1, top_k=3), 300, row)) == {1, 3, 5}


def test_cuts_are_made_after_the_temperature_and_the_mask() -> None:
    """top_p counts the shares that the temperature leaves, among the tokens that the grammar allows."""
    assert set(drawn(Sampling(temperature=0.25, top_p=0.85), 300)) == {0}  # 0.5⁴ is 88% of all fourth powers
    allowed = np.array([False, True, True, True])
    assert set(drawn(Sampling(temperature=1, top_p=0.5), 300, allowed=allowed)) == {1}
    assert set(drawn(Sampling(temperature=1, top_k=2), 300, allowed=allowed)) == {1, 2}


@settings(max_examples=examples(100))
@given(st.integers(0, 2**32), st.integers(1, 500), st.floats(0.01, 1.0), st.floats(0.0, 0.5))
def test_cuts_agree_with_a_full_sort(seed: int, top_k: int, top_p: float, min_p: float) -> None:
    """Whatever is drawn belongs to what a plain sort of all tokens would keep."""
    row = random_row(seed, 1000) / 4
    order = np.argsort(-row, kind="stable")[:top_k]
    weights = np.exp(row[order].astype(np.float64))
    before = np.concatenate(([0.0], np.cumsum(weights)[:-1])) / weights.sum()
    kept = set(order[(before < top_p + 1e-5) & (weights >= (min_p - 1e-5) * weights[0])])
    assert set(drawn(Sampling(1.0, top_p, top_k, min_p, seed=seed), 20, row)) <= kept  # type: ignore[arg-type]


# ---- penalties and bias ----------------------------------------------------------------------------


def test_repetition_penalty_counts_the_log_and_the_answer() -> None:
    """Positive logits of tokens in the prompt or said since are divided, negative ones multiplied."""
    row = read_only([4.0, 3.0, 2.5, -1.0])
    sampler = Sampler(Sampling(repetition_penalty=1.5), [0, 0, 3])
    assert sampler.sample(row, 0) == 1  # 4 / 1.5 < 3, once however often it is there
    sampler.count_token(1)
    assert sampler.sample(row, 0) == 0  # 2.67 is left of 4, and 2 of 3
    negative = read_only([-2.0, -3.0])
    assert Sampler(Sampling(repetition_penalty=2.0), [0]).sample(negative, 0) == 1


def test_presence_and_frequency_count_the_answer_only() -> None:
    """Presence is taken off once, frequency for each time, and what the prompt holds is not counted."""
    row = read_only([3.0, 2.2, 0.0])
    for sampling, times in ((Sampling(presence_penalty=1.0), 1), (Sampling(frequency_penalty=0.3), 3)):
        sampler = Sampler(sampling, [0, 0, 0, 0])
        for _ in range(times):
            assert sampler.sample(row, 0) == 0
            sampler.count_token(0)
        assert sampler.sample(row, 0) == 1
    present = Sampler(Sampling(presence_penalty=0.5), ())
    for _ in range(10):
        present.count_token(0)
    assert present.sample(row, 0) == 0


def test_bias_is_added_before_everything_else() -> None:
    """A bias lifts a token above the rest or bans it, and the cut counts it."""
    assert Sampler(Sampling(logit_bias={3: 100.0}), ()).sample(LOGITS, 0) == 3
    assert 0 not in drawn(Sampling(temperature=1, logit_bias={0: -100.0}), 300)
    assert set(drawn(Sampling(temperature=1, top_k=1, logit_bias={2: 5.0}), 50)) == {2}


# ---- log-probabilities -----------------------------------------------------------------------------


def test_log_probability_is_normalised() -> None:
    """Log-probabilities are those of a distribution that sums to one."""
    shifted = LOGITS + 40
    assert [np.exp(log_probability(shifted, t)) for t in range(4)] == pytest.approx(SHARES, rel=1e-5)


def test_chances_are_the_models_own() -> None:
    """The chosen token and the likeliest are reported as the model sees them, whatever the sampling does."""
    sampling = Sampling(temperature=0.1, logit_bias={3: 50.0}, presence_penalty=2, top_k=1, top_logprobs=3)
    sampler = Sampler(sampling, ())
    sampler.count_token(0)
    logprobs = sampler.logprobs(LOGITS, 3)
    assert (logprobs.chosen.token, math.exp(logprobs.chosen.logprob)) == (3, pytest.approx(0.05, rel=1e-5))
    assert [each.token for each in logprobs.top] == [0, 1, 2]
    assert [math.exp(each.logprob) for each in logprobs.top] == pytest.approx(SHARES[:3], rel=1e-5)


def test_chances_of_many_tokens_are_sorted() -> None:
    """The likeliest come first, as many as were asked for, and none if none were."""
    row = random_row(4, 5000)
    top = Sampler(Sampling(top_logprobs=20), ()).logprobs(row, 7).top
    assert [each.token for each in top] == list(np.argsort(-row)[:20])
    assert Sampler(Sampling(top_logprobs=0), ()).logprobs(row, 7).top == []


def test_the_impossible_has_a_finite_log_probability() -> None:
    """A logit of minus infinity, or one that is no number, is reported with a floor that JSON can hold."""
    row = read_only([0.0, -np.inf, 1.0])
    assert Sampler(Sampling(top_logprobs=1), ()).logprobs(row, 1).chosen.logprob == FLOOR
    for broken in ([np.nan] * 3, [0.0, np.nan, 1.0], [np.inf, 0.0, 1.0], [-np.inf] * 3, [3e38, 0, -3e38]):
        logprobs = Sampler(Sampling(top_logprobs=3), ()).logprobs(read_only(broken), 1)
        assert all(math.isfinite(each.logprob) for each in [logprobs.chosen, *logprobs.top])


# ---- what may go wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, -3e38])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1), Sampling(1.0, 0.9, 5, 0.1)])
def test_a_broken_row_still_gives_an_allowed_token(value: float, sampling: Sampling) -> None:
    """NaN, infinities and huge numbers among the logits do not stop the engine: something is chosen."""
    for broken in (slice(None), slice(0, 5), slice(5, None)):
        row = np.arange(10, dtype=np.float32)
        row[broken] = value
        row[[2, 4]] = 3e38, -3e38
        allowed = np.arange(10) % 3 == 1
        assert allowed[Sampler(sampling, ()).sample(read_only(row), 0, allowed)]
        assert 0 <= Sampler(sampling, ()).sample(read_only(row), 0) < 10


@pytest.mark.parametrize(
    "wrong",
    [
        *({"temperature": value} for value in (-0.1, 2.1, math.nan, math.inf)),
        *({"top_p": value} for value in (0.0, -1.0, 1.1, math.nan)),
        {"top_k": -1},
        *({"min_p": value} for value in (-0.1, 1.1, math.nan)),
        *({"repetition_penalty": value} for value in (0.0, -1.0, 10.1, math.nan)),
        *({"presence_penalty": value} for value in (-2.1, 2.1, math.nan)),
        *({"frequency_penalty": value} for value in (-2.1, 2.1, math.nan)),
        *({"logit_bias": {0: value}} for value in (-100.1, 101.0, math.nan, math.inf)),
        *({"logit_bias": {token: 1.0}} for token in (-1, 100, 2**40)),
        *({"top_logprobs": value} for value in (-1, 21)),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    """A value out of its range is refused with a message that names the setting."""
    with pytest.raises(UsageError, match=next(iter(wrong))):
        check_sampling(Sampling(**wrong), 100)  # type: ignore[arg-type]


def test_the_ends_of_every_range_are_allowed() -> None:
    """The defaults, the smallest and the largest values are accepted."""
    check_sampling(Sampling(), 100)
    check_sampling(Sampling(2.0, 1.0, 10**9, 1.0, 10.0, 2.0, 2.0, {0: 100.0, 99: -100.0}, -1, 20), 100)
    check_sampling(Sampling(0.0, 1e-9, 0, 0.0, 1e-9, -2.0, -2.0, {}, 2**63, 0), 100)
