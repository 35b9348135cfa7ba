"""A client on a pseudo-terminal, which answers the questions that a terminal must answer.

Owns the terminal and the client's end. Does not own what the client shows: it is drawn in pieces.
"""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
from pathlib import Path

from tests.e2e.terminal import DEADLINE_S


class Screen:
    ANSWERS = ((b"\x1b[6n", b"\x1b[1;1R"), (b"\x1b[c", b"\x1b[?1;2c"))  # where is the cursor, what are you

    def __init__(self, line: list[str], folder: Path, env: dict[str, str]) -> None:
        self._fd, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        opened = ["sh", "-c", 'exec "$@" <>"$0" >&0 2>&0', os.ttyname(theirs), *line]
        self._process = subprocess.Popen(  # who leads a session and opens a terminal is controlled by it
            opened, cwd=folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        self._shown = b""
        self._is_closing = self._is_closed = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def shown(self) -> str:
        """Everything that was ever shown, without colours and places."""
        plain = re.sub(rb"\x1b\[[0-9;?<>=]*[a-zA-Z]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)", b"", self._shown)
        return plain.decode("utf-8", "replace")

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def send(self, number: int) -> None:
        """Send a signal to the program that was started, and to nothing that it has started."""
        os.kill(self._process.pid, number)

    def end(self) -> int:
        """Wait for the client's end and return its exit code."""
        return self._process.wait(DEADLINE_S)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._is_closing = True
        self._reader.join()
        os.close(self._fd)

    def _read(self) -> None:
        while not self._is_closing:
            if not select.select([self._fd], [], [], 0.1)[0]:
                continue
            try:
                data = os.read(self._fd, 65536)
            except OSError:  # how Linux says that the other side is gone
                return
            if not data:  # how a Mac says it
                return
            self._shown += data
            for question, answer in self.ANSWERS:
                for _ in range(data.count(question)):
                    os.write(self._fd, answer)
