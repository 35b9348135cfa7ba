"""Run a command without walls, after a person allowed just that.

Owns its limits of time and output, and that nothing of it is left behind. Does not own the permission
(`decision`). The environment has no variables that look like secrets.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from vivace.agent.sandbox.run import READ_BYTES, Limits, Outcome, StoppedBy
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
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=without_secrets(os.environ),
        cwd=folder,
        start_new_session=True,
    )
    output = bytearray()
    stopped_by: StoppedBy = ""
    try:
        async with asyncio.timeout(limits.seconds):
            await _read(process, output, limits.output_bytes)
            await process.wait()
    except TimeoutError:
        stopped_by = "time"
    finally:
        _end_group(process.pid)
        await process.wait()
    if len(output) > limits.output_bytes:
        stopped_by = stopped_by or "output"
    return _outcome(process, bytes(output[: limits.output_bytes]), stopped_by, time.monotonic() - began_s)


async def _read(process: asyncio.subprocess.Process, output: bytearray, most_bytes: int) -> None:
    """Read to the end, or to the limit."""
    assert process.stdout is not None
    while len(output) <= most_bytes and (data := await process.stdout.read(READ_BYTES)):
        output += data
    if len(output) > most_bytes:
        _end_group(process.pid)


def _end_group(pid: int) -> None:
    """End the command and whatever it started and left in its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _outcome(
    process: asyncio.subprocess.Process, output: bytes, stopped_by: StoppedBy, seconds: float
) -> Outcome:
    assert process.returncode is not None
    code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    return Outcome(code, output, stopped_by, seconds)
