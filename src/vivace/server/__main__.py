"""The server in the background, as `client.warm` starts it.

    python -m vivace.server '{"model": …}'

The argument is settings as JSON. Finding another server of this user in place is no failure: it leaves
quietly, and the client that started it uses the other one.
"""

import sys

import msgspec

from vivace.config import load_settings
from vivace.errors import DONE, FAILED, VivaceError
from vivace.server.instance import acquire_instance, bind


def main() -> int:
    try:
        settings = load_settings().having(**msgspec.json.decode(sys.argv[1], type=dict))
        instance = acquire_instance(settings)
        if instance is None:
            return DONE
        from vivace.server.process import run_server  # after the lock: 150 ms of imports
        from vivace.server.watch.logs import start_logging

        start_logging(settings.log_format)
        listener = bind(settings.port, or_another=True)
        idle_s = settings.idle_minutes * 60
        run_server(settings, instance, listener, on_started=lambda: None, idle_s=idle_s)
    except VivaceError as error:
        print(f"{error.message} {error.hint}".rstrip(), file=sys.stderr)
        return error.exit_code or FAILED
    return DONE


if __name__ == "__main__":
    sys.exit(main())
