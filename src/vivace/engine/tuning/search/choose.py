"""Choose a variant of the weights, threads and prefill chunk from measurements, and explain the choice.

The objective is the expected time of one typical edit. A variant that costs disk space must win by a margin.
Owns the objective, the margins and the explanation. Pure: does not measure or read files.
"""

from collections.abc import Sequence
from statistics import median

import msgspec

from vivace.engine.tuning.search.formats import Likeness, Quality

# One edit: 300 new tokens of prompt and an answer of 150 tokens, of which 105 come from 21 passes with drafts
# (five a pass, sizes around 16) and 45 one at a time.
PROMPT_TOKENS = 300
PREFILL_TOKENS = 256  # measured in one go
PASS_TOKENS = (1, 2, 4, 8, 16, 32, 64)  # measured passes: what the engine wants to know at its start
DRAFT_PASSES = {8: 9, 16: 8, 32: 4}
PLAIN_PASSES = 45

MADE_MARGIN = 0.05  # a copy made here must save this share of an edit to be worth its disk space
FREE_MARGIN = 0.03  # a change that costs no disk space must save this share: less is noise
CHUNK_MARGIN = 0.05  # prefill may be this much slower with a smaller chunk, which shortens interrupts


class Round(msgspec.Struct, frozen=True):
    """What one variant took in one round of measuring."""

    prefill_ms: float  # of PREFILL_TOKENS
    pass_ms: dict[int, float]  # by tokens in the pass


class Variant(msgspec.Struct, frozen=True):
    """One way to run the model."""

    format: str  # such as Q4_K_M
    path: str
    size_bytes: int  # of the file
    quality: Quality  # "same": the file as downloaded
    use_extra_bufts: bool
    threads: int

    @property
    def is_made(self) -> bool:
        return self.quality != "same"

    @property
    def label(self) -> str:
        where = "made here" if self.is_made else "as downloaded"
        plain = "" if self.use_extra_bufts else ", not repacked"
        return f"{self.format or 'the file'} {where}{plain}"


class Measured(msgspec.Struct):
    """A variant and what is known of it. One with a problem is never chosen."""

    variant: Variant
    rounds: list[Round] = []
    likeness: Likeness | None = None  # to the file as downloaded
    problem: str = ""
    dropped: str = ""  # why a brief look was enough


def edit_ms(taken: Round) -> float:
    """Return the milliseconds of a typical edit at these costs."""
    drafted = sum(count * _pass_ms(taken.pass_ms, size) for size, count in DRAFT_PASSES.items())
    return PROMPT_TOKENS / PREFILL_TOKENS * taken.prefill_ms + drafted + PLAIN_PASSES * taken.pass_ms[1]


def _pass_ms(measured: dict[int, float], size: int) -> float:
    """Interpolate between the two measured sizes around `size`."""
    below = max(n for n in measured if n <= size)
    above = min(n for n in measured if n >= size)
    share = (size - below) / (above - below) if above > below else 0.0
    return measured[below] + share * (measured[above] - measured[below])


def typical_edit_ms(rounds: Sequence[Round]) -> float:
    return median(map(edit_ms, rounds))


def ratio(new: Measured, old: Measured) -> float:
    """Return the time of an edit, new divided by old: the median of the ratios within each round."""
    return median(_ratios(new, old))


def is_faster(new: Measured, old: Measured, margin: float) -> bool:
    """Return whether `new` is clearly faster: by the margin in the median, and slower in no round."""
    ratios = _ratios(new, old)
    return median(ratios) <= 1 - margin and max(ratios) < 1


def _ratios(new: Measured, old: Measured) -> list[float]:
    return [edit_ms(a) / edit_ms(b) for a, b in zip(new.rounds, old.rounds, strict=False)]


def may_be_used(entry: Measured) -> bool:
    """Return whether a variant was measured, has no problem and, if made here, was compared."""
    is_proven = entry.likeness is not None or not entry.variant.is_made
    return bool(entry.rounds) and is_proven and not entry.problem and entry.variant.quality != "costly"


def choose(entries: Sequence[Measured]) -> Measured:
    """Return the best variant for an edit. The first is the file as downloaded with usual options."""
    others = [entry for entry in entries[1:] if may_be_used(entry)]
    best = best_of(entries[0], [entry for entry in others if not entry.variant.is_made], FREE_MARGIN)
    return best_of(best, [entry for entry in others if entry.variant.is_made], MADE_MARGIN)


def best_of(usual: Measured, others: Sequence[Measured], margin: float) -> Measured:
    """Return the fastest of those that beat the usual one by the margin, or the usual one."""
    winners = [entry for entry in others if may_be_used(entry) and is_faster(entry, usual, margin)]
    return min(winners, key=lambda entry: typical_edit_ms(entry.rounds), default=usual)


def step_costs(rounds: Sequence[Round]) -> dict[int, float]:
    """Return median milliseconds of a pass by its tokens."""
    return {size: median(taken.pass_ms[size] for taken in rounds) for size in rounds[0].pass_ms}


def choose_chunk(ms_a_token: dict[int, float]) -> int:
    """Return the smallest prefill chunk that is about as fast as the fastest."""
    enough = min(ms_a_token.values()) * (1 + CHUNK_MARGIN)
    return min(chunk for chunk, ms in ms_a_token.items() if ms <= enough)


def explain(chosen: Measured, entries: Sequence[Measured]) -> str:
    """Return one sentence: what was chosen and why."""
    usual = entries[0]
    if chosen is usual:
        return f"{_capital(usual.variant.label)} is best here{_why_not_others(usual, entries)}."
    than = "the file as downloaded" if chosen.variant.is_made else "repacked weights"
    faster = f"an edit takes {1 - ratio(chosen, usual):.0%} less time than with {than}"
    return f"{_capital(chosen.variant.label)}: {faster}{_cost_of(chosen)}."


def _cost_of(chosen: Measured) -> str:
    variant, likeness = chosen.variant, chosen.likeness
    parts = []
    if likeness is not None and variant.is_made:
        near = "nearly the same model" if variant.quality == "near-neutral" else "the same model"
        parts.append(f"{near} to within {likeness.mean_change:.3f} nats a token")
    if variant.is_made:
        parts.append(f"{variant.size_bytes / 1e9:.1f} GB more on disk")
    return "".join(f"; {part}" for part in parts)


def _why_not_others(usual: Measured, entries: Sequence[Measured]) -> str:
    """Return what the best other variant would have gained, or why it was ruled out."""
    others = [entry for entry in entries[1:] if entry.variant.quality != "costly"]
    refused = [f"{entry.variant.label} {entry.problem}" for entry in others if entry.problem]
    measured = [entry for entry in others if entry.rounds and not entry.problem]
    if measured:
        return f": {_compared(min(measured, key=lambda entry: ratio(entry, usual)), usual)}"
    if refused:
        return f": {'; '.join(refused)}"
    dropped = [f"{entry.variant.label} is {entry.dropped}" for entry in others if entry.dropped]
    return f": {'; '.join(dropped)}" if dropped else ""


def _compared(other: Measured, usual: Measured) -> str:
    change = ratio(other, usual) - 1
    if change > 0:
        return f"with {other.variant.label} an edit takes {change:.0%} longer"
    price = f"{other.variant.size_bytes / 1e9:.1f} GB of disk space" if other.variant.is_made else "a change"
    return f"with {other.variant.label} an edit takes {-change:.0%} less time, too little for {price}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
