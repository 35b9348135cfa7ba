"""A server with a scripted model, and a home of its own for a client that is to use it.

Owns the server's life, the wiretap between both, and the network on which nobody but the server can be
reached. Does not own any client's configuration: that is the guide's, and the test's.
"""

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

from tests import REPOSITORY
from tests.e2e.outside import Outside
from tests.e2e.terminal import Done
from tests.e2e.wiretap import Wiretap
from vivace.client import warm
from vivace.config import Settings

GUIDES = REPOSITORY / "docs" / "guides"
ROOM = 400_000  # tokens: a scripted model's are bytes, and agents send 80 kB with every request
RUN_S = 180.0  # for a client to come to its end: 10 s on an idle machine
NAME = "qwen2.5-coder-1.5b"  # what the guides call the model
WINDOW = "16384"  # how many tokens it has there
ADDRESS = "http://127.0.0.1:8377/v1"  # where the guides have the server


class Stage:
    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.work = folder / "work"
        self.home.mkdir()
        self.work.mkdir()
        self.outside = Outside()
        self._folder = folder
        self._settings = Settings(
            folder / "cache", folder / "state", port=0, threads=1, context_tokens=ROOM, allow_scripted=True
        )

    def play(self, replies: dict[str, str]) -> None:
        """Start a server whose model says these, each to a prompt that holds the words before it."""
        script = self._folder / "script.json"
        script.write_text(json.dumps({"replies": replies, "context_tokens": ROOM}))
        self.model = f"scripted:{script}"
        self._settings = self._settings.having(model=self.model)
        address = warm.ensure_server(self._settings)
        self.token = address.token
        self.tap = Wiretap(address.port)

    def configure(self, guide: str, language: str, mark: str, file: str) -> None:
        """Write a file of the client's home, as a block of the guide has it, with this server and model."""
        text = (GUIDES / guide).read_text("utf-8")
        blocks = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
        found = next((block for block in blocks if mark in block), None)
        assert found, f"{guide} has no {language} block with {mark}"
        place = self.home / file
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(self.here(found))

    def here(self, text: str) -> str:
        """Return a text of a guide with this server, model and token."""
        known = {ADDRESS: self.tap.url, NAME: self.model, "TOKEN": self.token, WINDOW: str(ROOM)}
        for old, new in known.items():
            text = text.replace(old, new)
        return text

    def run(self, *line: str | Path, **variables: str) -> Done:
        """Run the client to its end."""
        with subprocess.Popen(
            line,
            cwd=self.work,
            env=self.env() | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # most commands are scripts that start the program itself
        ) as process:
            try:
                out, err = process.communicate(timeout=RUN_S)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return Done(process.returncode, out, err)

    def env(self) -> dict[str, str]:
        return self.outside.env() | {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "OPENAI_BASE_URL": self.tap.url,
            "OPENAI_API_BASE": self.tap.url,
            "OPENAI_API_KEY": self.token,
            "LANG": "C.UTF-8",
        }

    def new_tokens(self) -> list[int]:
        """Return how many tokens each turn had to read, in their order."""
        log = (self._settings.run_dir / "server.log").read_text()
        turns = re.findall(r"input_tokens=(\d+) cached_tokens=(\d+)", log)
        return [int(asked) - int(cached) for asked, cached in turns]

    def close(self) -> None:
        if hasattr(self, "tap"):
            self.tap.close()
        warm.stop_server(self._settings)
        self.outside.close()


def call(name: str, **arguments: Any) -> str:
    """Return a call as the scripted model writes it."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"
