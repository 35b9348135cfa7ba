"""Text on stdout for people and pipes, which may end in the middle of a line.

Owns where the last line stands. Does not own what is written, nor its cleaning (`screen`).
"""

import sys


class PlainOutput:
    def __init__(self) -> None:
        self._is_mid_line = False

    def write(self, text: str) -> None:
        """Write this at once, where the last text ended."""
        sys.stdout.write(text)
        sys.stdout.flush()
        self._is_mid_line = bool(text) and not text.endswith("\n")

    def line(self, text: str) -> None:
        """Write this as a line of its own."""
        self.end_line()
        self.write(f"{text}\n")

    def end_line(self) -> None:
        """Begin a new line, unless one begins already."""
        if self._is_mid_line:
            self.write("\n")
