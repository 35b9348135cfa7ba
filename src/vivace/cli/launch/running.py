"""A client in the foreground: the terminal is its own, signals reach it, and its exit code is ours.

Owns the process while it runs. Does not own what it is started with (`plan`).
"""

import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from vivace.errors import StartError

PASSED_ON = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
KEYS = (signal.SIGINT, signal.SIGQUIT)  # a terminal sends these to all in the foreground
BEAT_S = 240.0
BY_SIGNAL = 128  # and the signal's number: how a shell tells it
MANY = 4096


def run_in_foreground(command: list[str], environment: Mapping[str, str], beat: Callable[[], None]) -> int:
    """Run the client to its end and return its exit code. Call `beat` every few minutes meanwhile."""
    with _hearing_signals() as heard:
        try:
            client = subprocess.Popen(command, env=environment)
        except OSError as error:
            raise StartError(f"{command[0]} cannot be run: {error.strerror}.") from error
        while (code := client.poll()) is None:
            if not select.select([heard], [], [], BEAT_S)[0]:
                beat()
                continue
            for number in os.read(heard, MANY):
                if number in PASSED_ON and not (number in KEYS and _is_in_foreground()):
                    client.send_signal(number)
    return code if code >= 0 else BY_SIGNAL - code


@contextmanager
def _hearing_signals() -> Iterator[int]:
    """Give a pipe with the number of each signal, also of those that came before anybody read it.

    A call that waits for a child can miss a signal that comes just before it; a pipe keeps it.
    """
    heard, hearing = os.pipe()
    os.set_blocking(hearing, False)
    wanted = [number for number in PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]
    before = signal.set_wakeup_fd(hearing, warn_on_full_buffer=False)
    handlers = {
        number: signal.signal(number, lambda *_: None)  # what is written to the pipe is all
        for number in (*wanted, signal.SIGCHLD)
    }
    try:
        yield heard
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(before)
        os.close(heard)
        os.close(hearing)


def _is_in_foreground() -> bool:
    """Return whether Ctrl-C at a terminal reaches us and the client alike."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
