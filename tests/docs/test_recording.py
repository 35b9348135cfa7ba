"""README's picture: screens with their times become one small SVG."""

import sys
import xml.etree.ElementTree as ET

import pytest

from tests import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "docs" / "recording"))
import colours
import picture
from terminal import Frame

SVG = "{http://www.w3.org/2000/svg}"


def frame(at_s: float, *rows: str, is_waiting: bool = False) -> Frame:
    return Frame(at_s, rows, None, is_waiting)


def test_only_long_waits_are_played_faster_and_it_is_said() -> None:
    """A wait for the machine is shortened and marked; a person's pause and short waits keep their time."""
    frames = [frame(0.0, "a"), frame(3.0, "b"), frame(3.5, "c", is_waiting=True)]
    frames += [frame(7.5, "d", is_waiting=True)]
    shown = picture.timeline(frames)
    assert [each.seconds for each in shown] == [3.0, 0.5, 1.0, picture.END_S]
    assert [each.is_faster for each in shown] == [False, False, True, False]
    svg = picture.draw(shown, columns=10, rows=1, title="t", poster=0)
    assert svg.count("4× faster · 3.5 s") == svg.count("faster") == 1


def test_a_cursor_that_blinks_does_not_lengthen_a_wait() -> None:
    """While the machine is waited for, a change of colour alone is no news; of a person's typing it is."""
    frames = [frame(0.0, "a")]
    frames += [
        frame(number / 2, "a" if number % 2 else "\x1b[7ma", is_waiting=True) for number in range(1, 8)
    ]
    frames += [frame(4.0, "b", is_waiting=True), frame(4.5, "\x1b[7mb")]
    assert [each.seconds for each in picture.timeline(frames)] == [1.0, 0.5, picture.END_S]


def test_a_row_is_written_once() -> None:
    """Rows that stay are references, whatever changes around them."""
    frames = [frame(float(number), "the same row", f"row {number}") for number in range(20)]
    svg = picture.draw(picture.timeline(frames), columns=20, rows=2, title="t", poster=3)
    assert svg.count("the same row") == 1
    strip = ET.fromstring(svg).find(f".//{SVG}g[@class='film']")
    assert strip is not None
    assert len(strip) == 20


def test_what_the_text_says_cannot_break_the_picture() -> None:
    """Markup in a row is text."""
    svg = picture.draw(
        picture.timeline([frame(0.0, "<b>&\"'</b>")]), columns=20, rows=1, title="<&>", poster=0
    )
    assert "<b>&\"'</b>" in " ".join(ET.fromstring(svg).itertext())


@pytest.mark.parametrize(
    ("row", "style"),
    [
        ("\x1b[1mx", colours.Style(flags=frozenset({"bold"}))),
        ("\x1b[1;9mx", colours.Style(flags=frozenset({"bold", "strike"}))),
        ("\x1b[1m\x1b[22mx", colours.Style()),
        ("\x1b[38;2;1;2;255mx", colours.Style("#0102ff")),
        ("\x1b[48;5;232mx", colours.Style("", "#080808")),
        ("\x1b[38;5;196;48;5;16mx", colours.Style("#ff0000", "#000000")),
        ("\x1b[31;107mx", colours.Style("#cc6666", "#ffffff")),
        ("\x1b[31m\x1b[0mx", colours.Style()),
        ("\x1b[38mx", colours.Style()),
    ],
)
def test_colour_sequences_are_read(row: str, style: colours.Style) -> None:
    """What tmux prints becomes the style of the text behind it."""
    assert list(colours.runs(row)) == [colours.Run(0, 1, "x", style)]


def test_wide_characters_take_two_cells() -> None:
    """The runs stand where the terminal has them."""
    assert [(run.column, run.cells) for run in colours.runs("日本\x1b[1mx")] == [(0, 4), (4, 1)]
