"""Run a command without walls, after a person allowed just that.

Owns its limits of time and output, and that nothing of it is left behind. Does not own the permission
(`decision`). The environment has no variables that look like secrets.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from vivace.agent.sandbox.run import Limits, Outcome, StoppedBy
from vivace.redaction import without_secrets


@runtime_checkable
class Terminal(Protocol):
    """A face that runs such commands itself, in a terminal that its user sees."""

    async def run_command(self, command: Sequence[str], folder: Path, limits: Limits) -> Outcome:
        """Run a command in a folder and return what came of it. Cancelled, it ends the program."""
        ...


async def run_plainly(command: Sequence[str], folder: Path, limits: Limits) -> Outcome:
    """Run a command in a folder and return what came of it. Cancelled, it ends the program."""
    began_s = time.monotonic()
    transport, program = await asyncio.get_running_loop().subprocess_exec(
        lambda: _Program(limits.output_bytes),
        *command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=without_secrets(os.environ),
        cwd=folder,
        start_new_session=True,
    )
    stopped_by: StoppedBy = ""
    try:
        async with asyncio.timeout(limits.seconds):
            await program.has_all.wait()
    except TimeoutError:
        stopped_by = "time"
    finally:
        _end_group(transport.get_pid())
        await program.has_ended.wait()
        transport.close()  # a program that left the group may still hold the pipe
    if len(program.output) > limits.output_bytes:
        stopped_by = stopped_by or "output"
    code = transport.get_returncode()
    assert code is not None
    output = bytes(program.output[: limits.output_bytes])
    return Outcome(code if code >= 0 else 128 - code, output, stopped_by, time.monotonic() - began_s)


class _Program(asyncio.SubprocessProtocol):
    """The output of a program, up to a limit, and whether that is all of it."""

    def __init__(self, most_bytes: int) -> None:
        self.output = bytearray()
        self.has_ended = asyncio.Event()
        self.has_all = asyncio.Event()  # it ended, and nobody holds its output any more; or there is too much
        self._most_bytes = most_bytes

    def pipe_data_received(self, fd: int, data: bytes) -> None:  # noqa: ARG002
        if len(self.output) <= self._most_bytes:
            self.output += data
        if len(self.output) > self._most_bytes:
            self.has_all.set()

    def process_exited(self) -> None:
        self.has_ended.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.has_all.set()


def _end_group(pid: int) -> None:
    """End the command and whatever it started and left in its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
