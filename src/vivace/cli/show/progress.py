"""Draws the progress of one long step on stderr: a moving bar on a terminal, a line per tenth elsewhere.

Owns the drawing and the guess of the time left. Does not know what moves: see `models.progress.Progress`.
"""

import shutil
import sys
import time
from typing import TextIO

BAR_CELLS = 24
REDRAW_SECONDS = 0.1
LINE_SECONDS = 1.0  # where every line stays: not more often than this
HEAD_START_SECONDS = 0.05  # bytes reported this early were there before: they count, but not as speed
CLEAR_LINE = "\r\x1b[K"


class TerminalProgress:
    """Progress for people. Begun again without an end, it simply starts over."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.is_terminal = self.stream.isatty()
        self.label, self.total_bytes = "", 0
        self.done_bytes, self.head_bytes = 0, 0
        self.began_s = self.drawn_s = 0.0
        self.tenths = 0

    def begin(self, label: str, total_bytes: int) -> None:
        self.label, self.total_bytes = label, total_bytes
        self.done_bytes = self.head_bytes = self.tenths = 0
        self.began_s = self.drawn_s = time.monotonic()
        if self.is_terminal:
            self._draw()
        else:
            print(f"{label} …", file=self.stream, flush=True)

    def advance(self, size_bytes: int) -> None:
        now_s = time.monotonic()
        self.done_bytes += size_bytes
        if now_s - self.began_s < HEAD_START_SECONDS:
            self.head_bytes += size_bytes
        if not self.is_terminal:
            self._print_tenth()
        elif now_s - self.drawn_s >= REDRAW_SECONDS:
            self.drawn_s = now_s
            self._draw()

    def end(self) -> None:
        if self.is_terminal:
            self.stream.write(f"{CLEAR_LINE}{self._summary()}\n")
            self.stream.flush()

    def _draw(self) -> None:
        columns = shutil.get_terminal_size().columns
        self.stream.write(CLEAR_LINE + self._line()[: columns - 1])
        self.stream.flush()

    def _line(self) -> str:
        if not self.total_bytes:
            return f"{self.label} …"
        fraction = min(1.0, self.done_bytes / self.total_bytes)
        full = int(fraction * BAR_CELLS)
        bar = "█" * full + "░" * (BAR_CELLS - full)
        amount = f"{self.done_bytes / 1e6:,.0f}/{self.total_bytes / 1e6:,.0f} MB"
        return f"{self.label} {bar} {fraction:4.0%} {amount}{self._speed()}"

    def _speed(self) -> str:
        elapsed_s = time.monotonic() - self.began_s
        per_second = (self.done_bytes - self.head_bytes) / elapsed_s if elapsed_s > 0.5 else 0.0
        if per_second <= 0:
            return ""
        left_s = max(0, self.total_bytes - self.done_bytes) / per_second
        return f" {per_second / 1e6:.1f} MB/s, {_clock(left_s)} left"

    def _summary(self) -> str:
        """Return the last line: how far it came. A step may end early."""
        elapsed_s = time.monotonic() - self.began_s
        if not self.total_bytes:
            return f"{self.label}: {_clock(elapsed_s)}"
        if self.done_bytes == self.head_bytes < self.total_bytes:
            return f"{self.label}: not available"
        amount = f"{self.done_bytes / 1e6:,.0f} MB"
        if self.done_bytes < self.total_bytes:
            amount += f" of {self.total_bytes / 1e6:,.0f} MB"
        return f"{self.label}: {amount}, {_clock(elapsed_s)}"

    def _print_tenth(self) -> None:
        tenths = 10 * self.done_bytes // self.total_bytes if self.total_bytes else 0
        now_s = time.monotonic()
        if tenths > self.tenths and (tenths >= 10 or now_s - self.drawn_s >= LINE_SECONDS):
            self.tenths, self.drawn_s = tenths, now_s
            print(f"{self.label}: {min(100, 10 * tenths)}%", file=self.stream, flush=True)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m {rest:02}s" if minutes else f"{rest}s"
