"""A server with a scripted model, and a home of its own for a client that is to use it.

Owns the server's life, the wiretap between both, the network on which nobody but the server can be reached,
and what the server's log says of turns. Does not own any client's configuration: that is the guide's, and the
test's.
"""

import itertools
import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from tests import REPOSITORY
from tests.e2e.clients.screen import Screen
from tests.e2e.outside import Outside
from tests.e2e.terminal import Done, wait_until
from tests.e2e.wiretap import Wiretap
from vivace.client import warm
from vivace.config import Settings

GUIDES = REPOSITORY / "docs" / "guides"
ROOM = 400_000  # tokens: a scripted model's are bytes, and agents send 80 kB with every request
RUN_S = 180.0  # for a client to come to its end: 10 s on an idle machine
NAME = "qwen2.5-coder-1.5b"  # what the guides call the model
WINDOW = "16384"  # how many tokens it has there
ADDRESS = "http://127.0.0.1:8377"  # where the guides have the server
TOKEN = "$(cat ~/.local/state/vivace/token)"  # how they read its token
PIECES = re.compile("content_block_delta|chat.completion.chunk")
ENOUGH = 60  # pieces of an answer, of which a title is part
READ_AGAIN = 0.03  # of a prompt, at most, that an earlier turn had read
LONG = "".join(f"{number} bottles of beer on the wall. " for number in range(400))
TURN = re.compile(
    r" tier=(\w+) .*? input_tokens=(\d+) cached_tokens=(\d+) output_tokens=(\d+) .*?(?: abort=(\w+)|$)", re.M
)


class LoggedTurn(NamedTuple):
    """A turn, as the server's log has it."""

    tier: str
    asked: int  # tokens of the prompt
    cached: int
    said: int
    abort: str

    @property
    def new(self) -> int:
        return self.asked - self.cached


class Stage:
    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.work = folder / "work"
        self.home.mkdir()
        self.work.mkdir()
        self.outside = Outside()
        self._folder = folder
        self._screens: list[Screen] = []
        self.typed = ""  # what clients read from their standard input
        self.settings = Settings(
            folder / "cache", folder / "state", port=0, threads=1, context_tokens=ROOM, allow_scripted=True
        )

    def write(self, replies: dict[str, str], **script: Any) -> None:
        """Have a model that says these, each to a prompt that holds the words before it."""
        file = self._folder / "script.json"
        file.write_text(json.dumps({"replies": replies, "context_tokens": ROOM, **script}))
        self.settings = self.settings.having(model=f"scripted:{file}")

    def play(self, replies: dict[str, str], **script: Any) -> None:
        """Start a server with such a model."""
        self.write(replies, **script)
        self.serve(self.settings.model)

    def serve(self, model: str) -> None:
        """Start a server with any model."""
        self.model = model
        self.settings = self.settings.having(model=model)
        address = warm.ensure_server(self.settings)
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

    def exports(self, guide: str) -> dict[str, str]:
        """Return the variables that a guide exports, with this server and token."""
        lines = re.findall(r"^export (.*)$", (GUIDES / guide).read_text("utf-8"), re.MULTILINE)
        assert lines, f"{guide} exports nothing"
        words = " ".join(line.partition("  #")[0].replace(TOKEN, "TOKEN") for line in lines).split()
        return {name: self.here(value) for name, _, value in (word.partition("=") for word in words)}

    def here(self, text: str) -> str:
        """Return a text of a guide with this server, model and token."""
        root = self.tap.url.removesuffix("/v1")
        known = {ADDRESS: root, NAME: self.model, "TOKEN": self.token, WINDOW: str(ROOM)}
        for old, new in known.items():
            text = text.replace(old, new)
        return text

    def run(self, *line: str | Path, **variables: str) -> Done:
        """Run the client to its end."""
        with self.start(*line, **variables) as process:
            return end_of(process)

    def start(self, *line: str | Path, **variables: str) -> "subprocess.Popen[str]":
        typed = self._folder / "typed"
        typed.write_text(self.typed)
        with typed.open() as stdin:
            return subprocess.Popen(
                line,
                cwd=self.work,
                env=self.env() | variables,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,  # most commands are scripts that start the program itself
            )

    def screen(self, *line: str | Path, **variables: str) -> Screen:
        """Start the client on a terminal."""
        env = self.env() | {"TERM": "xterm-256color"} | variables
        self._screens.append(Screen([str(word) for word in line], self.work, env))
        return self._screens[-1]

    def env(self) -> dict[str, str]:
        known = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8"}
        if hasattr(self, "tap"):
            urls = dict.fromkeys(("OPENAI_BASE_URL", "OPENAI_API_BASE"), self.tap.url)
            known |= {"OPENAI_API_KEY": self.token, **urls}
        return self.outside.env() | known

    def turns(self, tier: str = "realtime") -> list[LoggedTurn]:
        """Return the turns of a tier that have ended, in their order."""
        return [turn for turn in logged_turns(self.settings) if turn.tier == tier]

    def assert_read_once(self, *, but: int = 0) -> None:
        """Each turn after the first has read at most 3% of its prompt again, and `but` tokens."""
        turns = self.turns()
        assert len(turns) > 1, turns
        for before, turn in itertools.pairwise(turns):
            again = before.asked + before.said - turn.cached
            assert again <= READ_AGAIN * turn.asked + but, (again, turns)

    def interrupt(self, process: "subprocess.Popen[str]") -> LoggedTurn:
        """Press Ctrl-C in the middle of an answer. Return the turn, which frees the engine."""
        wait_until(lambda: len(PIECES.findall(self.tap.heard)) > ENOUGH, "the middle of an answer")
        os.killpg(process.pid, signal.SIGINT)
        self.is_free()
        end_of(process)
        wait_until(self.turns, "its line in the log")
        return self.turns()[-1]

    def is_free(self) -> None:
        """Wait until the engine has nothing to do."""
        wait_until(lambda: is_idle(self.settings), "an idle engine")

    def close(self) -> None:
        for screen in self._screens:
            screen.close()
        if hasattr(self, "tap"):
            self.tap.close()
        warm.stop_server(self.settings)
        self.outside.close()


def is_idle(settings: Settings) -> bool:
    """Return whether a server runs and its engine has nothing to do."""
    status = warm.read_status(settings)
    return status is not None and not status.engine.turns


def logged_turns(settings: Settings) -> list[LoggedTurn]:
    """Return the turns of all tiers that have ended, in their order."""
    log = (settings.run_dir / "server.log").read_text()
    found = TURN.findall(log)
    return [
        LoggedTurn(tier, int(asked), int(cached), int(said), abort)
        for tier, asked, cached, said, abort in found
    ]


def end_of(process: "subprocess.Popen[str]", deadline_s: float = RUN_S) -> Done:
    """Wait for the end of a client; end all of it where it does not come."""
    try:
        out, err = process.communicate(timeout=deadline_s)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return Done(process.returncode, out, err)


def call(name: str, **arguments: Any) -> str:
    """Return a call as the scripted model writes it."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"
