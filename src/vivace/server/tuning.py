"""Tuning while nobody waits: a process of its own, started when the server is idle, killed when a turn comes.

Owns when it runs, what the status says of it, and that the engine takes over what it found. Does not measure:
that is `engine.tuning`, which goes on where it was killed. `tune = "never"` turns it off.
"""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Sequence
from typing import Protocol

import msgspec

from vivace.child_python import module_command
from vivace.config import Settings
from vivace.engine.wire.tuning import MODULE, TuningReport
from vivace.protocol.rundir import news_file
from vivace.protocol.shapes.status import EngineStatus, TuningStatus
from vivace.server.turns.activity import Activity

IDLE_S = 30.0  # without an answer under way before it begins
RETRY_S = 60.0  # after it was postponed
MAX_CRASHES = 2
WARM_UP = "vivace.cli.warmup"
LIMIT_BYTES = 1 << 20  # of one line of the process

log = logging.getLogger(__name__)


class Tunable(Protocol):
    """The backend whose model is tuned."""

    async def status(self) -> EngineStatus: ...

    async def apply_tuning(self) -> bool:
        """Restart the engine if its model is to be run otherwise now; return whether it was."""
        ...


class BackgroundTuner:
    def __init__(
        self,
        settings: Settings,
        backend: Tunable,
        activity: Activity,
        *,
        idle_s: float = IDLE_S,
        retry_s: float = RETRY_S,
        command: Sequence[str] = tuple(module_command(MODULE)),
        warm_up_command: Sequence[str] = tuple(module_command(WARM_UP)),
    ) -> None:
        self._settings = settings
        self._backend = backend
        self._activity = activity
        self._idle_s, self._retry_s = idle_s, retry_s
        self._command, self._warm_up_command = command, warm_up_command
        self._crashes = 0
        self._settled: set[str] = set()  # models for which nothing is left to do
        self.status = TuningStatus("off" if settings.tune == "never" else "waiting")

    async def run(self) -> None:
        """Tune whichever model is loaded, each time the server has been idle for a while."""
        while self._settings.tune != "never":
            await self._activity.some_answer()
            await self._activity.unused_for(self._idle_s)
            engine = await self._backend.status()
            if not engine.is_ready or engine.model in self._settled:
                await asyncio.sleep(self._retry_s)
                continue
            if engine.device != "cpu":
                self._settle(engine.model, TuningStatus("unsuited", text="the model runs on a GPU"))
                continue
            await self._tune(engine.model)

    async def _tune(self, model: str) -> None:
        report = await self._run_until_asked(model)
        if report is None:
            self.status = TuningStatus("waiting", text="it goes on when nobody asks for anything")
            return
        log.info("tuning %s: %s %s", model, report.state, report.text)
        if report.state == "postponed":
            self.status = TuningStatus("waiting", text=report.text)
            await asyncio.sleep(self._retry_s)
        elif report.state == "running":  # it ended in the middle, and not by us
            self._crashes += 1
            self.status = TuningStatus("failed", text="its process died; see the log")
            if self._crashes >= MAX_CRASHES:
                self._settled.add(model)
        else:
            self._settle(model, TuningStatus(report.state, text=report.text))
            if report.is_new and await self._backend.apply_tuning():
                self._tell_next_command(f"Measured while idle, used from now on. {report.text}")
                await self._warm_up(model)

    def _settle(self, model: str, status: TuningStatus) -> None:
        self._settled.add(model)
        self.status = status

    async def _run_until_asked(self, model: str) -> TuningReport | None:
        """Run the process until it ends or an answer begins; return its last report, None if killed."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            self._argument(model),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            limit=LIMIT_BYTES,
            cwd="/",
            start_new_session=True,  # its own children are killed with it
        )
        reading = asyncio.create_task(self._read_reports(process))
        asked = asyncio.create_task(self._activity.some_answer_under_way())
        try:
            await asyncio.wait([reading, asked], return_when=asyncio.FIRST_COMPLETED)
            return reading.result() if reading.done() and not asked.done() else None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            asked.cancel()
            reading.cancel()
            await process.wait()

    def _argument(self, model: str) -> str:
        settings = self._settings
        values = {"cache_dir": str(settings.cache_dir), "state_dir": str(settings.state_dir)}
        return msgspec.json.encode(values | {"model": model, "threads": settings.threads}).decode()

    async def _read_reports(self, process: asyncio.subprocess.Process) -> TuningReport:
        assert process.stdout is not None
        last = TuningReport("running")
        async for line in process.stdout:
            last = msgspec.json.decode(line, type=TuningReport)
            if last.state == "running":
                self.status = TuningStatus("running", last.step, last.steps)
        return last

    async def _warm_up(self, model: str) -> None:
        """Have the agent's prompts put into the new engine's KV. Nobody waits for it; turns go first."""
        settings = self._settings
        places = {"VIVACE_CACHE_DIR": settings.cache_dir, "VIVACE_STATE_DIR": settings.state_dir}
        process = await asyncio.create_subprocess_exec(
            *self._warm_up_command,
            env=os.environ | {name: str(place) for name, place in places.items()} | {"VIVACE_MODEL": model},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            cwd="/",
        )
        try:
            await process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def _tell_next_command(self, text: str) -> None:
        with contextlib.suppress(OSError):
            news_file(self._settings).write_text(text + "\n", "utf-8")
