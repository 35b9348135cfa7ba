"""The account of a turn's time: one dim line, or every stage with --verbose.

Owns the words and units. The numbers are the server's, except the two that only the client can see: from
Enter to the first token, and the time to apply.
"""

from collections.abc import Sequence

from vivace.protocol.shapes.events import Waterfall


def one_line(model: str, turns: Sequence[Waterfall], first_token_ms: float) -> str:
    """Return the model's name and the numbers of its turns."""
    return f"{model} · {numbers(turns, first_token_ms)}"


def numbers(turns: Sequence[Waterfall], first_token_ms: float) -> str:
    """Return prompt tokens cached + new, time to first token, tokens and their speed."""
    cached, new = sum(turn.cached_tokens for turn in turns), sum(turn.new_tokens for turn in turns)
    last = turns[-1] if turns else Waterfall()
    return (
        f"{cached} cached + {new} new prompt tokens · first token {duration(first_token_ms)}"
        f" · {last.output_tokens} tokens{speed(last)}"
    )


def speed(turn: Waterfall) -> str:
    """Return the tokens a second of the decode, or nothing for a single token."""
    if turn.output_tokens < 2 or turn.decode_ms <= 0:
        return ""
    return f", {(turn.output_tokens - 1) / turn.decode_ms * 1e3:.1f} tok/s"


def table(named: Sequence[tuple[str, Waterfall]], first_token_ms: float, apply_ms: float | None) -> list[str]:
    """Return all stages, one column for each turn."""
    stages = (
        ("queue", "queue_ms"),
        ("tokenize", "tokenize_ms"),
        ("from disk", "restore_ms"),
        ("prefill", "prefill_ms"),
        ("first token", "first_token_ms"),
        ("decode", "decode_ms"),
        ("drafts", "draft_ms"),
        ("grammar", "grammar_ms"),
        ("engine", "overhead_ms"),
        ("server", "server_ms"),
    )
    rows = [f"{'':<14}" + "".join(f"{name:>12}" for name, _ in named)]
    for label, field in stages:
        rows.append(f"{label:<14}" + "".join(f"{duration(getattr(turn, field)):>12}" for _, turn in named))
    counts = (
        ("cached tokens", "cached_tokens"),
        ("new tokens", "new_tokens"),
        ("read again", "reread_tokens"),
        ("output tokens", "output_tokens"),
        ("passes", "steps"),
        ("draft right", "draft_accepted"),
        ("draft wrong", "draft_rejected"),
    )
    for label, field in counts:
        rows.append(f"{label:<14}" + "".join(f"{getattr(turn, field):>12}" for _, turn in named))
    rows.append(f"{'Enter → token':<14}{duration(first_token_ms):>12}")
    if apply_ms is not None:
        rows.append(f"{'apply':<14}{duration(apply_ms):>12}")
    return rows


def duration(ms: float) -> str:
    if ms < 10:
        return f"{ms:.1f} ms"
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1e3:.2f} s"
