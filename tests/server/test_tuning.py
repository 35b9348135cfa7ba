"""Tuning in the background: it waits for rest, gives way to a turn, goes on later, and the engine follows."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from vivace.config import Settings
from vivace.protocol.rundir import news_file
from vivace.protocol.shapes.status import EngineStatus
from vivace.server.tuning import BackgroundTuner
from vivace.server.turns.activity import Activity

ENGINE = EngineStatus(
    "m", True, 1, 2, 0.0, 0, 0, 0, 0, 0, 0, 0, 0, 0
)  # a model that is loaded and runs on the CPU

# Runs in place of the tuner: notes its pid, and ends with the report that a test has put into a file.
PLAYED = """
import os, sys, time
from pathlib import Path
here = Path({folder!r})
with (here / "starts").open("a") as starts:
    starts.write(f"{{os.getpid()}}\\n")
print('{{"state": "running", "step": 3, "steps": 8}}', flush=True)
while not (here / "end").exists():
    time.sleep(0.01)
print((here / "end").read_text(), flush=True)
"""


class Backend:
    """The engine as the tuner sees it."""

    def __init__(self) -> None:
        self.engine = ENGINE
        self.taken_up = 0
        self.is_other = True

    async def status(self) -> EngineStatus:
        return self.engine

    async def apply_tuning(self) -> bool:
        self.taken_up += 1
        return self.is_other


class Stage:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = Settings(cache_dir=folder / "cache", state_dir=folder / "state")
        self.settings.run_dir.mkdir(parents=True)
        self.backend, self.activity = Backend(), Activity()
        self.tuner = self.make(self.settings)

    def make(self, settings: Settings, idle_s: float = 0.0) -> BackgroundTuner:
        script = PLAYED.format(folder=str(self.folder))
        command = (sys.executable, "-c", script)
        warm = f"import pathlib; pathlib.Path({str(self.folder)!r}, 'warmed').touch()"
        return BackgroundTuner(
            settings,
            self.backend,
            self.activity,
            idle_s=idle_s,
            retry_s=0.01,
            command=command,
            warm_up_command=(sys.executable, "-c", warm),
        )

    def starts(self) -> list[int]:
        file = self.folder / "starts"
        return [int(line) for line in file.read_text().splitlines()] if file.exists() else []

    def end_with(self, report: str) -> None:
        aside = self.folder / "end.part"
        aside.write_text(report)
        aside.rename(self.folder / "end")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.tuner.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled(), task.exception()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - files and processes have no event
            await asyncio.sleep(0.005)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_it_waits_for_the_first_answer(stage: Stage) -> None:
    """A server that has answered nothing yet does not tune: somebody is about to ask."""
    async with stage.running():
        await asyncio.sleep(0.1)
        assert stage.tuner.status.state == "waiting"
        assert stage.starts() == []
        with stage.activity.answering():
            pass
        await until(lambda: stage.tuner.status.state == "running")
        assert (stage.tuner.status.step, stage.tuner.status.steps) == (3, 8)


async def test_a_turn_ends_it_at_once_and_it_starts_again(stage: Stage) -> None:
    """No process is left beside the turn; when the turn is over another one starts."""
    async with stage.running():
        with stage.activity.answering():
            pass
        await until(lambda: stage.tuner.status.state == "running")
        [first] = stage.starts()
        with stage.activity.answering():
            await until(lambda: not is_alive(first))
            await until(lambda: stage.tuner.status.state == "waiting")
            await asyncio.sleep(0.05)
            assert stage.starts() == [first]
        await until(lambda: len(stage.starts()) == 2)


async def test_what_it_found_is_taken_up_and_told(stage: Stage) -> None:
    """The engine follows with warm prompts, the status tells the choice, and the next command has a line."""
    stage.end_with('{"state": "done", "text": "Q8_0 is faster.", "is_new": true}')
    async with stage.running():
        with stage.activity.answering():
            pass
        await until(lambda: news_file(stage.settings).exists())
        assert (stage.tuner.status.state, stage.tuner.status.text) == ("done", "Q8_0 is faster.")
        assert stage.backend.taken_up == 1
        assert "Q8_0 is faster." in news_file(stage.settings).read_text()
        await until(lambda: (stage.folder / "warmed").exists())
        await asyncio.sleep(0.05)
        assert len(stage.starts()) == 1


async def test_nothing_is_told_if_nothing_changes(stage: Stage) -> None:
    """The file as downloaded was best: the status says so, and no command mentions it."""
    stage.end_with('{"state": "done", "text": "As downloaded is best.", "is_new": true}')
    stage.backend.is_other = False
    async with stage.running():
        with stage.activity.answering():
            pass
        await until(lambda: stage.backend.taken_up == 1)
        assert stage.tuner.status.state == "done"
        assert not news_file(stage.settings).exists()


async def test_what_was_known_before_restarts_nothing(stage: Stage) -> None:
    """The engine was started with it already."""
    stage.end_with('{"state": "done", "text": "Q8_0 is faster."}')
    async with stage.running():
        with stage.activity.answering():
            pass
        await until(lambda: stage.tuner.status.state == "done")
        assert stage.backend.taken_up == 0


async def test_a_busy_machine_is_asked_again(stage: Stage) -> None:
    """Postponed is no end: the status says why, and another process tries later."""
    stage.end_with('{"state": "postponed", "text": "others use the processor"}')
    async with stage.running():
        with stage.activity.answering():
            pass
        await until(lambda: "others use the processor" in stage.tuner.status.text)
        await until(lambda: len(stage.starts()) >= 2)


async def test_a_process_that_dies_is_not_started_for_ever(stage: Stage) -> None:
    """Twice is enough; the status says that it failed."""
    stage.end_with("")
    (stage.folder / "end").write_text('{"state": "running"}')
    async with stage.running():
        with stage.activity.answering():
            pass
        await until(lambda: stage.tuner.status.state == "failed" and len(stage.starts()) == 2)
        await asyncio.sleep(0.1)
        assert len(stage.starts()) == 2


async def test_nothing_is_left_when_the_server_stops(stage: Stage) -> None:
    """The process goes with the server."""
    async with stage.running():
        with stage.activity.answering():
            pass
        await until(lambda: stage.tuner.status.state == "running")
        [pid] = stage.starts()
    assert not is_alive(pid)


async def test_never_means_never(stage: Stage) -> None:
    """The setting turns it off, and the status says so."""
    stage.tuner = stage.make(stage.settings.having(tune="never"))
    assert stage.tuner.status.state == "off"
    await asyncio.wait_for(stage.tuner.run(), 10)
    assert stage.starts() == []


async def test_a_model_on_a_gpu_is_not_tuned(stage: Stage) -> None:
    """Weights, threads and chunks are measured for the CPU."""
    stage.backend.engine = replace(ENGINE, device="cuda")
    async with stage.running():
        with stage.activity.answering():
            pass
        await until(lambda: stage.tuner.status.state == "unsuited")
        assert stage.starts() == []
