"""What the server's tests share: scripts to play, a raw HTTP client, and waiting on state."""

import http.client
import json
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from vivace.client import warm
from vivace.client.warm import ServerAddress
from vivace.config import Settings
from vivace.protocol.shapes.status import ServerStatus

T = TypeVar("T")
LONG = "".join(f"{number} bottles of beer on the wall. " for number in range(60))


def script(folder: Path, name: str = "script", **fields: Any) -> str:
    """The model name of a scripted model, whose script is written into `folder`."""
    file = folder / f"{name}.json"
    file.write_text(json.dumps(fields))
    return f"scripted:{file}"


HANG_S = 120.0  # for what never comes; a busy machine may be ten times slower than an idle one
_connections: list[http.client.HTTPConnection] = []


def ancestors(pid: int) -> list[int]:
    """Return the process's parent, the parent of that, and so on."""
    if not shutil.which("ps"):
        pytest.skip("needs ps")
    lines = subprocess.check_output(["ps", "-A", "-o", "pid=,ppid="], text=True).splitlines()
    parents = {int(child): int(parent) for child, parent in map(str.split, lines)}
    found: list[int] = []
    while pid := parents.get(pid, 0):
        found.append(pid)
    return found


def until(ask: Callable[[], T], timeout_s: float = HANG_S) -> T:
    """Wait until `ask` gives something true, and give that back."""
    deadline = time.monotonic() + timeout_s
    while not (answer := ask()):
        assert time.monotonic() < deadline, f"never came true: {ask}"
        time.sleep(0.005)
    return answer


def status_of(settings: Settings) -> ServerStatus:
    status = warm.read_status(settings)
    assert status is not None
    return status


def until_ready(settings: Settings) -> ServerStatus:
    return until(lambda: (status := status_of(settings)).engine.is_ready and status)  # type: ignore[return-value]


def send(
    address: ServerAddress, method: str, path: str, body: Any = None, **headers: str
) -> http.client.HTTPResponse:
    """One request; give it back before its body is read. A header of "" is left out."""
    connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=HANG_S)
    _connections.append(connection)
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    chosen = {"Authorization": f"Bearer {address.token}", "Content-Type": "application/json"}
    chosen |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection.putrequest(method, path, skip_host="Host" in chosen)
    for name, value in ({"Content-Length": str(len(data or b""))} | chosen).items():
        if value:
            connection.putheader(name, value)
    connection.endheaders(data)
    answer = connection.getresponse()
    answer.vivace_connection = connection  # type: ignore[attr-defined]
    return answer


def close_connections() -> None:
    """Close what tests have opened with `send`: a socket that a failed one left is a later one's failure."""
    while _connections:
        _connections.pop().close()


def fetch(
    address: ServerAddress, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, Any]:
    """Status and JSON of one request."""
    answer = send(address, method, path, body, **headers)
    data = answer.read()
    answer.vivace_connection.close()  # type: ignore[attr-defined]
    return answer.status, json.loads(data)


def sse_events(answer: http.client.HTTPResponse) -> list[dict[str, Any]]:
    """All events of a stream; each frame's name is its event's type."""
    events = []
    for frame in answer.read().decode().removesuffix("\n\n").split("\n\n"):
        name, data = frame.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    answer.vivace_connection.close()  # type: ignore[attr-defined]
    return events
