"""Programs that run beside the screen: the user's shell commands, and our own commands.

Owns that their output is shown as it comes, up to a limit, and that they end when the user leaves. Does not
own programs that need the terminal (`external_editor`).
"""

import asyncio
import contextlib
import os
import shlex
import signal
from collections.abc import Coroutine
from pathlib import Path

from vivace.child_python import module_command
from vivace.tui.transcript.blocks import Output
from vivace.tui.transcript.view import Transcript

MAX_OUTPUT_BYTES = 1_000_000  # of one program; what follows is dropped
END_S = 1.0  # for a program to end when the user leaves


async def run_shell(transcript: Transcript, folder: Path, command: str) -> None:
    """Run the user's command and show its output as it comes."""
    starting = asyncio.create_subprocess_shell(
        command,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    await _show_output(transcript, command, await _started(starting))


async def run_own_command(transcript: Transcript, *arguments: str) -> None:
    """Run one of our own commands and show what it prints."""
    starting = asyncio.create_subprocess_exec(
        *module_command("vivace", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    await _show_output(transcript, f"vivace {shlex.join(arguments)}", await _started(starting))


async def _started(starting: Coroutine[None, None, asyncio.subprocess.Process]) -> asyncio.subprocess.Process:
    """A program from its start on. Cut short here, asyncio would end it alone, not what it has started."""
    start = asyncio.ensure_future(starting)
    try:
        return await asyncio.shield(start)
    except asyncio.CancelledError:
        while not start.done():  # a moment, however often the user leaves
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([start])
        await _end_and_close(start.result())
        raise


async def _show_output(transcript: Transcript, command: str, process: asyncio.subprocess.Process) -> None:
    """Show what the program prints, to its end; whoever leaves meanwhile ends it."""
    block = transcript.add(Output(command))
    assert process.stdout is not None
    size_bytes = 0
    try:
        while data := await process.stdout.read(65536):
            if size_bytes < MAX_OUTPUT_BYTES:
                block.grow(data.decode("utf-8", "replace"))
                transcript.touch()
            size_bytes += len(data)
        block.end(await process.wait())
    finally:
        await _end_and_close(process)
    transcript.touch()


async def _end_and_close(process: asyncio.subprocess.Process) -> None:
    """End a program and what it has started, and let go of its output."""
    try:
        if process.returncode is None:
            await _end(process)
    finally:  # also when the user leaves twice
        # What it has started may hold its output for longer; asyncio has no other name for letting go.
        process._transport.close()  # type: ignore[attr-defined]


async def _end(process: asyncio.subprocess.Process) -> None:
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), END_S)
            return
