"""Attacks in requests: strange ids, numbers, bodies, schemas, headers and dawdlers are refused."""

import contextlib
import socket
from typing import Any

import pytest

from tests.server.serving import HANG_S, fetch
from tests.server.talking import post
from tests.server.transport.attacks.attacking import (
    DEEP,
    READING,
    Target,
    ids,
    raw_status,
    request_status,
)
from vivace.client.warm import ServerAddress
from vivace.protocol.shapes.requests import MAX_BODY_BYTES

STRANGE_IDS = [
    "%00",
    "a%2Fb",
    "%ED%A0%80",
    "%ff%fe",
    "..%2f..%2fetc",
    "x" * 8000,
    "%F0%9F%98%80",
    "'; drop table",
]


@pytest.mark.parametrize("given", STRANGE_IDS)
@pytest.mark.parametrize("end", ["", "/input_items", "/cancel"])
def test_strange_ids_are_unknown(address: ServerAddress, given: str, end: str) -> None:
    """Never a mistake of ours, never something else's record."""
    path = f"/v1/responses/{given.replace(' ', '%20')}{end}"
    for method in ("POST",) if end == "/cancel" else ("GET", "DELETE"):
        assert request_status(address, Target(method, path), Content_Length="0") in (400, 404, 405)


@pytest.mark.parametrize("given", ["\\u0000", "../../x", "x" * 100_000, "\\ud83d\\ude00", "resp_\\n"])
def test_strange_ids_in_bodies_are_unknown(address: ServerAddress, given: str) -> None:
    """Likewise."""
    body = f'{{"input": "hi", "previous_response_id": "{given}"}}'.encode()
    status, answer = fetch(address, "POST", "/v1/responses", body)
    assert (status, answer["error"]["code"]) == (400, "previous_response_not_found")


@pytest.mark.parametrize(
    "query",
    [
        "stream=true&starting_after=%C2%B2",
        "stream=true&starting_after=-1",
        "stream=true&starting_after=1e3",
        "stream=true&starting_after=" + "9" * 5000,
        "stream=true&starting_after=",
    ],
)
def test_numbers_that_are_none_are_refused(address: ServerAddress, query: str) -> None:
    """In a query anyone may write anything."""
    _, known = fetch(address, "POST", "/v1/responses", {"input": "hi"})
    status, answer = fetch(address, "GET", f"/v1/responses/{known['id']}?{query}")
    assert (status, answer["error"]["code"]) == (400, "invalid_value")
    for wrong in ("limit=%C2%B2", "limit=x", "after=nobody", "order=sideways"):
        assert fetch(address, "GET", f"/v1/responses/{known['id']}/input_items?{wrong}")[0] == 400


# ---- bodies -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", READING, ids=ids)
@pytest.mark.parametrize(
    "body",
    [
        DEEP,
        b'{"input":' + DEEP,
        b'{"x":' * 100_000,
        b'{"input": "\xff\xfe"}',
        b'{"input": "\xed\xa0\x80"}',
        b'{"input": "\\ud800"}',
        b"\xff" * 1000,
        b"\x00",
        b"",
        b"null",
        b"[]",
        b"1e999999",
        b'{"input": ' + b"9" * 100_000 + b"}",
        b'{"model": {}}',
    ],
    ids=lambda body: repr(body[:24]),
)
def test_no_body_is_a_mistake_of_ours(address: ServerAddress, target: Target, body: bytes) -> None:
    """What is no JSON, no text or nested without end is a 400 in the shape of every error of that API."""
    status, answer = fetch(address, "POST", target.path, body)
    assert status == 400
    is_anthropics = target.path.startswith("/v1/messages")
    assert set(answer["error"]) == {"message", "type"} | (set() if is_anthropics else {"code", "param"})


def _deep(levels: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


LOOP = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
SCHEMAS = {
    "deep": _deep(40),
    "too deep": _deep(400),
    "loop": LOOP,
    "foreign": {"$ref": "https://evil.example/schema.json"},
    "file": {"$ref": "file:///etc/passwd"},
    "wide": {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(20_000)}},
    "choices": {"enum": ["x" * 50] * 15_000},
    "counts": {"type": "array", "minItems": 10**9, "items": {"type": "string", "maxLength": 10**9}},
    "pattern": {"type": "string", "pattern": "(a|a)*" * 200 + "b"},
    "repeats": {"type": "string", "pattern": "((a{1,999}){1,999}){1,999}"},
    "recursive": {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]},
    "any of": {"anyOf": [{"anyOf": [{"type": "string"}] * 100}] * 100},
}


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("use", ["tool", "format"])
def test_no_schema_harms(address: ServerAddress, name: str, use: str) -> None:
    """Deep, huge, endless, pointing elsewhere: refused, or obeyed; the others are served meanwhile."""
    schema = SCHEMAS[name]
    body: dict[str, Any] = {"input": "hi", "max_output_tokens": 8, "store": False}
    if use == "tool":
        body["tools"] = [{"type": "function", "name": "f", "parameters": schema, "strict": True}]
        body["tool_choice"] = "required"
    else:
        body["text"] = {"format": {"type": "json_schema", "name": "f", "schema": schema}}
    status, answer = fetch(address, "POST", "/v1/responses", body)
    assert status in (200, 400), answer
    if status == 400:
        assert answer["error"]["code"] in (
            "invalid_value",
            "invalid_request_error",
            "context_length_exceeded",
        )


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"metadata": {"k" * 65: "v"}}, 400),
        ({"metadata": {"k": "v" * 513}}, 400),
        ({"metadata": {str(n): "v" for n in range(17)}}, 400),
        ({"metadata": {str(n): "v" * 500 for n in range(5000)}}, 413),
        ({"tools": [{"type": "function", "name": f"f{n}"} for n in range(129)]}, 400),
        ({"tools": [{"type": "function", "name": "f", "parameters": {"x": [[]] * 1_000_000}}]}, 413),
        ({"tools": [{"type": "function", "name": "f", "parameters": {"x": [[]] * 150_000}}]}, 400),
        ({"client_metadata": {str(n): n for n in range(200_000)}}, 413),
        ({"include": ["x"] * 500_000}, 413),
        ({"stop": ["x"] * 17}, 400),
        ({"stop": ""}, 400),
        ({"input": [{"role": "user", "content": "x"}] * 10_001}, 400),
        ({"input": [{"type": "function_call", "name": "f", "arguments": [0] * 200_000}]}, 400),
        (
            {"input": [{"type": "additional_tools", "tools": [{"type": "custom", "name": "c"}] * 128}] * 9},
            400,
        ),
        ({"input": "x" * 8_000_000}, 400),
        ({"instructions": "x" * 8_000_000}, 400),
        ({"generate": False, "candidates": ["x" * 30_000] * 256}, 400),
        ({"prediction": {"type": "content", "content": "x" * 8_000_000}}, 200),
        ({"logit_bias": {"999999": 1}}, 400),
        ({"seed": 1 << 70}, 400),
    ],
    ids=lambda given: str(given)[:40],
)
def test_too_much_is_refused(address: ServerAddress, fields: dict[str, Any], status: int) -> None:
    """By name, before millions of small things are made of it."""
    answered, answer = fetch(address, "POST", "/v1/responses", {"input": "hi", "store": False} | fields)
    assert answered == status, answer


def test_what_is_far_too_large_is_cut_off(address: ServerAddress) -> None:
    """By its length if it says one; by counting if it does not."""
    assert fetch(address, "POST", "/v1/responses", Content_Length=str(1 << 40))[0] == 413
    head = post(address, b"", Transfer_Encoding="chunked").replace(b"Content-Length: 0\r\n", b"")
    chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    with socket.create_connection(("127.0.0.1", address.port), timeout=HANG_S) as connection:
        connection.sendall(head)
        with contextlib.suppress(OSError):
            for _ in range(MAX_BODY_BYTES // 0x100000 + 2):
                connection.sendall(chunk)
        assert b" 413 " in connection.recv(65536)


def test_floods_of_headers_are_refused(address: ServerAddress) -> None:
    """Long ones, many ones, and those without an end."""
    for flood in (f"X: {'y' * 200_000}\r\n", "X: y\r\n" * 30_000, "X" * 300_000):
        head = f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{address.port}\r\n{flood}\r\n"
        with contextlib.suppress(ConnectionError):  # closed while we still wrote
            assert raw_status(address, head.encode()) in (400, 431)


def test_dawdlers_hold_up_nobody(address: ServerAddress) -> None:
    """Hundreds of requests that never end: heads, bodies, upgrades. The others are answered meanwhile."""
    begun = post(address, b"x" * 1000)[:-500]
    upgrade = (
        f"GET /v1/responses HTTP/1.1\r\nHost: 127.0.0.1:{address.port}\r\nUpgrade: websocket\r\n".encode()
    )
    with contextlib.ExitStack() as stack:
        for number in range(300):
            connection = socket.create_connection(("127.0.0.1", address.port), timeout=HANG_S)
            stack.callback(connection.close)
            connection.sendall((begun, b"GET /hea", upgrade, b"")[number % 4])
        for _ in range(5):
            assert fetch(address, "POST", "/v1/responses", {"input": "hi", "store": False})[0] == 200
