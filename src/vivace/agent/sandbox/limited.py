"""The first program inside the sandbox: sets the limits of a process, then becomes the program to be run.

Runs as a script, outside of the package, with the standard library only. Its first argument is a pipe that
gets one byte when the sandbox stands: if nobody reads it any more, nothing is run. The second argument has
the limits as NAME=VALUE, by comma. The rest is the command.
"""

import os
import resource
import sys

COMMAND_NOT_FOUND, HUNG_UP = 127, 129


def main(ready: int, limits: str, command: list[str]) -> None:
    """Set the limits, say that the sandbox stands, and become the command."""
    for limit in limits.split(","):
        name, _, value = limit.partition("=")
        set_limit(getattr(resource, f"RLIMIT_{name}"), int(value))
    try:
        os.write(ready, b"1")
    except BrokenPipeError:
        raise SystemExit(HUNG_UP) from None
    os.close(ready)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        raise SystemExit(COMMAND_NOT_FOUND) from None


def set_limit(kind: int, value: int) -> None:
    """Set one limit. A process that is out of processor time has a second more before it is killed."""
    hard = value + 1 if kind == resource.RLIMIT_CPU else value
    resource.setrlimit(kind, (value, hard))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
