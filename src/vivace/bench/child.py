"""A child process of the bench: its start, its last words on stderr, its end.

Owns the process, known by its pid. Does not own what is exchanged with it. Ctrl-C while a child is being
started ends that child too.
"""

import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vivace.child_python import module_command
from vivace.errors import StartError

ENDING = (signal.SIGINT, signal.SIGTERM)


class Child:
    def __init__(self, module: str, *arguments: str, **options: Any) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the process has ended
        command = module_command(module, *arguments)
        with _noticing_signals() as noticed:
            self.process = subprocess.Popen(command, stderr=self._stderr, **options)
        if noticed:
            self.end()
            raise KeyboardInterrupt

    def end(self, *, timeout_s: float = 0.0) -> None:
        """Wait up to `timeout_s` for its end, then kill it."""
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._stderr.close()

    def why_it_ended(self, name: str) -> StartError:
        """Return the error to raise when it ended too early, with its last line."""
        code = self.process.wait()
        self._stderr.seek(0)
        lines = self._stderr.read().decode("utf-8", "replace").strip().splitlines()
        words = lines[-1] if lines else "It said nothing."
        return StartError(
            f"{name} ended with exit code {code}: {words}",
            "Free some memory or choose a smaller model with --model; `vivace doctor` checks the machine.",
        )


@contextmanager
def _noticing_signals() -> Iterator[list[int]]:
    """Only note signals that would end us: between a fork and its return the child could not be ended."""
    noticed: list[int] = []
    before = {number: signal.signal(number, lambda got, _: noticed.append(got)) for number in ENDING}
    try:
        yield noticed
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
