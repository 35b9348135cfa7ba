"""The server in the background, as `client.warm` starts it.

    python -m vivace.server [--detached] < settings.json

The first line of the standard input is the settings. Detached, it serves in a process that descends from
nobody, and the one that was started ends when that accepts connections. Finding another server of this user
in place is no failure: it leaves quietly, and the client that started it uses the other one.
"""

import os
import sys
from collections.abc import Callable

from vivace.child_python import detach, exit_at_once
from vivace.config import settings_of_parent
from vivace.errors import DONE, FAILED, VivaceError
from vivace.server.instance import acquire_instance, bind

DETACHED = "--detached"


def main() -> int:
    given = sys.stdin.buffer.readline()
    if sys.argv[1:] != [DETACHED]:
        return serve(given, 0, lambda: None)
    starter, tell = os.getpid(), detach()
    code = FAILED
    try:
        code = serve(given, starter, lambda: tell(DONE))
    finally:
        tell(code)
    return code


def serve(given: bytes, starter: int, on_started: Callable[[], None]) -> int:
    """Serve until the end. Return the exit code."""
    try:
        settings = settings_of_parent(given)
        instance = acquire_instance(settings, starter)
        if instance is None:
            return DONE
        from vivace.server.process import run_server  # after the lock: 150 ms of imports
        from vivace.server.watch.logs import start_logging

        start_logging(settings.log_format)
        listener = bind(settings.port, or_another=True)
        idle_s = settings.idle_minutes * 60
        run_server(settings, instance, listener, on_started=on_started, idle_s=idle_s)
    except VivaceError as error:
        print(f"{error.message} {error.hint}".rstrip(), file=sys.stderr)
        return error.exit_code or FAILED
    return DONE


if __name__ == "__main__":
    exit_at_once(main())
