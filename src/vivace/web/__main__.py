"""The face host's process, as the server starts it.

    python -m vivace.web SOCKET < settings.json

The first line of the standard input is the settings. The input stays open as long as the server lives: its
end is the host's end. Does not own what happens in it (`host`).
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from pathlib import Path

from vivace.config import Settings, settings_of_parent
from vivace.web.host import Host
from vivace.web.operations import everything  # noqa: F401 - fills the table of operations


async def run(settings: Settings, socket_file: Path) -> None:
    """Serve until the server is gone, a signal comes, or nobody needs the host."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    host = Host(settings)
    tasks = [
        asyncio.create_task(host.serve(socket_file)),
        asyncio.create_task(_end_of(reader)),
        asyncio.create_task(over.wait()),
    ]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await tasks[0]
    logging.shutdown()
    os._exit(0)  # a download in a thread would keep the process for as long as it lasts


async def _end_of(reader: asyncio.StreamReader) -> None:
    while await reader.read(65536):
        pass


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    settings = settings_of_parent(sys.stdin.buffer.readline())
    asyncio.run(run(settings, Path(sys.argv[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
