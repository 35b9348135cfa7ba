"""One child process of the tuner, with requests and answers over pipes.

A variant of the weights may crash, run out of memory or hang: that ends only its child, and `VariantFailed`
says why. Owns the process and the pipes. Imports no llama.cpp: the child does (`probe`).
"""

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from vivace.child_python import module_command
from vivace.engine.tuning.children.wire import Answer, Failure, Request

COMMAND = tuple(module_command("vivace.engine.tuning.children.probe"))
LIMIT_S = 600.0  # for one request: writing a large file in another format is the longest
TICK_S = 0.1
READ_BYTES = 1 << 16

A = TypeVar("A", bound=Answer)


class VariantFailed(Exception):
    """This variant does not work on this machine. The message says why, and can follow a colon."""


class Child:
    """A probe process. `has_own_session`: Ctrl-C does not reach it, and whoever started it must end it."""

    def __init__(self, command: tuple[str, ...] = COMMAND, *, has_own_session: bool = True) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `close`
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            start_new_session=has_own_session,
        )
        self._rest = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: Request, answer: type[A], while_waiting: Callable[[], None] = lambda: None) -> A:
        """Send a request and wait for its answer; `while_waiting` is called several times a second."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(request) + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise VariantFailed(self._exit_reason()) from None
        got: Answer = msgspec.json.decode(self._read_line(while_waiting), type=Answer)
        if isinstance(got, Failure):
            raise VariantFailed(got.message)
        assert isinstance(got, answer), got
        return got

    def close(self) -> None:
        """End it now: it holds nothing that must be saved."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._stderr):
            with contextlib.suppress(BrokenPipeError):  # what was not yet sent has no reader any more
                if pipe:
                    pipe.close()

    def _read_line(self, while_waiting: Callable[[], None]) -> bytes:
        assert self._process.stdout is not None
        descriptor, deadline = self._process.stdout.fileno(), time.monotonic() + LIMIT_S
        while b"\n" not in self._rest:
            if time.monotonic() > deadline:
                raise VariantFailed(f"it did not answer within {LIMIT_S / 60:.0f} minutes")
            if select.select([descriptor], [], [], TICK_S)[0]:
                data = os.read(descriptor, READ_BYTES)
                if not data:
                    raise VariantFailed(self._exit_reason())
                self._rest += data
            while_waiting()
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _exit_reason(self) -> str:
        """Return how the child ended."""
        status = self._process.wait()
        if status == -signal.SIGKILL:
            return "its process was killed, most likely for lack of memory"
        if status < 0:
            return f"llama.cpp crashed ({signal.Signals(-status).name})"
        self._stderr.seek(0)
        lines = self._stderr.read().decode("utf-8", "replace").strip().splitlines()
        return f"its process ended with {status}: {lines[-1] if lines else 'it said nothing'}"
