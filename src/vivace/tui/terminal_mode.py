"""The terminal's mode while the face starts, so that nothing that is typed meanwhile is lost or misread.

Until the mode is set, the system echoes keys and makes a new line of Enter: what was typed then is read here
and handed on. Owns the mode from the first moment to the last; in between Textual sets its own. Imports
nothing slow: it runs before Textual is imported.
"""

import contextlib
import os
import select
import sys
import termios
from collections.abc import Iterator

_ECHOING, _READING = termios.ECHO | termios.ICANON, termios.ICRNL


@contextlib.contextmanager
def keys_as_typed() -> Iterator[str]:
    """Keep keys as they are until the end of the block. Yield what was typed before it.

    An exported COLUMNS or LINES is forgotten: it is the size that some window had, and not this one.
    """
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)
    if not sys.stdin.isatty():
        yield ""
        return
    fd = sys.stdin.fileno()
    before, mode = termios.tcgetattr(fd), termios.tcgetattr(fd)
    mode[0] &= ~_READING
    mode[3] &= ~_ECHOING
    termios.tcsetattr(fd, termios.TCSANOW, mode)
    try:
        yield _typed_before(fd)
    finally:
        termios.tcsetattr(fd, termios.TCSANOW, before)


def _typed_before(fd: int) -> str:
    data = os.read(fd, 1 << 16) if select.select([fd], [], [], 0)[0] else b""
    text = data.decode("utf-8", "ignore").replace("\r", "\n")
    return "".join(letter for letter in text if letter.isprintable() or letter == "\n")


@contextlib.contextmanager
def lines_as_usual() -> Iterator[None]:
    """Give another program a terminal that echoes and reads lines; Textual sets its own mode afterwards."""
    fd = sys.stdin.fileno()
    mode, usual = termios.tcgetattr(fd), termios.tcgetattr(fd)
    usual[0] |= _READING
    usual[3] |= _ECHOING | termios.ISIG
    termios.tcsetattr(fd, termios.TCSANOW, usual)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSANOW, mode)
