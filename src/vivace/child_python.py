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


def detach() -> Callable[[], None]:
    """Go on in a fork of this process, which must have one thread. Return what lets the first one end.

    Some clients end a program with all that descends from it. The fork descends from that only until the
    first process ends: when it is told, with exit code 0; or with the fork, and as that did.
    """
    reading, writing = os.pipe()
    if fork := os.fork():
        os.close(writing)
        if os.read(reading, 1):
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
        os._exit(code if code >= 0 else 128 - code)
    os.close(reading)

    def tell() -> None:
        with contextlib.suppress(BrokenPipeError):  # it was killed
            os.write(writing, b".")
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
