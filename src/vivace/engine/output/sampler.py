"""Sample the next token, and compute log-probabilities: one `Sampler` for each turn.

The order: penalties, bias, the grammar's mask, temperature, top_k, top_p, min_p, then sampling. Sampling adds
noise that is a function of (seed, position, token) to each logit and takes the largest sum (Gumbel-max). So
earlier tokens, drafts or a restart of the engine cannot change it, and rounding of the logits can do so only
where two sums all but tie. Owns no grammar (`grammar`). Never writes to the runner's rows.
"""

import functools
import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from vivace.engine.wire.frames import PositionLogprobs, Sampling, TokenLogprob
from vivace.errors import UsageError

Row = NDArray[np.float32]  # [vocab] logits; a view into the runner's memory
Mask = NDArray[np.bool_]  # [vocab] the tokens that may come next
Ids = NDArray[np.intp]
_Bits = NDArray[np.uint32]

FLOOR = -9999.0  # the log-probability reported for the impossible: JSON has no infinity
_DISTANCES = (8.0, 12.0, 16.0, math.inf)  # how far below the best to look for the likeliest tokens, in turn
_NEAR = 12.0  # within this of the best are 2 to 2,000 of Qwen's 152k tokens; the rest seldom win a draw
GREEDY_TEMPERATURE = 1e-5  # below this, sampling is greedy
_UINT64 = 2**64 - 1


def check_sampling(sampling: Sampling, vocab_size: int) -> None:
    """Raise UsageError for values outside of their range. Comparisons are written so that NaN fails them."""
    s = sampling
    biases = s.logit_bias.values()
    for is_right, rule in (
        (0.0 <= s.temperature <= 2.0, "temperature must be between 0 and 2"),
        (0.0 < s.top_p <= 1.0, "top_p must be above 0 and at most 1"),
        (s.top_k >= 0, "top_k must be 0 (all) or more"),
        (0.0 <= s.min_p <= 1.0, "min_p must be between 0 and 1"),
        (0.0 < s.repetition_penalty <= 10.0, "repetition_penalty must be above 0 and at most 10"),
        (-2.0 <= s.presence_penalty <= 2.0, "presence_penalty must be between -2 and 2"),
        (-2.0 <= s.frequency_penalty <= 2.0, "frequency_penalty must be between -2 and 2"),
        (all(-100.0 <= bias <= 100.0 for bias in biases), "logit_bias must be between -100 and 100"),
        (
            all(0 <= token < vocab_size for token in s.logit_bias),
            f"logit_bias: the model has {vocab_size} tokens",
        ),
        (s.top_logprobs is None or 0 <= s.top_logprobs <= 20, "top_logprobs must be between 0 and 20"),
    ):
        if not is_right:
            raise UsageError(f"{rule}.")


class Sampler:
    """Sample a turn's tokens. `log` holds the tokens before the turn's answer."""

    def __init__(self, sampling: Sampling, log: Sequence[int]) -> None:
        self._sampling = s = sampling
        self._is_greedy = s.temperature < GREEDY_TEMPERATURE
        self._counts_output = s.presence_penalty != 0.0 or s.frequency_penalty != 0.0
        self._counts_log = s.repetition_penalty != 1.0
        self._has_penalties = self._counts_output or self._counts_log or bool(s.logit_bias)
        self._filters = s.top_k > 0 or s.top_p < 1.0 or s.min_p > 0.0
        self._output_counts: Counter[int] = Counter()
        # Not `np.unique`: its first call in a process imports numpy.ma, 12 ms of an engine's first turn.
        self._in_log = np.array(sorted(set(log)) if self._counts_log else (), np.intp)
        self._biased = np.fromiter(s.logit_bias, np.intp, len(s.logit_bias))
        self._bias = np.fromiter(s.logit_bias.values(), np.float32, len(s.logit_bias))

    def sample(self, row: Row, position: int, allowed: Mask | None = None) -> int:
        """Return the token for `position` of the log, among those allowed. At least one must be."""
        if self._has_penalties:
            row = self._penalized(row)
        best = _argmax(row, allowed)
        if self._is_greedy or not math.isfinite(row[best]):  # a broken row holds nothing to draw from
            return best
        with np.errstate(over="ignore"):  # what is that far below is at -inf
            scaled = (row - row[best]) / np.float32(self._sampling.temperature)
        key = _key(self._sampling.seed, position)
        if self._filters:
            return _gumbel_max(scaled, self._filter(scaled, allowed), key)[0]
        return _gumbel_sample(scaled, allowed, key)

    def count_token(self, token: int) -> None:
        """Let penalties count a token that has entered the log."""
        if self._counts_output:
            self._output_counts[token] += 1
        if self._counts_log and token not in self._in_log:
            self._in_log = np.append(self._in_log, token)

    def logprobs(self, row: Row, token: int) -> PositionLogprobs:
        """Return log-probabilities of the model itself: before penalties, mask and temperature."""
        if not math.isfinite(row.max()):
            row = np.nan_to_num(row, nan=-1e30, posinf=1e30, neginf=-1e30)
        with np.errstate(over="ignore"):
            below = row - row.max()
        log_total = float(row.max()) + math.log(_mass(below))
        wanted = self._sampling.top_logprobs or 0
        top = _order(below, None, lambda ids: len(ids) >= wanted)[:wanted]
        return PositionLogprobs(
            _token_logprob(row, token, log_total), [_token_logprob(row, int(each), log_total) for each in top]
        )

    def _penalized(self, row: Row) -> Row:
        """Return a copy of the row with penalties and bias applied."""
        s, row = self._sampling, row.copy()
        if self._counts_log:
            logits = row[self._in_log]
            row[self._in_log] = np.where(
                logits > 0, logits / s.repetition_penalty, logits * s.repetition_penalty
            )
        if self._counts_output:
            ids = np.fromiter(self._output_counts, np.intp, len(self._output_counts))
            times = np.fromiter(self._output_counts.values(), np.float32, len(self._output_counts))
            row[ids] -= np.float32(s.presence_penalty) + np.float32(s.frequency_penalty) * times
        row[self._biased] += self._bias
        return row

    def _filter(self, scaled: Row, allowed: Mask | None) -> Ids:
        """Return the ids that top_k, top_p and min_p keep, most likely first. The best of `scaled` is 0."""
        s = self._sampling
        if s.top_k:
            ids = _order(scaled, allowed, lambda ids: len(ids) >= s.top_k)[: s.top_k]
            wanted = s.top_p * _mass(scaled[ids])
        elif s.top_p < 1.0:
            wanted = s.top_p * _mass(scaled, allowed)
            ids = _order(scaled, allowed, lambda ids: _mass(scaled[ids]) >= wanted)
        else:
            ids = _within(scaled, allowed, 1.0 - math.log(s.min_p))
        if s.top_p < 1.0:
            shares = np.exp(scaled[ids]).cumsum(dtype=np.float64)
            ids = ids[: int(shares.searchsorted(wanted)) + 1]
        return ids[scaled[ids] >= math.log(s.min_p)] if s.min_p else ids


def log_probability(logits: Row, token: int) -> float:
    """Return the natural logarithm of the probability of `token`."""
    return float(logits[token]) - log_total(logits)


def log_total(row: Row) -> float:
    """Return the logarithm of the sum of exponentials: a logit less this is its log-probability."""
    peak = float(row.max())
    return peak + float(np.log(np.exp(row - peak).sum(dtype=np.float64)))


def _token_logprob(row: Row, token: int, log_total: float) -> TokenLogprob:
    logprob = float(row[token]) - log_total
    return TokenLogprob(token, max(logprob, FLOOR) if math.isfinite(logprob) else FLOOR)


def _argmax(row: Row, allowed: Mask | None) -> int:
    best = int(row.argmax())
    if allowed is None or allowed[best]:
        return best
    only = allowed.astype(np.float32)  # arithmetic takes 90 µs for 152k tokens, np.where up to 1,000
    only -= np.float32(1.0)
    only *= np.float32(1e30)
    only += row
    best = int(only.argmax())
    if allowed[best]:
        return best
    ids = np.flatnonzero(allowed)  # NaN elsewhere, or -inf for all that is allowed
    return int(ids[np.nan_to_num(row[ids], nan=-np.inf).argmax()])


def _within(scaled: Row, allowed: Mask | None, distance: float) -> Ids:
    near = scaled > -distance
    return np.flatnonzero(near if allowed is None else near & allowed)


def _order(scaled: Row, allowed: Mask | None, is_enough: Callable[[Ids], bool]) -> Ids:
    """Return token ids by falling logit, until `is_enough` is satisfied; of equals the smaller first."""
    for distance in _DISTANCES:  # sorting 200 tokens instead of 152k saves 3 ms
        ids = _within(scaled, allowed, distance)
        if is_enough(ids):
            break
    return ids[np.argsort(-scaled[ids], kind="stable")]


def _mass(scaled: Row, allowed: Mask | None = None) -> float:
    weights = np.exp(scaled)
    if allowed is not None:
        weights *= allowed
    return float(weights.sum(dtype=np.float64))


def _gumbel_sample(scaled: Row, allowed: Mask | None, key: tuple[int, int]) -> int:
    """Return the token with the largest sum of logit and noise. Compute few of the logarithms.

    A token far below the best wins only with very large noise, which its hash shows before any logarithm.
    """
    near = _within(scaled, allowed, _NEAR)
    winner, lead = _gumbel_max(scaled, near, key)
    share = -math.expm1(-math.exp(-(lead + _NEAR)))  # of all hashes: those with noise above lead + _NEAR
    lucky = _ids_with_hash(int(min((1.0 - share) * 2**32, 2**32 - 1)), len(scaled), key[0])
    far = lucky[scaled[lucky] <= -_NEAR]
    far = far if allowed is None else far[allowed[far]]
    if len(far) and (rival := _gumbel_max(scaled, far, key))[1] > lead:
        return rival[0]
    return winner


def _gumbel_max(scaled: Row, ids: Ids, key: tuple[int, int]) -> tuple[int, float]:
    """Return the token of `ids` with the largest sum of logit and noise, and that sum."""
    sums = scaled[ids] + _noise(ids, key)
    index = int(sums.argmax())
    return int(ids[index]), float(sums[index])


@functools.lru_cache(maxsize=4)
def _every_id(vocab_size: int) -> _Bits:
    return np.arange(vocab_size, dtype=np.uint32)


def _key(seed: int, position: int) -> tuple[int, int]:
    """Return 64 bits from seed and position (splitmix64), as two halves."""
    bits = seed & _UINT64
    for number in (0, position):
        bits = (bits + number * 0xD1342543DE82EF95 + 0x9E3779B97F4A7C15) & _UINT64
        bits = ((bits ^ bits >> 30) * 0xBF58476D1CE4E5B9) & _UINT64
        bits = ((bits ^ bits >> 27) * 0x94D049BB133111EB) & _UINT64
        bits ^= bits >> 31
    return bits >> 32, bits & 0xFFFFFFFF


def _hash(ids: _Bits, key: int) -> _Bits:
    """Return 32 uniform bits for each id (lowbias32). Numpy's own streams may change with its version."""
    bits = ids * np.uint32(0x9E3779B9)
    bits += np.uint32(key)
    bits ^= bits >> np.uint32(16)
    bits *= np.uint32(0x7FEB352D)
    bits ^= bits >> np.uint32(15)
    bits *= np.uint32(0x846CA68B)
    bits ^= bits >> np.uint32(16)
    return bits


def _ids_with_hash(least: int, count: int, key: int) -> Ids:
    """Return the ids below `count` whose hash is `least` or more, in order.

    Where these hashes are fewer than the ids, each is traced back to its id: no two ids have the same.
    """
    if 2**32 - least >= count:
        return np.flatnonzero(_hash(_every_id(count), key) >= np.uint32(least))
    ids = _id_of_hash(np.arange(least, 2**32, dtype=np.uint64).astype(np.uint32), key)
    return np.sort(ids[ids < count]).astype(np.intp)


def _id_of_hash(bits: _Bits, key: int) -> _Bits:
    """Return the id that each hash is of: the steps of `_hash`, backwards."""
    bits = bits ^ bits >> np.uint32(16)
    bits *= np.uint32(0x43021123)  # times 0x846CA68B this is 1, as below
    bits ^= bits >> np.uint32(15) ^ bits >> np.uint32(30)
    bits *= np.uint32(0x1D69E2A5)
    bits ^= bits >> np.uint32(16)
    bits -= np.uint32(key)
    bits *= np.uint32(0x144CBC89)
    return bits


def _noise(ids: Ids, key: tuple[int, int]) -> NDArray[np.float64]:
    """Return Gumbel noise for each token, a function of the key and its id only."""
    narrow = ids.astype(np.uint32)
    high, low = _hash(narrow, key[0]).astype(np.uint64), _hash(narrow, key[1])
    uniform = ((high << np.uint64(20) | low >> np.uint32(12)) + 0.5) / 2**52  # in (0, 1), never rounded to 1
    return np.asarray(-np.log(-np.log(uniform)))
