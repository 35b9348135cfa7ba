"""`vivace launch` with real clients, and with scripts where an end or a signal must be controlled."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import npm, pypi
from tests.e2e.clients.stage import READ_AGAIN, ROOM, Stage, end_of
from tests.e2e.terminal import PROGRAM, Done, wait_until
from vivace.cli.launch.clients import AIDER, CLIENTS, CODEX, Client
from vivace.server.store.base import Key
from vivace.server.store.sqlite import SqliteStore

SAID = "Hello from the model."
ASK = {
    "claude": ("-p", "Say hello."),
    "codex": ("exec", "--skip-git-repo-check", "Say hello."),
    "opencode": ("run", "Say hello."),
    "qwen": ("Say hello.",),
    "continue": ("-p", "Say hello."),
    "aider": ("--no-git", "--yes-always", "--message", "Say hello."),
}
# What a user has set for a client, and what would lead it elsewhere if it counted for more than ours.
ELSEWHERE = "http://127.0.0.1:9/v1"
THEIRS = {
    "claude": (".claude/settings.json", '{"env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}}'),
    "codex": (".codex/config.toml", 'model = "theirs"\nmodel_provider = "openai"\n'),
    "opencode": (
        ".config/opencode/opencode.json",
        '{"$schema": "https://opencode.ai/config.json", "model": "openai/theirs"}',
    ),
    "qwen": (".qwen/settings.json", '{\n  "$version": 4,\n  "model": {\n    "name": "theirs"\n  }\n}'),
    "continue": (".continue/config.yaml", "name: Theirs\nversion: 1.0.0\nschema: v1\nmodels: []\n"),
    "aider": (".aider.conf.yml", f"openai-api-base: {ELSEWHERE}\nmodel: openai/theirs\n"),
}
KNOWN_CALLS = r"registry\.npmjs\.org|raw\.githubusercontent\.com"  # opencode's, aider's; see their guides


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()
    assert keys_of(stage) == [], "a client's key ends with it"
    assert list(stage.settings.run_dir.glob("launch-*")) == []


def keys_of(stage: Stage) -> list[Key]:
    async def read() -> list[Key]:
        async with SqliteStore(stage.settings.database) as store:
            return await store.keys()

    return asyncio.run(read()) if stage.settings.database.exists() else []


def folder_of(client: Client) -> Path:
    """Return the folder of a real client's program."""
    if client is AIDER:
        return Path(pypi.command(client.program, f"{client.package}=={client.tested}")).parent
    return npm.command(client.package, client.tested, client.program).parent


def environment(stage: Stage, programs: Path) -> dict[str, str]:
    return {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "VIVACE_CACHE_DIR": str(stage.settings.cache_dir),
        "VIVACE_STATE_DIR": str(stage.settings.state_dir),
        "VIVACE_PORT": "0",
        "VIVACE_THREADS": "1",
        "VIVACE_ALLOW_SCRIPTED": "1",
        "VIVACE_MODEL": stage.settings.model,
        "VIVACE_CONTEXT_TOKENS": str(ROOM),
        "OPENAI_API_KEY": "theirs",
        "OPENAI_BASE_URL": ELSEWHERE,
        "OPENAI_API_BASE": ELSEWHERE,
    }


def launch(stage: Stage, client: Client, *given: str) -> Done:
    return stage.run(*line(client, *given), **environment(stage, folder_of(client)))


def line(client: Client, *given: str) -> tuple[str, ...]:
    return (*PROGRAM, "launch", client.name, "--", *given)


@pytest.mark.parametrize("client", CLIENTS.values(), ids=lambda client: client.name)
def test_a_client_is_launched(client: Client, stage: Stage) -> None:
    """It answers from the server that was started for it, with a key of its own; the user's file stays."""
    stage.write({"": SAID})
    name, text = THEIRS[client.name]
    theirs = stage.home / name
    theirs.parent.mkdir(parents=True, exist_ok=True)
    theirs.write_text(text)
    done = launch(stage, client, *ASK[client.name])
    assert (done.code, SAID in done.out) == (0, True), done
    assert [turn.said for turn in stage.turns() if turn.asked] == [len(SAID) + 1]
    assert theirs.read_text() == text
    log = (stage.settings.run_dir / "server.log").read_text()
    assert " key=local " not in log
    assert all(re.search(KNOWN_CALLS, wanted) for wanted in stage.outside.wanted), stage.outside.wanted


def test_the_next_launch_finds_its_prompt_read(stage: Stage) -> None:
    """Each launch has a key of its own, and those of one client share what was read."""
    stage.play({"": SAID})
    for _ in range(2):
        assert launch(stage, CODEX, *ASK["codex"]).code == 0
    _, second = [turn for turn in stage.turns() if turn.asked]
    assert second.new < READ_AGAIN * second.asked


# ---- with a script in place of a client ------------------------------------------------------------


PROGRAM_OF_OURS = f"""#!{sys.executable}
import os, pathlib, select, signal
heard, hearing = os.pipe()
os.set_blocking(hearing, False)
signal.set_wakeup_fd(hearing)  # a byte for each signal: its number
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: None)
pathlib.Path("ready").touch()
sources, interrupts = [0, heard], 0
while True:
    for source in select.select(sources, [], [])[0]:
        data = os.read(source, 100)
        if source == heard:
            interrupts += data.count(signal.SIGINT)
            pathlib.Path("interrupted").touch()
            if signal.SIGTERM in data:
                pathlib.Path("count").write_text(str(interrupts))
                os._exit(7)
        elif data:
            pathlib.Path(data.decode().strip()).touch()
        else:
            sources.remove(source)
"""


@pytest.fixture
def programs(stage: Stage, tmp_path: Path) -> Path:
    """A folder with a program of ours that is called like aider."""
    stage.write({"": SAID})
    program = tmp_path / "bin" / "aider"
    program.parent.mkdir()
    program.write_text(PROGRAM_OF_OURS)
    program.chmod(0o755)
    return program.parent


def test_the_exit_code_and_signals_are_the_clients(programs: Path, stage: Stage) -> None:
    """SIGINT and SIGTERM to the launcher reach the client; its exit code is the launcher's."""
    with stage.start(*line(AIDER), **environment(stage, programs)) as process:
        is_there(stage, "ready")
        os.kill(process.pid, signal.SIGINT)
        is_there(stage, "interrupted")
        os.kill(process.pid, signal.SIGTERM)
        done = end_of(process)
    assert done.code == 7, done
    assert (stage.work / "count").read_text() == "1"


def test_the_terminal_is_the_clients(programs: Path, stage: Stage) -> None:
    """It reads the keys, and hears Ctrl-C from the terminal: the launcher does not send it once more."""
    screen = stage.screen(*line(AIDER), **environment(stage, programs))
    is_there(stage, "ready")
    screen.type("typed\r")
    is_there(stage, "typed")
    screen.type("\x03")
    is_there(stage, "interrupted")
    screen.send(signal.SIGINT)  # as the terminal does
    screen.send(signal.SIGTERM)
    assert screen.end() == 7
    assert (stage.work / "count").read_text() == "1"


def is_there(stage: Stage, name: str) -> None:
    """Wait for a file of the client's."""
    wait_until((stage.work / name).exists, name)


def test_a_killed_launch_leaves_nothing_behind_for_long(programs: Path, stage: Stage) -> None:
    """The next launch removes the key and the folder of one that was killed."""
    with stage.start(*line(AIDER), **environment(stage, programs)) as killed:
        is_there(stage, "ready")
        (key,) = keys_of(stage)
        os.killpg(killed.pid, signal.SIGKILL)
    assert keys_of(stage) == [key]
    (stage.work / "ready").unlink()
    with stage.start(*line(AIDER), **environment(stage, programs)) as running:
        is_there(stage, "ready")
        (other,) = keys_of(stage)
        assert (other.name, other.tenant) == (f"launch-aider-{running.pid}", key.tenant)
        os.kill(running.pid, signal.SIGTERM)
        end_of(running)
