"""Frames of a terminal as one animated SVG: no script, no font of its own, one CSS animation.

Owns the picture. All frames stand side by side, and a step animation shows one after the other. A row that
occurs in many frames is written once, and so is a block of rows. A clock in the corner shows the true time;
where a wait is played faster, the factor stands beside it. Does not own the terminal (`terminal`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from colours import Run, Style, runs
from terminal import Frame

CELL_W, CELL_H, BASELINE = 8.4, 18, 13
MARGIN, BAR = 12, 30
FOREGROUND, BACKGROUND, PANEL, DIM = "#d7d9de", "#16181d", "#1e2128", "#7d828c"
BLOCK_ROWS = 4
LONG_WAIT_S = 0.8  # a longer wait for the machine is played `FASTER` times as fast
FASTER = 4
LEAST_S = 0.04  # frames that follow closer are left out
END_S = 4.0  # the last frame stays this long
FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"


@dataclass(frozen=True)
class Shown:
    """A frame, and how long it is shown."""

    frame: Frame
    seconds: float
    is_faster: bool


def timeline(frames: Sequence[Frame]) -> list[Shown]:
    """Return when each frame is shown. Only long waits for the machine are shortened."""
    kept: list[Frame] = []
    for frame in frames:
        if kept and frame.is_waiting and _text(frame) == _text(kept[-1]):
            continue  # a cursor that blinks is no news
        if kept and frame.at_s - kept[-1].at_s < LEAST_S and len(kept) > 1:
            kept[-1] = Frame(kept[-1].at_s, frame.rows, frame.cursor, frame.is_waiting)
        else:
            kept.append(frame)
    shown = []
    for frame, following in zip(kept, [*kept[1:], None], strict=True):
        seconds = following.at_s - frame.at_s if following else END_S
        is_faster = following is not None and following.is_waiting and seconds > LONG_WAIT_S
        shown.append(Shown(frame, seconds / FASTER if is_faster else seconds, is_faster))
    return shown


def _text(frame: Frame) -> list[str]:
    return ["".join(run.text for run in runs(row)).rstrip() for row in frame.rows]


def draw(shown: Sequence[Shown], *, columns: int, rows: int, title: str, poster: int) -> str:
    """Return the SVG. Where nothing may move, frame `poster` is shown."""
    strip = Strip(columns)
    frames = [strip.frame(each) for each in shown]
    width, height = round(columns * CELL_W + 2 * MARGIN), rows * CELL_H + BAR + MARGIN
    whole_s = sum(each.seconds for each in shown)
    steps = "".join(
        f"{100 * at_s / whole_s:.3f}%{{transform:translateX(-{index * width}px)}}"
        for index, at_s in enumerate(_starts(shown))
    )
    film = "".join(f'<g transform="translate({index * width} 0)">{f}</g>' for index, f in enumerate(frames))
    still = f".film{{animation:none;transform:translateX(-{poster * width}px)}}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">'
        f"<title>{escape(title)}</title>"
        f"<style>text{{font:14px {FONT};fill:{FOREGROUND};white-space:pre}}"
        f".film{{animation:film {whole_s:.2f}s step-end infinite}}@keyframes film{{{steps}}}"
        f"@media(prefers-reduced-motion:reduce){{{still}}}{strip.css()}</style>"
        f"<defs>{strip.definitions()}</defs>"
        f'<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>'
        f'<rect width="{width}" height="{BAR - 8}" rx="8" fill="{PANEL}"/>'
        f'<text x="{MARGIN}" y="16" style="font-size:12px" fill="{DIM}" class="t">{escape(title)}</text>'
        f'<svg width="{width}" height="{height}"><g class="film">{film}</g></svg></svg>\n'
    )


def _starts(shown: Sequence[Shown]) -> Iterator[float]:
    at_s = 0.0
    for each in shown:
        yield at_s
        at_s += each.seconds


class Strip:
    """The frames as references to rows, each of which is written once."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._rows: dict[str, str] = {}  # what a row looks like -> its id
        self._blocks: dict[tuple[str, ...], str] = {}  # ids of rows -> the block's id
        self._classes: dict[tuple[str, frozenset[str]], str] = {}

    def frame(self, shown: Shown) -> str:
        parts = []
        rows = shown.frame.rows
        for first in range(0, len(rows), BLOCK_ROWS):
            ids = tuple(self._row(row) for row in rows[first : first + BLOCK_ROWS])
            if any(ids):
                parts.append(_use(self._block(ids), BAR + first * CELL_H))
        return "".join(parts) + self._cursor(shown.frame) + self._clock(shown)

    def _row(self, row: str) -> str:
        """Return the id of a row; "" for an empty one."""
        drawn = "".join(self._run(run) for run in runs(row))
        return self._rows.setdefault(drawn, f"r{len(self._rows):x}") if drawn else ""

    def _block(self, ids: tuple[str, ...]) -> str:
        return self._blocks.setdefault(ids, f"b{len(self._blocks):x}")

    def _run(self, run: Run) -> str:
        style = run.style
        foreground, background = style.foreground or FOREGROUND, style.background or BACKGROUND
        if "reverse" in style.flags:
            foreground, background = background, foreground
        x, width = MARGIN + run.column * CELL_W, run.cells * CELL_W
        parts = []
        if background != BACKGROUND:
            parts.append(f'<rect x="{x:.5g}" width="{width:.5g}" height="{CELL_H}" fill="{background}"/>')
        text = run.text.rstrip()
        if text or "strike" in style.flags:
            lead = len(run.text) - len(run.text.lstrip())
            x += lead * CELL_W
            length = (run.cells - lead - (len(run.text) - len(text))) * CELL_W
            name = self._class(Style(foreground, "", style.flags - {"reverse"}))
            fitted = f' textLength="{length:.5g}"' if len(text) - lead > 1 else ""
            parts.append(f'<text x="{x:.5g}" y="{BASELINE}"{fitted}{name}>{escape(text.lstrip())}</text>')
        return "".join(parts)

    def _class(self, style: Style) -> str:
        if style.foreground == FOREGROUND and not style.flags:
            return ""
        key = (style.foreground, style.flags)
        return f' class="{self._classes.setdefault(key, f"c{len(self._classes)}")}"'

    def _cursor(self, frame: Frame) -> str:
        if frame.cursor is None:
            return ""
        column, row = frame.cursor
        x, y = MARGIN + column * CELL_W, BAR + row * CELL_H
        return f'<rect x="{x:.5g}" y="{y}" width="2" height="{CELL_H}" fill="#7fb4ff"/>'

    def _clock(self, shown: Shown) -> str:
        x = round(self._columns * CELL_W + MARGIN)
        speed = f"{FASTER}× faster · " if shown.is_faster else ""
        return f'<text x="{x}" y="16" class="t e">{speed}{shown.frame.at_s:.1f} s</text>'

    def css(self) -> str:
        rules = [f".t{{font-size:12px;fill:{DIM}}}.e{{text-anchor:end}}"]
        for (colour, flags), name in self._classes.items():
            rules.append(f".{name}{{fill:{colour}{''.join(_CSS[flag] for flag in sorted(flags))}}}")
        return "".join(rules)

    def definitions(self) -> str:
        rows = [f'<g id="{name}">{drawn}</g>' for drawn, name in self._rows.items()]
        for ids, name in self._blocks.items():
            inside = "".join(_use(each, index * CELL_H) for index, each in enumerate(ids) if each)
            rows.append(f'<g id="{name}">{inside}</g>')
        return "".join(rows)


_CSS = {
    "bold": ";font-weight:bold",
    "dim": ";opacity:.6",
    "italic": ";font-style:italic",
    "underline": ";text-decoration:underline",
    "strike": ";text-decoration:line-through",
}


def _use(name: str, y: int) -> str:
    return f'<use href="#{name}" y="{y}"/>' if y else f'<use href="#{name}"/>'
