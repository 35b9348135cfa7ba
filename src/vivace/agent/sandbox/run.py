"""Run one program in the sandbox, with limits on all that it can use up. Never outside of it.

Owns the life of the program: its limits, its output, its end. Does not own the walls (`bubblewrap`). Where
there is no sandbox nothing runs: `SandboxUnavailable` says why.
"""

import asyncio
import contextlib
import ctypes
import functools
import math
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vivace.agent.sandbox.bubblewrap import (
    ENVIRONMENT,
    FOLDER,
    LIMITED_INSIDE,
    find_bubblewrap,
    limited_code,
    python_folders,
    sandbox_command,
    unavailable,
)
from vivace.agent.sandbox.seccomp import seccomp_filter
from vivace.agent.sandbox.usage import MemoryWatch, children_of, usage_of
from vivace.agent.sandbox.workspace import Mounts, Workspace, mounted
from vivace.child_python import python_command

LOOK_S = 0.02  # between two looks at what the program uses
READ_BYTES = 65536
COUNTS_INSIDE = (5, 14)  # since this Linux, the processes of a user are counted in each namespace
THREADS_PER_PROCESS = 4  # for the kernel a thread is a process
OUT_OF_CPU = 128 + 24  # SIGXCPU, as a shell says it
HOLDS_SOCKETS = 9  # the version of Landlock that knows sockets by their path (Linux 7.1)
NO_DUMP = 1  # byte: 0 would not keep the kernel from giving a dump to a program of the system, outside

StoppedBy = Literal["", "time", "memory", "processes", "output", "disk"]


@dataclass(frozen=True)
class Limits:
    seconds: float = 30.0  # on the clock
    cpu_seconds: float = 10.0  # of each process
    memory_bytes: int = 1 << 30  # of all processes together
    processes: int = 32
    output_bytes: int = 64 << 10  # stdout and stderr together
    file_bytes: int = 16 << 20  # of each file
    folder_bytes: int = 64 << 20  # of the private folder, and of /tmp
    open_files: int = 128  # of each process
    disk_bytes: int = 4 << 30  # by which the room on the workspace's disk may shrink

    @property
    def of_a_process(self) -> dict[str, int]:
        """Return what the kernel limits for each process, by the names of `resource`."""
        limits = {
            "CPU": math.ceil(self.cpu_seconds),
            "DATA": self.memory_bytes,
            "FSIZE": self.file_bytes,
            "NOFILE": self.open_files,
            "CORE": NO_DUMP,
        }
        if _kernel() >= COUNTS_INSIDE:  # below, it would count what the user runs outside, too
            limits["NPROC"] = THREADS_PER_PROCESS * self.processes  # root is exempt: see `usage`
        return limits


@dataclass(frozen=True)
class Outcome:
    exit_code: int  # 128 + N after signal N
    output: bytes  # stdout and stderr, cut at the limit
    stopped_by: StoppedBy  # the limit that ended it, if one did; memory may also end it by its own error
    seconds: float
    undone: str = ""  # what was taken away afterwards, in a sentence

    @property
    def is_success(self) -> bool:
        return self.exit_code == 0 and not self.stopped_by


async def run_sandboxed(
    command: Sequence[str],
    *,
    files: Mapping[str, bytes] | None = None,
    read_only: Sequence[Path] = (),
    environment: Mapping[str, str] | None = None,
    limits: Limits | None = None,
    workspace: Workspace | None = None,
    mounts: Sequence[str] = (),
) -> Outcome:
    """Run a command in a sandbox of its own and return what came of it. Cancelled, it ends the program.

    `files` are put into the private folder, where the command starts unless there is a workspace. `read_only`
    are paths that it may read, besides the system's programs and this Python. `mounts` are further options of
    bubblewrap's for folders, without a workspace.
    """
    limits = limits or Limits()
    bubblewrap = find_bubblewrap(*([workspace.path] if workspace else []))
    began_s = time.monotonic()
    async with contextlib.AsyncExitStack() as stack:
        seen = {*python_folders(), *read_only}
        inside = await stack.enter_async_context(mounted(workspace, seen)) if workspace else None
        descriptors = {name: _descriptor(stack, data) for name, data in (files or {}).items()}
        rules = seccomp_filter()
        seccomp = _descriptor(stack, rules) if rules else None
        limited = _descriptor(stack, limited_code())
        ready = stack.enter_context(_Ready())
        shown = _descriptor(stack, _what_is_shown(inside)) if inside else None
        walls = sandbox_command(
            bubblewrap,
            seen,
            descriptors,
            limits.folder_bytes,
            limited=limited,
            mounts=inside.options if inside else mounts,
            starts_in=str(workspace.path) if workspace else FOLDER,
            seccomp=seccomp,
        )
        starting = asyncio.create_subprocess_exec(
            *walls,
            *_limited(ready.writer, limits, shown),
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**ENVIRONMENT, **(environment or {})},
            cwd="/",
            start_new_session=True,  # Ctrl-C at our terminal is for us to handle
            pass_fds=(
                ready.writer,
                limited,
                *descriptors.values(),
                *(each for each in (seccomp, shown) if each is not None),
            ),
        )
        process = await _started(asyncio.ensure_future(starting), ready)
        output, stopped_by = await _supervise(process, ready, limits, inside)
    if not (ready.was_told or stopped_by):
        raise unavailable(output.decode("utf-8", "replace"))
    assert process.returncode is not None
    exit_code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    if exit_code == OUT_OF_CPU:
        stopped_by = stopped_by or "time"
    undone = " ".join(each.told() for each in inside.undone) if inside else ""
    return Outcome(exit_code, output, stopped_by, time.monotonic() - began_s, undone)


class _Ready:
    """The pipe on which the inside tells that the sandbox stands. Once we hang up, nothing runs there."""

    def __init__(self) -> None:
        self.was_told = False
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)

    def __enter__(self) -> "_Ready":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.writer)
        self.hang_up()

    def hang_up(self) -> None:
        if self._reader >= 0:
            with contextlib.suppress(BlockingIOError):
                self.was_told = bool(os.read(self._reader, 1))
            os.close(self._reader)
            self._reader = -1


def _kernel() -> tuple[int, ...]:
    """Return the kernel's version, such as (6, 1)."""
    return tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))


def _descriptor(stack: contextlib.AsyncExitStack, data: bytes) -> int:
    """Return a descriptor from which bubblewrap reads `data`."""
    file = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    file.write(data)
    file.seek(0)
    return file.fileno()


def _what_is_shown(mounts: Mounts) -> bytes:
    """Return what each mount of a workspace has to show, as `limited` reads it."""
    identities = ["any" if each is None else f"{each[0]}:{each[1]}" for each in mounts.shown.values()]
    parts = [[str(mounts.root)], [*mounts.shown], identities, [*mounts.foreign, *map(str, mounts.ours)]]
    return b"\0\0".join(b"\0".join(map(os.fsencode, part)) for part in parts)


def _limited(ready: int, limits: Limits, shown: int | None) -> list[str]:
    """Return the command that checks the mounts, sets the limits inside and becomes the program."""
    python, *flags = python_command("-I", "-S", "-B", LIMITED_INSIDE)
    listed = ",".join(f"{name}={value}" for name, value in limits.of_a_process.items())
    checked = "-" if shown is None else str(shown)
    landlock = version if (version := landlock_version()) >= HOLDS_SOCKETS else 0
    return [str(Path(python).resolve()), *flags, str(ready), listed, checked, str(landlock)]


@functools.cache
def landlock_version() -> int:
    """Return the version of Landlock that this kernel has; 0 if it has none."""
    if sys.platform != "linux":
        return 0
    version: int = ctypes.CDLL(None).syscall(ctypes.c_long(444), None, ctypes.c_size_t(0), ctypes.c_uint(1))
    return max(0, version)


async def _started(
    starting: "asyncio.Future[asyncio.subprocess.Process]", ready: _Ready
) -> asyncio.subprocess.Process:
    """Wait for the process. Cancelled meanwhile, end it as soon as it is there."""
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        process = await starting
        _kill(process, ready)
        await process.communicate()
        raise


def _kill(process: asyncio.subprocess.Process, ready: _Ready) -> None:
    """End bubblewrap and everything inside: the kernel ends a sandbox with its first process.

    Bubblewrap would do so itself when it is killed, but not yet in its first milliseconds. What we do not see
    then is not ready either, and runs nothing once we have hung up.
    """
    ready.hang_up()
    for pid in children_of(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        process.kill()


async def _supervise(
    process: asyncio.subprocess.Process, ready: _Ready, limits: Limits, mounts: Mounts | None
) -> tuple[bytes, StoppedBy]:
    """Read the output until the program ends, or until it reaches a limit and is ended."""
    output = bytearray()
    reading = asyncio.create_task(_read(process, output, limits.output_bytes))
    ending = asyncio.create_task(process.wait())
    stopped_by: StoppedBy = ""
    deadline_s = time.monotonic() + limits.seconds
    least_room_bytes = _room_bytes(mounts) - limits.disk_bytes
    memory = MemoryWatch(limits.memory_bytes)
    try:
        while not (stopped_by or ending.done()):
            await asyncio.wait({ending}, timeout=LOOK_S)
            if not ending.done():
                stopped_by = await _reached(process.pid, limits, len(output), deadline_s, memory)
            if not (stopped_by or ending.done()) and _room_bytes(mounts) < least_room_bytes:
                stopped_by = "disk"
            if mounts:
                mounts.sign()
    finally:
        if not ending.done():
            _kill(process, ready)
            await ending
        await reading  # to the end of the pipe: nobody inside holds it any more
    if len(output) > limits.output_bytes:
        stopped_by = stopped_by or "output"
    return bytes(output[: limits.output_bytes]), stopped_by


async def _reached(
    pid: int, limits: Limits, output_bytes: int, deadline_s: float, memory: MemoryWatch
) -> StoppedBy:
    """Return the limit that is reached now, if any."""
    if time.monotonic() > deadline_s:
        return "time"
    if output_bytes > limits.output_bytes:
        return "output"
    usage = usage_of(pid, limits.processes)
    if usage.processes > limits.processes:
        return "processes"
    if memory.may_exceed(usage) and await asyncio.to_thread(memory.exceeds, usage):
        return "memory"
    return ""


def _room_bytes(mounts: Mounts | None) -> int:
    """Return the free bytes on the workspace's disk; 0 without a workspace, whose folders are in memory."""
    if mounts is None:
        return 0
    disk = os.statvfs(mounts.root)
    return disk.f_bavail * disk.f_frsize


async def _read(process: asyncio.subprocess.Process, output: bytearray, most_bytes: int) -> None:
    """Keep the output up to its limit; read the rest and forget it."""
    assert process.stdout is not None
    while data := await process.stdout.read(READ_BYTES):
        if len(output) <= most_bytes:
            output += data
