"""A row of a terminal as runs of one style each, from the sequences that tmux prints.

Owns the reading of SGR sequences. Does not own how a run is drawn (`picture`).
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

_SEQUENCE = re.compile(r"\x1b\[([\d;:]*)m|\x1b.|[\x0e\x0f]")
_BASIC = [
    *("#1d1f21", "#cc6666", "#8fbf6f", "#e6b673", "#7fb4ff", "#c79bf2", "#8abeb7", "#c5c8c6"),
    *("#7d828c", "#f07f7f", "#7fd08a", "#f0c674", "#9cc8ff", "#d7b5f5", "#a0d4cd", "#ffffff"),
]
FLAGS = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "reverse", 9: "strike"}


class Style(NamedTuple):
    foreground: str = ""  # "#rrggbb"; "": the terminal's own
    background: str = ""
    flags: frozenset[str] = frozenset()


class Run(NamedTuple):
    column: int
    cells: int
    text: str
    style: Style


def runs(row: str) -> Iterator[Run]:
    """Yield the row's runs from left to right. A style stays until another one is set."""
    style, column, at = Style(), 0, 0
    for found in [*_SEQUENCE.finditer(row), None]:
        text = row[at : found.start() if found else len(row)]
        if text:
            cells = sum(map(_cells, text))
            yield Run(column, cells, text, style)
            column += cells
        if found:
            at = found.end()
            if found[1] is not None:
                style = _changed(style, [int(part or 0) for part in re.split("[;:]", found[1])])


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _changed(style: Style, codes: list[int]) -> Style:
    codes = list(codes)
    while codes:
        code = codes.pop(0)
        if code == 0:
            style = Style()
        elif code in FLAGS:
            style = style._replace(flags=style.flags | {FLAGS[code]})
        elif code in (22, 23, 24, 27, 29):
            gone = {"bold", "dim"} if code == 22 else {FLAGS[code - 20]}
            style = style._replace(flags=style.flags - gone)
        elif code in (38, 48):
            colour = _colour(codes)
            style = style._replace(foreground=colour) if code == 38 else style._replace(background=colour)
        elif code in (39, 49):
            style = style._replace(foreground="") if code == 39 else style._replace(background="")
        elif 30 <= code <= 37 or 90 <= code <= 97:
            style = style._replace(foreground=_BASIC[code - 30 if code < 40 else code - 82])
        elif 40 <= code <= 47 or 100 <= code <= 107:
            style = style._replace(background=_BASIC[code - 40 if code < 50 else code - 92])
    return style


def _colour(codes: list[int]) -> str:
    """Take a colour off the front: `2 r g b` or `5 n`."""
    kind = codes.pop(0) if codes else 0
    if kind == 2 and len(codes) >= 3:
        red, green, blue = (codes.pop(0) for _ in range(3))
        return f"#{red:02x}{green:02x}{blue:02x}"
    return _of_256(codes.pop(0)) if kind == 5 and codes else ""


def _of_256(number: int) -> str:
    if number < 16:
        return _BASIC[number]
    if number >= 232:
        return f"#{8 + 10 * (number - 232):02x}" + f"{8 + 10 * (number - 232):02x}" * 2
    steps = (0, 95, 135, 175, 215, 255)
    number -= 16
    return "#" + "".join(f"{steps[part]:02x}" for part in (number // 36, number // 6 % 6, number % 6))
