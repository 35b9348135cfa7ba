"""The face host as a child of the server: started when the first face comes, ended with the server.

Owns its process and its socket. It gets the settings on its standard input, which stays open: when the server
is gone, however it went, the host reads the end of it and leaves. Knows a command line and a socket, and
nothing of what happens in there (`vivace.web`, which the server must not import).
"""

import asyncio
import contextlib
import logging
import os
import shutil
import tempfile
from pathlib import Path

from vivace.child_python import module_command
from vivace.config import Settings
from vivace.errors import StartError

MODULE = "vivace.web"
START_S = 30.0
STOP_S = 5.0
POLL_S = 0.02
MAX_PATH_BYTES = 100  # a Unix socket's name may have about as many

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]

log = logging.getLogger(__name__)


class HostProcess:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process: asyncio.subprocess.Process | None = None
        self._starting = asyncio.Lock()
        self._is_closed = False
        self._aside: str | None = None  # a folder for the socket where the state folder's name is too long
        self._socket_file = settings.run_dir / "faces.sock"
        if len(os.fsencode(self._socket_file)) > MAX_PATH_BYTES:
            self._aside = tempfile.mkdtemp(prefix="vivace-")  # for nobody else, as mkdtemp makes it
            self._socket_file = Path(self._aside) / "faces.sock"

    async def connect(self) -> Connection:
        """Return a connection to the host. Start it if it does not run."""
        async with self._starting:
            if self._is_closed:
                raise StartError("The server is ending.")
            if self._is_running and (connection := await self._connection()):
                return connection
            if not self._is_running:  # or it has just died, which was noticed meanwhile
                await self._start()
                if connection := await self._connection():
                    return connection
            raise StartError("The face host did not start.", f"See {self._settings.run_dir / 'server.log'}.")

    @property
    def _is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def _start(self) -> None:
        self._socket_file.unlink(missing_ok=True)
        self._process = await asyncio.create_subprocess_exec(
            *module_command(MODULE, str(self._socket_file)),
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in a terminal is for the server, which ends it
            cwd="/",
        )
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):  # it ended at once; that is told below
            self._process.stdin.write(self._settings.for_child())
            await self._process.stdin.drain()
        log.info("face host started (pid %d)", self._process.pid)

    async def _connection(self) -> Connection | None:
        """Connect as soon as it listens. Return None if it ends, or does not listen in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + START_S
        while loop.time() < deadline and self._is_running:
            try:
                return await asyncio.open_unix_connection(str(self._socket_file))
            except (FileNotFoundError, ConnectionRefusedError):
                await asyncio.sleep(POLL_S)
        return None

    async def close(self) -> None:
        """End the host and wait for that. Conversations are kept in their transcripts."""
        self._is_closed = True
        async with self._starting:
            if self._process is not None and self._is_running:
                await self._end(self._process)
        self._socket_file.unlink(missing_ok=True)
        if self._aside:
            shutil.rmtree(self._aside, ignore_errors=True)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:
            log.warning("the face host did not end by itself")
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
