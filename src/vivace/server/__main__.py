"""The server in the background, as `client.warm` starts it.

    python -m vivace.server [--detached] < settings.json

The first line of the standard input is the settings. Detached, it serves in a fork, and the process that was
started ends when that accepts connections. Finding another server of this user in place is no failure: it
leaves quietly, and the client that started it uses the other one.
"""

import os
import sys

from vivace.child_python import detach, exit_at_once
from vivace.config import settings_of_parent
from vivace.errors import DONE, FAILED, VivaceError
from vivace.server.instance import acquire_instance, bind

DETACHED = "--detached"


def main() -> int:
    given = sys.stdin.buffer.readline()
    starter, on_started = 0, lambda: None
    if sys.argv[1:] == [DETACHED]:
        starter, on_started = os.getpid(), detach()
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
