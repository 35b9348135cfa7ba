"""A client in the foreground: the terminal is its own, signals reach it, and its exit code is ours.

Owns the process while it runs. Does not own what it is started with (`plan`).
"""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

from vivace.errors import StartError

PASSED_ON = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
KEYS = (signal.SIGINT, signal.SIGQUIT)  # a terminal sends these to all in the foreground
BEAT_S = 240.0
BY_SIGNAL = 128  # and the signal's number: how a shell tells it


def run_in_foreground(command: list[str], environment: Mapping[str, str], beat: Callable[[], None]) -> int:
    """Run the client to its end and return its exit code. Call `beat` every few minutes meanwhile."""
    with _passing_signals_on() as pass_to, _beating(beat):
        try:
            client = subprocess.Popen(command, env=environment)
        except OSError as error:
            raise StartError(f"{command[0]} cannot be run: {error.strerror}.") from error
        pass_to(client)
        code = client.wait()
    return code if code >= 0 else BY_SIGNAL - code


@contextmanager
def _passing_signals_on() -> Iterator[Callable[["subprocess.Popen[bytes]"], None]]:
    """Pass on the signals that this process gets. Give a call that says to whom; earlier ones wait for it."""
    clients: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if clients and not (number in KEYS and _is_in_foreground()):
            clients[0].send_signal(number)
        elif not clients:
            early.append(number)

    def pass_to(client: "subprocess.Popen[bytes]") -> None:
        clients.append(client)
        for number in early:
            client.send_signal(number)

    heard = [number for number in PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, on_signal) for number in heard}
    try:
        yield pass_to
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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


@contextmanager
def _beating(beat: Callable[[], None]) -> Iterator[None]:
    is_over = threading.Event()

    def work() -> None:
        while not is_over.wait(BEAT_S):
            beat()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
