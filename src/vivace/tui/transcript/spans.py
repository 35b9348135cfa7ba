"""Lines of styled text, and how a long line is wrapped into rows of the screen.

Owns the shapes: a span is text with the name of a style, a row is what fits into the width. Control
characters are made visible here, so that nothing from a model or a file can control the terminal. Does not
own colours (`tui.theme`).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len

TAB = "    "
MAX_PIECE = 1024  # characters; more than a row has
_CONTROL = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
_WORDS = re.compile(r"\s+|[^\s]+")


class Span(NamedTuple):
    text: str
    style: str = "text"  # a name that the theme knows


Row = tuple[Span, ...]


def clean(text: str) -> str:
    """Return text that cannot control the terminal: tabs widened, control characters made visible."""
    return _CONTROL.sub("\ufffd", text.replace("\t", TAB))


def row_text(row: Iterable[Span]) -> str:
    return "".join(span.text for span in row)


def wrap_words(spans: Sequence[Span], width: int, first: Row = (), rest: Row = ()) -> list[Row]:
    """Wrap at spaces. `first` stands before the first row, `rest` before the others."""
    return _wrap(
        (Span(word, style) for text, style in spans for word in _WORDS.findall(text)), width, first, rest
    )


def wrap_code(spans: Sequence[Span], width: int, first: Row = (), rest: Row = ()) -> list[Row]:
    """Wrap wherever the width ends: code keeps its spaces."""
    available = max(1, width - _cells(first))
    if sum(len(span.text) for span in spans) <= available and all(span.text.isascii() for span in spans):
        return [(*first, *spans)]
    return _wrap(spans, width, first, rest)


def _cells(row: Row) -> int:
    return sum(cell_len(span.text) for span in row)


def _wrap(pieces: Iterable[Span], width: int, first: Row, rest: Row) -> list[Row]:
    rows: list[Row] = []
    current, used = list(first), _cells(first)
    begun = used  # where the text of this row begins
    rest_cells = _cells(rest)

    def end_row() -> None:
        nonlocal current, used, begun
        rows.append(tuple(current))
        current, used, begun = list(rest), rest_cells, rest_cells

    for text, style in _in_bounds(pieces):
        size = cell_len(text)
        if used + size > width and used > begun:
            if text.isspace():
                continue  # a space at the end of a row is not drawn
            if begun + size <= width or rest_cells + size <= width:
                end_row()
        while used + size > width:  # longer than a whole row
            head = _fitting(text, width - used)
            if used > begun and used + cell_len(head) > width:
                end_row()  # not one character more fits
                continue
            current.append(Span(head, style))
            end_row()
            text = text[len(head) :]
            size = cell_len(text)
        if text and not (rows and used == begun and text.isspace()):
            _append(current, text, style, at_least=len(rest) if rows else len(first))
            used += size
    if used > begun or not rows:
        rows.append(tuple(current))
    return rows


def _in_bounds(pieces: Iterable[Span]) -> Iterator[Span]:
    """Yield the pieces, very long ones cut: to take a row off costs as much as the rest is long."""
    for text, style in pieces:
        at = 0
        while len(text) - at > 2 * MAX_PIECE:
            yield Span(text[at : at + MAX_PIECE], style)
            at += MAX_PIECE
        yield Span(text[at:], style)


def _append(row: list[Span], text: str, style: str, at_least: int) -> None:
    """Add text to the row: to its last span if that has the same style and is not one of the lead's."""
    if len(row) > at_least and row[-1].style == style:
        row[-1] = Span(row[-1].text + text, style)
    else:
        row.append(Span(text, style))


def _fitting(text: str, cells: int) -> str:
    """Return the beginning of `text` that fits into `cells`: at least one character."""
    if text.isascii():
        return text[: max(1, cells)]
    used = 0
    for index, character in enumerate(text):
        used += cell_len(character)
        if used > cells:
            return text[: max(1, index)]
    return text
