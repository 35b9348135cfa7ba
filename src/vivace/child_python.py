"""The command line of every Python child process.

Owns one rule: a child runs with `-P`, so that a module in the folder where the user works (say, `socket.py`)
can neither break it nor pose as the standard library. Does not start anything.
"""

import sys


def python_command(*arguments: str) -> list[str]:
    """Return the command that runs this Python with nothing from the current folder."""
    return [sys.executable, "-P", *arguments]


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module so."""
    return python_command("-m", module, *arguments)
