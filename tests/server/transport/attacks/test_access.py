"""Attacks on the doors: no route without the token, at a foreign host, for a foreign page, or by a detour."""

import pytest

from tests.server.transport.attacks.attacking import (
    POSTS,
    READING,
    TARGETS,
    Target,
    ids,
    raw,
    raw_status,
    request_status,
)
from vivace.client.warm import ServerAddress


def test_the_routes_are_those_of_the_app() -> None:
    """The list is not empty, has both kinds, and what everyone needs."""
    known = {"/v1/responses", "/v1/chat/completions", "/v1/completions", "/infill", "/v1/models", "/metrics"}
    assert known <= {t.path for t in TARGETS}
    assert {"GET", "POST", "DELETE", "UPGRADE"} <= {target.method for target in TARGETS}


@pytest.mark.parametrize("target", TARGETS, ids=ids)
def test_no_route_without_the_token(address: ServerAddress, target: Target) -> None:
    """None, a wrong one, another scheme, twice, in the query: 401. Health and the app are open."""
    token = address.token
    wrong = [
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        f"Basic {token}",
        token,
        f"Bearer {token}x",
        "Bearer \xff",
    ]
    wrong += [f"Bearer {token[:-1]}", f"bearer\t{token}", "Bearer vv_" + "x" * 43]
    expected = {200, 405} if target.is_open else {401}
    expected |= {403} if target.path == "/enter" else set()  # which wants a ticket
    for value in wrong:
        assert request_status(address, target, Authorization=value) in expected, value
    asked = Target(target.method, f"{target.path}?token={token}&api_key={token}&access_token={token}")
    assert request_status(address, asked, Authorization="") in expected
    twice = f"Bearer {token}\r\nAuthorization: Bearer wrong"
    assert request_status(address, target, Authorization=twice) in expected | {400}
    for value in ("wrong", f"Bearer {token}", f"{token}x", "", f"{token}\r\nx-api-key: wrong"):
        assert request_status(address, target, Authorization="", x_api_key=value) in expected | {400}, value
    assert request_status(address, target, Authorization="Bearer wrong", x_api_key=token) in expected


@pytest.mark.parametrize("target", TARGETS, ids=ids)
def test_no_route_at_a_foreign_host(address: ServerAddress, target: Target) -> None:
    """A name that somebody made point to loopback is refused everywhere, with the token and without."""
    port = address.port
    foreign = ["evil.example", "127.evil.example", "localhost.evil.example", "127.0.0.1.evil.example"]
    foreign += ["127.0.0.1@evil.example", "evil.example#127.0.0.1", "0.0.0.0", "127.1", "2130706433", "[::]"]
    for host in (*(f"{name}:{port}" for name in foreign), "127.0.0.1", "localhost", f"127.0.0.1:{port + 1}"):
        for token in (f"Bearer {address.token}", ""):
            origin = f"http://{host}"
            assert request_status(address, target, Host=host, Authorization=token) in (400, 421), host
            assert request_status(address, target, Host=host, Origin=origin, Authorization=token) in (
                400,
                421,
            ), host


@pytest.mark.parametrize("target", TARGETS, ids=ids)
def test_no_route_for_a_foreign_page(address: ServerAddress, target: Target) -> None:
    """A browser tells where a page came from; only our own are let in."""
    port = address.port
    foreign = [
        "http://evil.example",
        f"http://127.evil.example:{port}",
        f"http://localhost.evil.example:{port}",
    ]
    foreign += [
        "null",
        f"https://127.0.0.1:{port}",
        "http://127.0.0.1",
        f"http://127.0.0.1:{port + 1}",
        "file://",
    ]
    foreign += [f"http://127.0.0.1:{port}.evil.example", f"http://127.0.0.1:{port}@evil.example", "*"]
    for origin in foreign:
        assert request_status(address, target, Origin=origin) == 403, origin
        mine = f"http://127.0.0.1:{port}\r\nOrigin: {origin}"
        assert request_status(address, target, Origin=mine) in (400, 403), origin


@pytest.mark.parametrize("target", TARGETS, ids=ids)
def test_two_hosts_are_none(address: ServerAddress, target: Target) -> None:
    """Which one would count? Neither; and a request without any is refused, too."""
    ours = f"127.0.0.1:{address.port}"
    for host in (
        f"{ours}\r\nHost: evil.example",
        f"evil.example\r\nHost: {ours}",
        f"{ours}\r\nHost: {ours}",
        "",
    ):
        assert request_status(address, target, Host=host) in (400, 421)


@pytest.mark.parametrize("target", POSTS, ids=ids)
def test_no_form_of_another_page_reaches_anything(address: ServerAddress, target: Target) -> None:
    """What a page can send without asking (plain text, forms) is refused: by the token, then by its type."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        assert request_status(address, target, Authorization="", Content_Type=kind) == 401
        assert request_status(address, target, Content_Type=kind, Origin="http://evil.example") == 403
        assert request_status(address, target, Content_Type=kind) == (415 if target in READING else 404)


@pytest.mark.parametrize("target", TARGETS, ids=ids)
def test_no_page_is_told_that_it_may(address: ServerAddress, target: Target) -> None:
    """A preflight is answered without a single CORS header."""
    asking = f"http://127.0.0.1:{address.port}\r\nAccess-Control-Request-Method: POST"
    for origin in (asking, "http://evil.example\r\nAccess-Control-Request-Method: POST"):
        head = f"OPTIONS {target.path} HTTP/1.1\r\nHost: 127.0.0.1:{address.port}\r\nOrigin: {origin}\r\n\r\n"
        answer = raw(address, head.encode())
        assert b"access-control" not in answer.lower()
        assert int(answer.split(b" ", 2)[1]) in (401, 403, 405)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/../healthz",
        "/v1/%2e%2e/healthz",
        "/healthz/../v1/models",
        "/healthz/..%2fv1/models",
        "/healthz/",
        "//healthz",
        "/healthz;/v1/models",
        "/healthz%00",
        "/HEALTHZ",
        "/./healthz",
        "/%2e/healthz",
        "/v1/models#/healthz",
        "http://evil.example/healthz",
        "http://evil.example/v1/models",
        "*",
        "/.",
        "/app",
        "/enter/",
    ],
)
def test_no_detour_leads_around_the_token(address: ServerAddress, path: str) -> None:
    """Only the very paths of health and of the app are open."""
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{address.port}\r\n\r\n"
    assert raw_status(address, head.encode()) in (400, 401)
