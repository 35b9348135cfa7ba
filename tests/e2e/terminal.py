"""`vivace` as a user runs it: a process of its own, a home folder of its own, on a pipe or on a terminal."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vivace.client import warm
from vivace.config import Settings

DEADLINE_S = 400.0  # for what never comes
PROGRAM = [sys.executable, "-m", "vivace"]


@dataclass
class Done:
    code: int
    out: str
    err: str

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    def event(self, kind: str) -> dict[str, Any]:
        (found,) = [event for event in self.events if event["type"] == kind]
        return found


@dataclass
class Home:
    """A user's home and working folder."""

    folder: Path
    model: str = ""
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def work(self) -> Path:
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        return work

    def env(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("VIVACE_", "XDG_", "NO_COLOR"))}
        mine = {"VIVACE_CACHE_DIR": f"{self.folder}/cache", "VIVACE_STATE_DIR": f"{self.folder}/state"}
        mine |= {
            "XDG_CONFIG_HOME": f"{self.folder}/config",
            "VIVACE_PORT": "0",
            "VIVACE_ALLOW_SCRIPTED": "1",
            "VIVACE_THREADS": "1",
        }
        return kept | mine | ({"VIVACE_MODEL": self.model} if self.model else {}) | self.extra

    def script(self, replies: dict[str, str], **script: Any) -> None:
        """Use a scripted model from now on. A reply is the model's whole message, its opening included."""
        file = self.folder / "script.json"
        file.write_text(json.dumps({"replies": replies, "context_tokens": 20000, **script}))
        self.model = f"scripted:{file}"

    def start(self, *args: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*PROGRAM, *args],
            cwd=self.work,
            env=self.env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *args: str) -> Done:
        with self.start(*args) as process:
            out, err = process.communicate(timeout=DEADLINE_S)
        return Done(process.returncode, out, err)

    @property
    def settings(self) -> Settings:
        """Where this user's server is."""
        env = self.env()
        return Settings(Path(env["VIVACE_CACHE_DIR"]), Path(env["VIVACE_STATE_DIR"]))

    def stop(self) -> None:
        """End the server, if one runs, without a process for that."""
        warm.stop_server(self.settings)

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("status", "--json").out)
        return found


class Terminal:
    """`vivace` on a pseudo-terminal: type at it, read what it shows."""

    def __init__(self, home: Home, *args: str) -> None:
        self.shown = ""
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.chdir(home.work)
            os.execvpe(PROGRAM[0], [*PROGRAM, *args], home.env() | {"TERM": "xterm-256color"})

    def wait_for(self, text: str) -> None:
        wait_until(lambda: self._read() and text in self.shown, f"{text!r} in {self.shown!r}")

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def end(self) -> int:
        """Read to the end; the exit code."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline and self._read():
            pass
        _, status = os.waitpid(self.pid, 0)
        os.close(self._fd)
        return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.waitstatus_to_exitcode(status)

    def _read(self) -> bool:
        """Whatever has been shown since; False at the end."""
        if not select.select([self._fd], [], [], 0.2)[0]:
            return True
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # how Linux says that the other side is gone
            return False
        self.shown += data.decode("utf-8", "replace")
        return bool(data)


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)


def kill_hard(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
