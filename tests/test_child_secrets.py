"""Keys of the settings stand on no command line and in no environment of anything that we start."""

import os
import re
import secrets
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.loop.working import call
from tests.agent.mcp import misbehaving
from tests.agent.tasks.tasking import commit, git, wait_for
from tests.sandboxes import can_sandbox
from tests.server.serving import script, until, until_ready
from tests.web.facing import facing
from vivace.agent.loop.task import TaskLimits
from vivace.agent.permissions.policy import Policy
from vivace.agent.tasks import control
from vivace.client import warm
from vivace.config import Settings
from vivace.engine.output.grammar_check import Checker
from vivace.engine.tuning.children.child import Child
from vivace.engine.wire.frames import Grammar

pytestmark = [
    pytest.mark.served,
    pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc"),
]


class Sightings:
    """What `/proc` shows of every process of this machine, for as long as the block lasts."""

    def __init__(self, secret: bytes, given: bytes) -> None:
        self.commands: set[str] = set()
        self.environments: set[str] = set()  # of those whose environment could be read
        self.given_to: set[str] = set()  # those that have what the settings give to one server
        self.leaks: set[str] = set()
        self._secret, self._given = secret, given
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Sightings":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def saw(self, pattern: str) -> bool:
        return any(re.search(pattern, command) for command in self.commands & self.environments)

    def _watch(self) -> None:
        while not self._is_over.wait(0.001):
            for folder in Path("/proc").glob("[0-9]*"):
                if folder.name != str(os.getpid()):
                    self._look(folder)

    def _look(self, folder: Path) -> None:
        try:
            line = (folder / "cmdline").read_bytes()
            command = line.replace(b"\0", b" ").decode("utf-8", "replace")
            self.commands.add(command)
            if self._secret in line or self._given in line:
                self.leaks.add(f"command line: {command}")
            environment = (folder / "environ").read_bytes()
            self.environments.add(command)
        except OSError:  # it is gone, or another user's
            return
        if self._secret in environment:
            self.leaks.add(f"environment: {command}")
        if self._given in environment:
            self.given_to.add(command)


@pytest.fixture
def secret() -> str:
    return f"ghp_{secrets.token_hex(18)}"


@pytest.fixture
def given() -> str:
    return f"given-{secrets.token_hex(18)}"


@pytest.fixture
def full_settings(tmp_path: Path, secret: str, given: str) -> Iterator[Settings]:
    """Settings that have a key wherever a key can be."""
    steps = [call("bad__echo", text="x"), call("shell", command="sleep 0.2"), "Done."]
    servers = {
        "bad": {
            "command": sys.executable,
            "args": ["-S", misbehaving.__file__],
            "env": {"TOKEN": given},
        },
        "far": {"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": f"Bearer {secret}"}},
    }
    settings = Settings(
        cache_dir=tmp_path / "cache",
        state_dir=tmp_path / "state",
        port=0,
        threads=1,
        model=script(tmp_path, steps=steps, context_tokens=60000),
        allow_scripted=True,
        upstreams={"box": {"url": "http://127.0.0.1:9/v1", "api_key": secret, "models": ["m"]}},
        mcp_servers=servers,
    )
    yield settings
    warm.stop_server(settings, is_hurried=True)


async def test_no_key_can_be_seen_from_outside(
    full_settings: Settings, secret: str, given: str, tmp_path: Path
) -> None:
    """Server, engine, face host, task, MCP server, sandbox, tuner, grammars: all are seen, none shows one."""
    pytest.importorskip("mcp", reason="needs the extra mcp")
    repository = tmp_path / "project"
    repository.mkdir()
    git(repository, "init", "-q")
    (repository / "a.py").write_text("x = 1\n")
    commit(repository)
    with Sightings(secret.encode(), given.encode()) as sightings:
        address = warm.ensure_server(full_settings)
        until_ready(full_settings)
        async with facing(address) as face:
            await face.ask("hello")
        task = control.start_task(
            full_settings,
            repository,
            "Do the task.",
            policy=Policy("full", "on-request"),
            limits=TaskLimits(),
        )
        try:
            asked = wait_for(task, "waiting").asked
            assert asked is not None
            assert control.answer_task(task, is_allowed=True, digest=asked.digest)
            wait_for(task, "done")
        finally:
            control.stop_task(task)
            control.remove_task(task)
        Checker().check(Grammar("regex", "a+"))
        probe = Child()
        until(lambda: sightings.saw("tuning.children"))
        probe.close()
        warm.stop_server(full_settings, is_hurried=True)
        warm.ensure_server(full_settings)  # a second start has them, too
    assert sightings.leaks == set()
    wanted = ["vivace.server", "testing.worker", r"vivace\.web", "agent.tasks.process", "misbehaving"]
    wanted += ["grammar", "tuning.children"] + (["bwrap"] if can_sandbox() else [])
    assert [each for each in wanted if not sightings.saw(each)] == []
    assert {"misbehaving" in each for each in sightings.given_to} == {True}
