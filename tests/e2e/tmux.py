"""`vivace` in tmux: a terminal of its own on a server of its own, typed at and read like a user's."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.e2e.terminal import DEADLINE_S, PROGRAM, Home


class Tmux:
    def __init__(self, home: Home, folder: Path) -> None:
        self.home, self._folder, self._opened = home, folder, 0

    @property
    def socket(self) -> Path:
        """One for each time it is opened: a server that is about to end may still answer on its own."""
        return self._folder / f"tmux{self._opened}.sock"

    def open(self, *arguments: str, columns: int = 90, rows: int = 28) -> None:
        self._opened += 1
        command = ["env", "TERM=screen-256color", "LC_ALL=C.UTF-8", *PROGRAM, *arguments]
        self._tmux(
            "new-session", "-d", "-x", str(columns), "-y", str(rows), "-c", str(self.home.work), *command
        )

    def resize(self, columns: int, rows: int) -> None:
        self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-S", str(self.socket), "-f", "/dev/null", *arguments]
        environment = self.home.env() | {"LC_ALL": "C.UTF-8"}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout

    @property
    def text(self) -> str:
        return self._tmux("capture-pane", "-p")

    @property
    def pid(self) -> int:
        return int(self._tmux("list-panes", "-F", "#{pane_pid}"))

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def say(self, text: str) -> None:
        self.type(text)
        self.press("Enter")

    def sees(self, *words: str) -> None:
        self._until(lambda text: all(word in text for word in words), f"{words!r}")

    def is_gone(self, word: str) -> None:
        self._until(lambda text: word not in text, f"{word!r} to go")

    def _until(self, is_so: Callable[[str], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not is_so(text := self.text):
            assert time.monotonic() < deadline, f"waited in vain for {what} in:\n{text}"
            time.sleep(0.05)

    def close(self) -> None:
        self._tmux("kill-server")  # the one of this socket alone
