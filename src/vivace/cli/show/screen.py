"""What a person sees: a diff that grows while the model writes, a question, one dim line about time.

Owns the terminal: colours, widths, redrawing in place. Everything that came from a file or a model is
cleaned of control characters first. Does not know what an edit is beyond the rows of its diff.
"""

import os
import shutil
import sys
import time
import unicodedata
from collections.abc import Sequence
from typing import TextIO

from vivace.agent.edits.write.live_diff import Row
from vivace.agent.permissions.shown import visible

REDRAW_S = 1 / 30
TAB = "    "
_STYLE = {"+": "\x1b[32m", "-": "\x1b[31m", "@": "\x1b[36m", " ": ""}
_DIM, _BOLD, _RED, _RESET = "\x1b[2m", "\x1b[1m", "\x1b[31m", "\x1b[0m"
_SYNC_BEGIN, _SYNC_END = "\x1b[?2026h", "\x1b[?2026l"  # terminals that know it show the frame whole


class Screen:
    def __init__(self, stream: TextIO | None = None, *, colour: bool | None = None) -> None:
        self.stream = stream or sys.stdout
        self.is_terminal = self.stream.isatty() and os.environ.get("TERM") != "dumb"
        self._colour = self.is_terminal and "NO_COLOR" not in os.environ if colour is None else colour
        self._drawn = 0  # lines of the live region on the screen
        self._drawn_at = 0.0

    def say(self, text: str = "", *, style: str = "") -> None:
        self.stream.write(f"{self._styled(text, style)}\n")
        self.stream.flush()

    def dim(self, text: str) -> None:
        self.say(text, style=_DIM)

    def bold(self, text: str) -> None:
        self.say(text, style=_BOLD)

    def write(self, text: str) -> None:
        """Show a piece of streamed text."""
        self.stream.write(clean(text, keep="\n\t"))
        self.stream.flush()

    @property
    def is_live_due(self) -> bool:
        """Return whether the live region may be drawn again: on a terminal, 30 times a second at most."""
        return self.is_terminal and not (self._drawn and time.monotonic() - self._drawn_at < REDRAW_S)

    def draw_live(self, rows: Sequence[Row]) -> None:
        """Show the last rows that fit, in place of those shown before."""
        self._drawn_at = time.monotonic()
        size = shutil.get_terminal_size()
        shown = rows[-max(3, size.lines - 2) :]
        lines = [self._diff_line(row, size.columns) for row in shown]
        self.stream.write(_SYNC_BEGIN + self._erase() + "\n".join(lines) + "\n" + _SYNC_END)
        self.stream.flush()
        self._drawn = len(lines)

    def end_live(self) -> None:
        if self._drawn:
            self.stream.write(self._erase())
            self.stream.flush()
            self._drawn = 0

    @property
    def columns(self) -> int:
        return shutil.get_terminal_size().columns

    def write_line(self, text: str) -> None:
        """Put this on the current line, in place of what is there."""
        self.stream.write(f"\r\x1b[K{self._styled(clean(text), _DIM)}")
        self.stream.flush()

    def erase_line(self) -> None:
        self.stream.write("\r\x1b[K")
        self.stream.flush()

    def show_diff(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.stream.write(self._diff_line(row, columns=0) + "\n")
        self.stream.flush()

    def _erase(self) -> str:
        return f"\x1b[{self._drawn}F\x1b[J" if self._drawn else ""

    def _diff_line(self, row: Row, columns: int) -> str:
        written = visible(row.text.replace("\t", TAB), keep="")
        text = written if row.tag == "@" else row.tag + written
        return self._styled(cut(text, columns - 1) if columns else text, _STYLE[row.tag])

    def _styled(self, text: str, style: str) -> str:
        return f"{style}{text}{_RESET}" if style and self._colour else text


def complain(message: str, hint: str = "") -> None:
    """Show an error on stderr."""
    screen = Screen(sys.stderr)
    screen.say(f"vivace: {clean(message, keep=chr(10))}", style=_RED)
    if hint:
        screen.say(clean(hint, keep="\n"))


def clean(text: str, keep: str = "") -> str:
    """Return text that cannot control the terminal: tabs widened, control characters made visible."""
    widened = text if "\t" in keep else text.replace("\t", TAB)
    return "".join(
        c if c in keep or unicodedata.category(c) not in ("Cc", "Cf", "Cs") else "�" for c in widened
    )


def cut(text: str, columns: int) -> str:
    """Return as much of `text` as fits into `columns` cells."""
    used = 0
    for index, char in enumerate(text):
        used += 2 if unicodedata.east_asian_width(char) in "WF" else 1
        if used > columns:
            return text[:index]
    return text
