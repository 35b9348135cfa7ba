"""What a socket that says nothing costs the server: how its memory grows over many of them.

Owns reading a process's memory. It is what the process holds; the kernel's own buffers are not in it.
"""

import resource
import subprocess
from contextlib import ExitStack
from pathlib import Path

from vivace.bench.engine.context import Section
from vivace.bench.served.clients import SocketClient
from vivace.bench.served.own_server import BenchServer
from vivace.programs import find_program

SPARE_FILES = 128
WARM_UP = 50


def measure_idle(server: BenchServer, sockets: int) -> Section:
    count = min(sockets, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE_FILES)
    _grown_kib(server, WARM_UP)  # what the first ones allocate is not theirs alone
    grown = _grown_kib(server, count)
    return {"kib_per_socket": grown / count, "sockets": count}


def _grown_kib(server: BenchServer, count: int) -> float:
    before = memory_kib(server.address.pid)
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(SocketClient(server.address))
        return memory_kib(server.address.pid) - before


def memory_kib(pid: int) -> float:
    """Return the resident memory of a process."""
    status = Path(f"/proc/{pid}/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS:"))
        return float(line.split()[1])
    shown = subprocess.run(
        [find_program("ps") or "ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True
    )
    return float(shown.stdout)
