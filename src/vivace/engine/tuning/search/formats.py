"""Weight formats that a file may be converted to, their effect on quality, and the check of that effect.

Two rules protect quality: only formats that are finer than the source are offered for use, and each copy must
agree with the file as downloaded on a sample text. Owns both. Does not compute (`probe`).
"""

import math
from statistics import fmean
from typing import Literal

import msgspec

from vivace.engine.tuning.children.wire import Scores

Quality = Literal["same", "neutral", "near-neutral", "costly"]

# Mean |Δ log-probability| of a token of the sample, in nats. Measured against the file as downloaded
# (docs/guides/tuning.md): other kernels for the same file 0.02 to 0.045, Q8_0 0.021 (1.5B) and 0.052 (135M),
# Q4_0 0.098 (1.5B) and 0.57 (135M). So 0.075 lets the noise of kernels through and no lossy format.
MAX_LOGPROB_CHANGE = 0.075
WORST_PERPLEXITY = 1.01  # as a ratio: Q8_0 1.002 and 1.003, Q4_0 1.016 and 1.29

FINE_BITS = 7.0  # a source of fewer bits a weight is coarser than the steps of Q8_0 by an order of magnitude
Q8_BITS = (8.2, 9.0)  # a source in here is Q8_0 already


class Format(msgspec.Struct, frozen=True):
    """A format that llama.cpp can write."""

    name: str
    file_type: int  # llama.cpp's number for it (`llama_ftype`)
    bits: float  # a weight
    quality: Quality


Q8_0 = Format("Q8_0", 7, 8.5, "neutral")
COSTLY = (Format("Q4_0", 2, 4.8, "costly"), Format("IQ4_NL", 25, 4.8, "costly"))


def requantisations(source_bits: float, *, with_costly: bool = False) -> list[Format]:
    """Return formats worth making from a file of `source_bits` per weight. Costly ones are only measured."""
    formats = []
    if source_bits < FINE_BITS:
        formats.append(Q8_0)
    elif source_bits > Q8_BITS[1]:
        formats.append(msgspec.structs.replace(Q8_0, quality="near-neutral"))
    return [*formats, *(COSTLY if with_costly else ())]


class Likeness(msgspec.Struct, frozen=True):
    """How far a variant's reading of the sample is from that of the file as downloaded."""

    mean_change: float  # |Δ log-probability| a token, nats
    perplexity_ratio: float  # above 1: the variant finds the text less likely
    same_choice: float  # share of places where greedy decoding says the same token
    tokens: int


def compare(downloaded: Scores, variant: Scores) -> Likeness:
    pairs = list(zip(downloaded.logprobs, variant.logprobs, strict=True))
    choices = zip(downloaded.choices, variant.choices, strict=True)
    return Likeness(
        mean_change=fmean(abs(b - a) for a, b in pairs),
        perplexity_ratio=math.exp(fmean(a - b for a, b in pairs)),
        same_choice=fmean(a == b for a, b in choices),
        tokens=len(pairs),
    )


def quality_problem(likeness: Likeness) -> str:
    """Return why a variant may not be used, or an empty string. NaN is a problem too."""
    if not likeness.mean_change <= MAX_LOGPROB_CHANGE:
        change = f"{likeness.mean_change:.3f} nats a token, at most {MAX_LOGPROB_CHANGE} are allowed"
        return f"costs quality: its log-probabilities differ by {change}"
    if not likeness.perplexity_ratio <= WORST_PERPLEXITY:
        return f"costs quality: its perplexity is {likeness.perplexity_ratio - 1:.1%} higher"
    return ""
