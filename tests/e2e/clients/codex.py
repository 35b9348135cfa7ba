"""The Codex CLI as a user runs it: from npm, in a home of its own, configured as our guide says.

Owns its home, its screen and its way to the server, which leads through a wiretap. Codex is shown a network
on which nobody but the server can be reached, and whoever it tries to reach is noted.
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

from tests import REPOSITORY
from tests.e2e.outside import Outside
from tests.e2e.terminal import DEADLINE_S, Done
from tests.e2e.wiretap import Wiretap
from vivace.client.warm import ServerAddress

PACKAGE, VERSION = "@openai/codex", "0.166.0"
GUIDE = REPOSITORY / "docs" / "guides" / "codex.md"
OURS = """
approval_policy = "never"
sandbox_mode = "danger-full-access"
disable_paste_burst = true  # keys that come as fast as a test types are keys, no pasted text
"""


class Codex:
    def __init__(self, program: Path, folder: Path, address: ServerAddress, model: str) -> None:
        self._program = program
        self._token = address.token
        self.folder = folder
        self.work = folder / "work"
        self.tap = Wiretap(address.port)
        self.outside = Outside()
        self._screens: list[Screen] = []
        self.work.mkdir()
        (folder / "codex").mkdir()
        (folder / "codex" / "config.toml").write_text(self._config(model))

    def change(self, old: str, new: str) -> None:
        """Configure it otherwise than the guide says."""
        file = self.folder / "codex" / "config.toml"
        config = file.read_text()
        assert old in config
        file.write_text(config.replace(old, new))

    def exec(self, prompt: str, deadline_s: float = DEADLINE_S) -> Done:
        """Without a screen, to its end."""
        with subprocess.Popen(
            [self._program, "exec", "--skip-git-repo-check", prompt],
            cwd=self.work,
            env=self._env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # its command is a script that starts the program itself
        ) as process:
            try:
                out, err = process.communicate(timeout=deadline_s)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return Done(process.returncode, out, err)

    def screen(self, prompt: str) -> "Screen":
        """With its screen, and the first message typed already."""
        self._screens.append(Screen([str(self._program), prompt], self.work, self._env()))
        return self._screens[-1]

    def record(self) -> str:
        """What it keeps of its conversations: a screen is drawn in pieces, this is whole."""
        files = (self.folder / "codex" / "sessions").rglob("*.jsonl")
        return "".join(file.read_text("utf-8") for file in files)

    def close(self) -> None:
        for screen in self._screens:
            screen.close()
        self.tap.close()
        self.outside.close()

    def _config(self, model: str) -> str:
        """The one of the guide, with this server and model, and what a test needs before its tables."""
        found = re.search(r"```toml\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
        assert found, "the guide has no configuration"
        config = found[1].replace("http://127.0.0.1:8377/v1", self.tap.url)
        config = config.replace('"qwen2.5-coder-1.5b"', f'"{model}"')
        return f'{OURS}{config}\n[projects."{self.work}"]\ntrust_level = "trusted"\n'

    def _env(self) -> dict[str, str]:
        return self.outside.env() | {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "CODEX_HOME": str(self.folder / "codex"),
            "VIVACE_API_KEY": self._token,
            "RUST_LOG": "warn",
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
        }


class Screen:
    """Codex on a pseudo-terminal, which answers the questions that a terminal must answer."""

    ANSWERS = ((b"\x1b[6n", b"\x1b[1;1R"), (b"\x1b[c", b"\x1b[?1;2c"))  # where is the cursor, what are you

    def __init__(self, line: list[str], folder: Path, env: dict[str, str]) -> None:
        self._fd, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self._process = subprocess.Popen(
            line, cwd=folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        self._shown = b""
        self._is_closing = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def shown(self) -> str:
        """Everything that was ever shown, without colours and places."""
        plain = re.sub(rb"\x1b\[[0-9;?<>=]*[a-zA-Z]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)", b"", self._shown)
        return plain.decode("utf-8", "replace")

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def close(self) -> None:
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
