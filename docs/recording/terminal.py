"""A program in a terminal of its own, typed at like a person does, with every screen and when it was there.

Owns the terminal (tmux, on a socket of its own) and the frames. Times are true: a frame has the moment at
which its screen was first seen. Does not own what is typed (`record`) nor the picture (`picture`).
"""

import random
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

POLL_S = 0.03
DEADLINE_S = 150.0  # for what never comes
KEY_S = (0.025, 0.075)  # between two letters


@dataclass(frozen=True)
class Frame:
    """A screen, from the moment at which it was first seen."""

    at_s: float  # since the recording began
    rows: tuple[str, ...]  # with the terminal's own colour sequences
    cursor: tuple[int, int] | None  # column and row; None while it is hidden
    is_waiting: bool  # the machine works, and nobody types or reads: a long wait may be played faster


class RecordedTerminal:
    """Use it as a context manager: leaving it ends the program."""

    def __init__(
        self, folder: Path, work: Path, environment: Mapping[str, str], *, columns: int, rows: int
    ) -> None:
        self._socket, self._work, self._environment = folder / "tmux.sock", work, dict(environment)
        self._columns, self._rows = columns, rows
        self._began_s = time.monotonic()
        self._random = random.Random(1)
        self.frames: list[Frame] = []

    def open(self, *command: str) -> None:
        size = ["-x", str(self._columns), "-y", str(self._rows), "-c", str(self._work)]
        self._tmux("new-session", "-d", *size, "env", "TERM=screen-256color", "COLORTERM=truecolor", *command)
        self._began_s = time.monotonic()

    def __enter__(self) -> "RecordedTerminal":
        return self

    def __exit__(self, *_: object) -> None:
        self._tmux("kill-server")

    def type(self, text: str) -> None:
        """Type letter by letter."""
        for letter in text:
            self._tmux("send-keys", "-l", letter)
            self.rest(self._random.uniform(*KEY_S))

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def rest(self, seconds: float) -> None:
        """Let this time pass, as a person who reads or types does."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self._look(is_waiting=False)
            time.sleep(min(POLL_S, max(0.0, end_s - time.monotonic())))

    def sees(self, *words: str) -> None:
        """Wait until all of this is on the screen."""
        self.until(lambda text: all(word in text for word in words), repr(words))

    def sees_once(self, word: str) -> None:
        """Wait until this was on the screen, though it may have scrolled away since."""
        self.until(lambda text: word in text or self._has_seen(word), repr(word))

    def _has_seen(self, word: str) -> bool:
        return any(word in row for frame in self.frames for row in frame.rows)

    def until(self, is_so: Callable[[str], bool], what: str) -> None:
        deadline_s = time.monotonic() + DEADLINE_S
        while not is_so(text := self._look(is_waiting=True)):
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"waited in vain for {what}; the screen:\n{text}")
            time.sleep(POLL_S)

    def _look(self, *, is_waiting: bool) -> str:
        """Keep the screen if it has changed; return its plain text."""
        asked = ["display-message", "-p", "#{cursor_x} #{cursor_y} #{cursor_flag}", ";"]
        plain, coloured = ["capture-pane", "-p", ";"], ["capture-pane", "-p", "-e", "-N"]
        first, *lines = self._tmux(*asked, *plain, *coloured).split("\n")
        column, row, is_shown = (int(part) for part in first.split())
        rows = tuple(lines[self._rows : 2 * self._rows])
        cursor = (column, row) if is_shown else None
        last = self.frames[-1] if self.frames else None
        if last is None or (last.rows, last.cursor) != (rows, cursor):
            self.frames.append(Frame(time.monotonic() - self._began_s, rows, cursor, is_waiting))
        return "\n".join(lines[: self._rows])

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-S", str(self._socket), "-f", "/dev/null", *arguments]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode and "kill-server" not in arguments:
            raise RuntimeError(f"tmux: {done.stderr.strip() or 'the program has ended'}")
        return done.stdout
