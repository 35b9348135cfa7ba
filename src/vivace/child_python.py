"""The command line of every Python child process, how one becomes nobody's child, and how one ends.

Owns a rule: a child runs with `-P`, so that a module in the folder where the user works (say, `socket.py`)
can neither break it nor pose as the standard library. And the fork that lets a server or a task outlive
whoever started it. And an end that does not take the interpreter apart. Does not start anything.
"""

import contextlib
import os
import sys
from collections.abc import Callable
from typing import NoReturn


def python_command(*arguments: str) -> list[str]:
    """Return the command that runs this Python with nothing from the current folder."""
    return [sys.executable, "-P", *arguments]


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module so."""
    return python_command("-m", module, *arguments)


def detach() -> Callable[[int], None]:
    """Go on in a process that descends from nobody. Call it while there is one thread.

    Some clients end a program with all that ever descended from it. The process that was started only waits,
    to end with the code that the returned function is first called with, or with 1 if the other is killed.
    """
    reading, writing = os.pipe()
    if between := os.fork():
        os.close(writing)
        os.waitpid(between, 0)
        told = os.read(reading, 1)
        os._exit(told[0] if told else 1)
    os.close(reading)
    if os.fork():
        os._exit(0)
    is_told = False

    def tell(code: int) -> None:
        nonlocal is_told
        if is_told:
            return
        is_told = True
        with contextlib.suppress(BrokenPipeError):  # it was killed
            os.write(writing, bytes([code]))
        os.close(writing)

    return tell


def exit_at_once(code: int) -> NoReturn:
    """End this process. What was printed goes out; the rest must have been closed.

    Without it Python frees everything that was imported: 50 ms for an engine, 70 for a server.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # its reader has left; it is closed
            stream.flush()
    os._exit(code)
