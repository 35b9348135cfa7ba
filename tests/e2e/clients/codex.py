"""The Codex CLI as a user runs it: from npm, in a home of its own, configured as our guide says.

Owns its home and its way to the server, which leads through a wiretap. Codex is shown a network
on which nobody but the server can be reached, and whoever it tries to reach is noted.
"""

import os
import re
import signal
import subprocess
from pathlib import Path

from tests import REPOSITORY
from tests.e2e.clients.screen import Screen
from tests.e2e.outside import Outside
from tests.e2e.terminal import DEADLINE_S, Done
from tests.e2e.wiretap import Wiretap
from vivace.client.warm import ServerAddress

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

    def screen(self, prompt: str) -> Screen:
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
