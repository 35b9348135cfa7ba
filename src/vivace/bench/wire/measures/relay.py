"""The lower bound for a server: a relay that hands on bytes from an engine to one client.

    python -m vivace.bench.wire.measures.relay MODEL

Prints its port. Each byte from the client asks the engine for a turn; what the engine says goes to the client
as it is. So a token takes as long as two hops between three processes take on this machine, and nothing is
done for it on the way. Ends when the client goes.
"""

import asyncio
import socket
import subprocess
import sys
from typing import cast

import msgspec

from vivace.child_python import module_command
from vivace.engine.wire.frames import Generate, pack
from vivace.engine.wire.job import Job
from vivace.protocol.rundir import HOST

ALL = 1 << 30


class RelaySide(asyncio.Protocol):
    """One side of the relay: what it receives goes to the other side."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: RelaySide | None = None
        self.gone = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.other and self.other.transport:
            self.other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.gone.set()


class ClientSide(RelaySide):
    """The client's side: each byte that it receives asks the engine for a turn."""

    def data_received(self, data: bytes) -> None:
        asked = (Generate("", f"t{byte}", list(b"Go."), max_tokens=ALL) for byte in data)
        super().data_received(b"".join(map(pack, asked)))


async def relay(link: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    engine, client = RelaySide(), ClientSide()
    client.other, engine.other = engine, client
    await loop.create_unix_connection(lambda: engine, sock=link)
    server = await loop.create_server(lambda: client, HOST, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await client.gone.wait()


def main() -> None:
    import uvloop

    ours, theirs = socket.socketpair()
    job = msgspec.json.encode(Job(sys.argv[1], "", context_tokens=4096, allow_scripted=True)).decode()
    command = module_command("vivace.testing.worker", str(theirs.fileno()), job)
    with subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL):
        theirs.close()
        uvloop.run(relay(ours))


if __name__ == "__main__":
    main()
