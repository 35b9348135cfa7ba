"""The report as a picture: a group of bars for each comparison, drawn with Pillow into a PNG.

Owns the drawing. Every group has a scale of its own, and every bar says its value.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from vivace.bench.engine.report import heading, measured
from vivace.bench.limits import figure, judge, limits_of
from vivace.errors import WriteProblem

WIDTH, MARGIN, GAP = 1400, 40, 40
ROW, BAR, GROUP_GAP = 34, 22, 34
LABEL, VALUE = 250, 110  # pixels kept for a bar's name and its value
PAPER, INK, FAINT = "#ffffff", "#1c1f24", "#6b7280"
OURS, OURS_BEFORE, PEER, MISSED = "#0f766e", "#99d5cd", "#b8bec9", "#b45309"


@dataclass(frozen=True)
class Bar:
    name: str
    key: str
    colour: str


@dataclass(frozen=True)
class Group:
    title: str
    key: str  # of the figure that has a limit
    unit: str
    bars: tuple[Bar, ...]


GROUPS = (
    Group(
        "Edits: tokens a second, more is better",
        "edits.speedup",
        "tok/s",
        (
            Bar("Vivace, drafts on", "edits.with_drafts_tokens_per_s", OURS),
            Bar("Vivace, drafts off", "edits.without_drafts_tokens_per_s", OURS_BEFORE),
            Bar("llama.cpp, lookup 2", "peer.edit.peer_lookup_2_tokens_per_s", PEER),
            Bar("llama.cpp, lookup 10", "peer.edit.peer_lookup_10_tokens_per_s", PEER),
        ),
    ),
    Group(
        "Decode without drafts: tokens a second",
        "peer.decode_ratio",
        "tok/s",
        (
            Bar("Vivace", "peer.decode.ours_tokens_per_s", OURS),
            Bar("plain llama.cpp", "peer.decode.peer_tokens_per_s", PEER),
        ),
    ),
    Group(
        "First token of a cold prompt, less is better",
        "peer.first_token_ratio",
        "ms",
        (
            Bar("Vivace", "peer.first_token.ours_ms", OURS),
            Bar("plain llama.cpp", "peer.first_token.peer_ms", PEER),
        ),
    ),
    Group(
        "First token of a long message",
        "typing.first_token_ratio",
        "ms",
        (
            Bar("typed ahead", "typing.with_typing_ms", OURS),
            Bar("not typed ahead", "typing.without_typing_ms", OURS_BEFORE),
        ),
    ),
    Group(
        "A session that was put away",
        "park.restore_ratio",
        "ms",
        (
            Bar("back from disk", "park.restore_ms", OURS),
            Bar("prefilled again", "park.prefill_ms", OURS_BEFORE),
        ),
    ),
    Group(
        "A token of a realtime turn",
        "background.realtime_slowdown",
        "ms",
        (
            Bar("beside background work", "background.beside_decode_token_ms", OURS),
            Bar("alone", "background.alone_token_ms", OURS_BEFORE),
        ),
    ),
    Group(
        "Turning around, in milliseconds",
        "interrupt.latency_ms_p95",
        "ms",
        (
            Bar("interrupt to end, 95%", "interrupt.latency_ms_p95", OURS),
            Bar("steer to first token", "steer.latency_ms", OURS),
            Bar("one decode step", "steer.decode_step_ms", OURS_BEFORE),
        ),
    ),
)
LEFT_GROUPS = 3  # the rest stands in the right column


class Drawing:
    def __init__(self, height: int) -> None:
        self.image = Image.new("RGB", (WIDTH, height), PAPER)
        self._draw = ImageDraw.Draw(self.image)

    def text(self, x: float, y: float, text: str, *, size: int = 16, colour: str = INK) -> None:
        self._draw.text((x, y), text, font=ImageFont.load_default(size), fill=colour)

    def bar(self, x: float, y: float, length: float, colour: str) -> None:
        self._draw.rounded_rectangle((x, y, x + max(3.0, length), y + BAR), radius=3, fill=colour)


def draw(report: dict[str, Any], file: Path) -> None:
    """Write the picture; the folder must be there."""
    columns = (GROUPS[:LEFT_GROUPS], GROUPS[LEFT_GROUPS:])
    about = heading(report).split("\n")
    top = MARGIN + 42 + 22 * len(about) + 24
    height = top + max(sum(map(_height, groups)) for groups in columns) + MARGIN
    drawing = Drawing(height)
    drawing.text(MARGIN, MARGIN, "vivace bench engine", size=28)
    for number, line in enumerate(about):
        drawing.text(MARGIN, MARGIN + 42 + 22 * number, line, size=15, colour=FAINT)
    width = (WIDTH - 2 * MARGIN - GAP) // 2
    for column, groups in enumerate(columns):
        x, y = MARGIN + column * (width + GAP), top
        for group in groups:
            _draw_group(drawing, report, group, x, y, width)
            y += _height(group)
    _save(drawing.image, file)


def _height(group: Group) -> int:
    return 62 + ROW * len(group.bars) + GROUP_GAP


def _draw_group(drawing: Drawing, report: dict[str, Any], group: Group, x: int, y: int, width: int) -> None:
    limit, is_met = limits_of(report)[group.key], judge(report)[group.key]
    verdict = (
        f"{group.key} {figure(report, group.key):.3g}, limit {limit.words}{'' if is_met else ': missed'}"
    )
    drawing.text(x, y, group.title, size=18)
    drawing.text(x, y + 26, verdict, size=14, colour=FAINT if is_met else MISSED)
    longest = max(figure(report, bar.key) for bar in group.bars)
    room = width - LABEL - VALUE
    for number, bar in enumerate(group.bars):
        at = y + 56 + ROW * number
        length = room * figure(report, bar.key) / longest if longest else 0.0
        drawing.text(x, at + 2, bar.name, size=15)
        drawing.bar(x + LABEL, at, length, bar.colour)
        drawing.text(x + LABEL + length + 10, at + 2, measured(report, bar.key, group.unit), size=15)


def _save(image: Image.Image, file: Path) -> None:
    try:
        image.save(file, format="PNG")
    except OSError as error:
        raise WriteProblem(
            f"The plot cannot be written to {file}: {error.strerror or error}.",
            "Name another file with --plot.",
        ) from error
