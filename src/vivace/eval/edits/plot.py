"""Reports as a picture: the share of right edits over the seconds of an edit, as SVG.

Owns the drawing. A panel a set: one line joins the efforts, the model alone is a square, held-out tasks are
hollow.
"""

from collections.abc import Iterable, Sequence
from math import ceil, log10
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from vivace.errors import WriteProblem
from vivace.eval.edits.report import beside_each_other
from vivace.eval.edits.results import BARE

WIDTH, HEIGHT = 420, 400  # of a panel
HEAD = 64  # above the panels
LEFT, RIGHT, TOP, BOTTOM = 60, 32, 44, 44
INK, FAINT, LINE, LOOP, ALONE = "#1c1f24", "#6b7280", "#e5e7eb", "#0f766e", "#b45309"
STEPS = (1.0, 2.0, 5.0)

Point = tuple[float, float]


class Axes:
    """Seconds on a logarithmic scale, shares from 0 to 1."""

    def __init__(self, seconds: Iterable[float]) -> None:
        seconds = list(seconds)
        self.ticks = _ticks(min(seconds), max(seconds))
        self._low, self._high = log10(self.ticks[0]), log10(self.ticks[-1])

    def at(self, seconds: float, share: float) -> Point:
        across = (log10(seconds) - self._low) / (self._high - self._low)
        x = LEFT + across * (WIDTH - LEFT - RIGHT)
        return x, HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def draw(reports: Sequence[dict[str, Any]], file: Path) -> None:
    """Write the picture; the folder must be there."""
    try:
        file.write_text(svg(reports), "utf-8")
    except OSError as error:
        raise WriteProblem(
            f"The plot cannot be written to {file}: {error.strerror or error}.", "Name another with --plot."
        ) from error


def svg(reports: Sequence[dict[str, Any]]) -> str:
    judged = {report["set"]: _judged(report) for report in reports if _judged(report)}
    models = ", ".join(dict.fromkeys(Path(report["model"]).name for report in reports))
    beside = max(map(beside_each_other, reports), key=len, default="")
    parts = [_text(24, 32, f"Right edits, {models}", size=18)]
    parts.append(_text(24, 52, f"by the median seconds of one{beside}; held-out tasks are hollow", FAINT))
    if judged:
        axes = Axes(_seconds(counts) for efforts in judged.values() for counts in efforts.values())
        for index, (name, efforts) in enumerate(judged.items()):
            parts.append(f'<g transform="translate({index * WIDTH} {HEAD})">')
            parts += [_text(LEFT, 24, name, size=15), *_grid(axes), *_curve(axes, efforts), "</g>"]
    else:
        parts.append(_text(24, HEIGHT / 2, "Nothing has been judged yet.", FAINT))
    width, height, body = WIDTH * max(1, len(judged)), HEAD + HEIGHT, "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif">\n<rect width="100%" height="100%" fill="#ffffff"/>\n'
        f"{body}\n</svg>\n"
    )


def _judged(report: dict[str, Any]) -> dict[str, Any]:
    return {name: counts for name, counts in report["efforts"].items() if counts["pass_rate"] is not None}


def _seconds(counts: dict[str, Any]) -> float:
    return float(max(counts["seconds_median"], 1e-3))


def _curve(axes: Axes, efforts: dict[str, Any]) -> list[str]:
    """Return the line through the efforts, then a mark and a name for each."""
    parts, line = [], []
    for name, counts in efforts.items():
        is_bare = name == BARE
        colour = ALONE if is_bare else LOOP
        x, y = axes.at(_seconds(counts), counts["pass_rate"])
        if is_bare:
            parts.append(f'<rect x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10" fill="{colour}"/>')
        else:
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>')
            line.append(f"{x:.1f},{y:.1f}")
        below = 32 if is_bare or len(line) % 2 == 0 else -14  # in turns, so that names have room
        parts.append(_text(x - 24, y + below, f"{name} {100 * counts['pass_rate']:.0f}%", colour))
        if (held_out := counts["held_out"]["pass_rate"]) is not None:
            x, y = axes.at(_seconds(counts), held_out)
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="none" stroke="{colour}"/>')
    return [f'<polyline points="{" ".join(line)}" fill="none" stroke="{LOOP}" stroke-width="2"/>', *parts]


def _grid(axes: Axes) -> list[str]:
    parts = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        _, y = axes.at(axes.ticks[0], share)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{LINE}"/>')
        parts.append(_text(LEFT - 44, y + 4, f"{100 * share:.0f}%", FAINT))
    for seconds in axes.ticks:
        x, y = axes.at(seconds, 0.0)
        parts.append(_text(x - 10, y + 24, f"{seconds:g} s", FAINT))
    return parts


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers of seconds around all points: 1, 2 and 5 times the powers of ten."""
    powers = range(ceil(log10(low)) - 2, ceil(log10(high)) + 2)
    steps = [float(f"{step * 10.0**power:.3g}") for power in powers for step in STEPS]
    first = max(step for step in steps if step < low)
    last = min(step for step in steps if step > high)
    return [step for step in steps if first <= step <= last]


def _text(x: float, y: float, text: str, colour: str = INK, *, size: int = 13) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}">{escape(text)}</text>'
