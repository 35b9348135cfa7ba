"""Attacks on chat completions: too deep, too large, too many is refused, and the others are served."""

import asyncio
import contextlib
import json
import socket
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from tests.server.serving import HANG_S, fetch, status_of, until
from tests.server.talking import post
from tests.server.transport.attacks.attacking import check_lag, memory_mib
from vivace.client.warm import ServerAddress
from vivace.config import Settings
from vivace.protocol.shapes.requests import MAX_BODY_BYTES

PATH = "/v1/chat/completions"
DEEP = b"[" * 100_000
MOST_MIB = 700  # of the server, whatever comes
HI = [{"role": "user", "content": "hi"}]


@cache
def filled(start: bytes, piece: bytes, end: bytes) -> bytes:
    """A body as large as one may be, made of one piece again and again.

    Made when it is sent: every process that collects tests would make all of them, 128 MB.
    """
    count = (MAX_BODY_BYTES - len(start) - len(end)) // (len(piece) + 1)
    return start + b",".join([piece] * count) + end


CALLS = b'{"messages":[{"role":"assistant","tool_calls":['
HEAPS = {
    "messages": (b'{"messages":[', b'{"role":"user"}', b"]}"),
    "calls": (CALLS, b"{}", b"]}]}"),
    "parts": (b'{"messages":[{"role":"user","content":[', b'{"type":"text","text":""}', b"]}]}"),
    "arguments": (CALLS + b'{"function":{"name":"f","arguments":[', b"[]", b"]}}]}]}"),
    "reasoning": (b'{"messages":[{"role":"assistant","reasoning":[', b"{}", b"]}]}"),
    "tools": (b'{"messages":[],"tools":[', b"{}", b"]}"),
    "stop": (b'{"messages":[],"stop":[', b'""', b"]}"),
    "model": (b'{"messages":[],"model":[', b"[]", b"]}"),
}


@pytest.fixture(autouse=True)
def unharmed(served: Settings, address: ServerAddress) -> Iterator[None]:
    """After each attack the same process answers, nothing runs, and its memory is bounded."""
    yield
    assert fetch(address, "POST", PATH, {"messages": HI})[0] == 200
    assert until(lambda: status_of(served).answers == 0)
    assert until(lambda: status_of(served).engine.turns == 0)
    assert status_of(served).pid == address.pid
    assert memory_mib(address) < MOST_MIB


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages":' + DEEP,
        b'{"messages":[{"role":"user","content":' + DEEP,
        b'{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":' + DEEP,
        b'{"messages":[{"role":"assistant","reasoning":' + DEEP,
        b'{"messages":[{"role":"user","content":"hi"}],"tool_choice":' + b'{"a":' * 100_000,
        b'{"messages":[{"role":"user","content":"hi"}],"x":' + DEEP + b"]" * 100_000 + b"}",
    ],
    ids=lambda body: repr(body[:60]),
)
def test_what_is_nested_without_end_is_refused(address: ServerAddress, body: bytes) -> None:
    """Wherever it is: 400."""
    status, answer = fetch(address, "POST", PATH, body)
    assert status == 400
    assert answer["error"]["code"] in ("invalid_json", "invalid_value")


@pytest.mark.parametrize("heap", HEAPS)
def test_heaps_of_small_things_are_refused(address: ServerAddress, heap: str) -> None:
    """Before they are made: 413."""
    status, answer = fetch(address, "POST", PATH, filled(*HEAPS[heap]))
    assert (status, answer["error"]["code"]) == (413, "request_too_large")


def test_a_body_of_64_mib_is_cut_off(address: ServerAddress) -> None:
    """By its length if it says one; by counting if it does not."""
    assert fetch(address, "POST", PATH, Content_Length=str(64 * 1024 * 1024))[0] == 413
    head = post(address, b"", Transfer_Encoding="chunked").replace(b"Content-Length: 0\r\n", b"")
    head = head.replace(b"/v1/responses", PATH.encode())
    chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    with socket.create_connection(("127.0.0.1", address.port), timeout=HANG_S) as connection:
        connection.sendall(head)
        with contextlib.suppress(OSError):  # it may close before it has all
            for _ in range(64):
                connection.sendall(chunk)
        assert b" 413 " in connection.recv(65536)


@pytest.mark.parametrize(("count", "param"), [(10_000, None), (10_001, "messages"), (50_000, "messages")])
def test_very_many_messages(address: ServerAddress, count: int, param: str | None) -> None:
    """Up to a number they are read (these are too long for the model); above, they are not."""
    status, answer = fetch(address, "POST", PATH, {"messages": HI * count})
    assert (status, answer["error"]["param"]) == (400, param)
    if param is None:
        assert answer["error"]["code"] == "context_length_exceeded"


async def test_the_loop_is_not_held_up(address: ServerAddress) -> None:
    """Under a storm of all of these 99 in 100 timers of the server come less than 50 ms late.

    On a machine that is busy with other things, not much later than while it does ordinary work.
    """
    await check_lag(address, _ordinary_work, _storm)


async def _ordinary_work(address: ServerAddress) -> None:
    long: Any = {"messages": [{"role": "user", "content": "long"}]}
    await asyncio.gather(*(asyncio.to_thread(fetch, address, "POST", PATH, long) for _ in range(2)))


async def _storm(address: ServerAddress) -> None:
    bodies = [
        *(filled(*heap) for heap in HEAPS.values()),
        DEEP,
        json.dumps({"messages": HI * 10_000}).encode(),
    ]
    for body in bodies:
        await asyncio.to_thread(fetch, address, "POST", PATH, body)
