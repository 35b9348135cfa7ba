"""Upstreams that are not there, refuse, break off, hang or talk nonsense: one end, with one code."""

import email.utils
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.server.backends.upstream.fake import Asker, Call, Fake, Script, chat, chunk, says

KEY = "sk-hush-0123456789abcdef"
HELLO = b'data: {"choices":[{"delta":{"content":"Hel"}}]}\n\n'


@pytest.fixture
async def box(fake: Fake) -> AsyncIterator[Asker]:
    async with Asker(fake, api="chat", api_key=KEY) as asker:
        yield asker


def sends(*chunks: bytes, is_ended: bool = True) -> Script:
    """These bytes as the body; then the end of the body, or just of the connection."""

    def script(call: Call) -> None:
        call.head()
        for data in chunks:
            call.send(data)
        if is_ended:
            call.end()

    return script


def refuses(status: int, body: Any, **headers: str) -> Script:
    return lambda call: call.whole(status, body, **headers)


def error(message: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message} | fields}


@pytest.mark.parametrize(
    ("status", "body", "code", "said"),
    [
        (401, error(f"Incorrect API key provided: {KEY}"), "upstream_auth", "api_key"),
        (403, error(f"Not for you, {KEY}"), "upstream_auth", "Not for you, [key]"),
        (404, error("The model `m` does not exist", code="model_not_found"), "model_not_found", "'m'"),
        (404, b"404 page not found", "model_not_found", "page not found"),
        (400, error("x", code="context_length_exceeded"), "context_length_exceeded", "box"),
        (
            400,
            error("This model's maximum context length is 10 tokens."),
            "context_length_exceeded",
            "10 tokens",
        ),
        (
            400,
            error("x exceeds the available context size", type="exceed_context_size_error"),
            "context_length_exceeded",
            "",
        ),
        (400, {"object": "error", "message": "bad tools"}, "upstream_refused", "bad tools."),
        (422, {"detail": [{"loc": ["body"], "msg": "extra"}]}, "upstream_refused", "extra"),
        (429, error("You are out of money", code="insufficient_quota"), "insufficient_quota", "money"),
        (500, error("boom"), "upstream_error", "status 500. boom."),
        (502, b"<html><h1>Bad gateway</h1></html>", "upstream_error", "status 502"),
        (503, [{"error": {"message": "listed"}}], "upstream_error", "listed"),
        (529, {"error": "just text"}, "upstream_error", "just text"),
        (500, b"\xff\xfe\x00" * 100_000, "upstream_error", "status 500"),
        (302, b"", "upstream_error", "redirect"),
        (204, b"", "upstream_refused", "204"),
    ],
)
async def test_a_refusal_has_one_code(
    fake: Fake, box: Asker, status: int, body: Any, code: str, said: str
) -> None:
    """Each status and error body becomes the code that clients act on, with whose words they are."""
    fake.play(refuses(status, body))
    broken = (await box.ask()).broken
    assert broken.code == code
    assert said in broken.message
    assert broken.message.startswith(f"Upstream box (127.0.0.1:{fake.port})")
    assert len(broken.message) < 600
    assert broken.message.isprintable()
    assert KEY not in broken.message
    assert len(fake.calls) == 1


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"retry_after": "7"}, "Please try again in 7s."),
        ({"retry_after": "1.5"}, "Please try again in 1.5s."),
        ({"retry_after_ms": "250"}, "Please try again in 0.25s."),
        ({"retry_after": "-3"}, "Please try again in 0s."),
        ({"retry_after": "Wed, 21 Oct 2015 07:28:00 GMT"}, "Please try again in 0s."),
        ({"retry_after": "nan"}, "Slow down."),
        ({"retry_after": "soon"}, "Slow down."),
        ({}, "Slow down."),
    ],
)
async def test_too_many_requests_say_when_to_try_again(
    fake: Fake, box: Asker, headers: dict[str, str], said: str
) -> None:
    """In the words that clients look for."""
    fake.play(refuses(429, error("Slow down"), **headers))
    broken = (await box.ask()).broken
    assert broken.code == "rate_limit_exceeded"
    assert broken.message.endswith(said)


async def test_a_date_to_try_again_is_counted_from_now(fake: Fake, box: Asker) -> None:
    """As HTTP allows it."""
    fake.play(refuses(429, {}, retry_after=email.utils.formatdate(time.time() + 3600, usegmt=True)))
    seconds = (await box.ask()).broken.message.rsplit(" in ", 1)[1].removesuffix("s.")
    assert 3000 < float(seconds) <= 3600


@pytest.mark.parametrize(
    "script",
    [
        sends(HELLO),  # no end
        sends(HELLO, is_ended=False),  # cut off inside HTTP
        sends(HELLO, b'data: {"choices":[{"del'),  # cut off inside an event
        sends(HELLO, b"data: nonsense\n\n"),
        lambda call: call.raw(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\nzz\r\n" % (len(HELLO), HELLO)
        ),
        sends(HELLO, b"data: " + b"[" * 100_000 + b"\n\n"),
        sends(HELLO, b'data: {"error":{"message":"boom"}}\n\n'),
        sends(HELLO, b'event: error\ndata: {"message":"boom"}\n\n'),
        chat(chunk({"content": "Hel"}), chunk(finish="error")),
    ],
)
async def test_an_answer_that_breaks_off_has_failed(fake: Fake, box: Asker, script: Script) -> None:
    """What was said stays, nothing is repeated, and nobody is asked again."""
    fake.play(script)
    told = await box.ask()
    assert told.text == "Hel"
    assert told.broken.code == "upstream_error"
    assert len(fake.calls) == 1


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (sends(b"<!doctype html><p>Welcome"), "web page"),
        (lambda call: call.whole(200, b"\n\n", "application/json"), "no JSON"),
        (sends(b"Welcome\nto\n\nnothing"), "the end of its answer"),
        (lambda call: call.whole(200, b"{oops"), "no JSON"),
        (lambda call: call.whole(200, {"nothing": "useful"}), "the end of its answer"),
        (lambda call: call.whole(200, error("inside")), "inside"),
        (lambda call: call.head(200, content_encoding="gzip"), "compresses"),
        (lambda call: call.raw(b"SSH-2.0-OpenSSH_9.6\r\n"), "without an answer"),
        (lambda call: call.raw(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 500_000), "without an answer"),
        (lambda _: None, "without an answer"),
    ],
)
async def test_nonsense_is_an_error(fake: Fake, box: Asker, script: Script, said: str) -> None:
    """A web page, no HTTP, no JSON, nothing: said in a sentence, and asked once."""
    fake.play(script)
    broken = (await box.ask()).broken
    assert broken.code == "upstream_error"
    assert said in broken.message
    assert len(fake.calls) == 1


async def test_an_answer_of_no_bytes_is_asked_for_once_more(fake: Fake, box: Asker) -> None:
    """Without streaming, and then no more."""
    fake.play(sends())
    broken = (await box.ask()).broken
    assert (broken.code, "with nothing" in broken.message) == ("upstream_error", True)
    assert [call.body["stream"] for call in fake.calls] == [True, False]


async def test_a_line_that_never_ends_is_not_held(fake: Fake, box: Asker) -> None:
    """64 MiB without a line end: given up long before that."""
    sent: list[int] = []

    def script(call: Call) -> None:
        call.head()
        call.send(HELLO)
        for number in range(64):
            call.send(b"x" * (1 << 20))
            sent.append(number)
        call.hang()

    fake.play(script)
    told = await box.ask()
    assert (told.text, told.broken.code) == ("Hel", "upstream_error")
    assert "does not end" in told.broken.message


async def test_ugly_streams_are_read(fake: Fake, box: Asker) -> None:
    """CRLF, comments, data in several lines, NaN, halves of characters, a byte at a time: all is read."""
    body = (
        b"\xef\xbb\xbf: hello\r\n\r\n"
        b'event: x\r\ndata: {"choices":[{"delta":\r\ndata: {"content":"a\xc3\xa9"}}]}\r\n\r\n'
        b'data:{"choices":[{"delta":{"content":"\xf0\x9f\x98\x80"},"logprobs":NaN}]}\n\n'
        b'data: {"choices":[{"delta":{"content":"\\ud83d|"}}]}\n\n'
        b'data: {"choices":[{"delta":{"content":"\xf0\x9f"}}]}\n\n'
        b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\r\rdata: [DONE]'
    )
    fake.play(sends(*(body[at : at + 1] for at in range(len(body)))))
    told = await box.ask()
    assert told.text == "aé😀\ufffd|\ufffd"
    assert told.ended.reason == "stop"


async def test_the_key_goes_to_the_upstream_and_nowhere_else(
    fake: Fake, box: Asker, caplog: pytest.LogCaptureFixture
) -> None:
    """It is in the header, but in no log at any level and in no outcome, whatever the server does with it."""
    caplog.set_level(logging.DEBUG)
    fake.play(
        says("x"),
        refuses(401, error(f"key {KEY} is bad")),
        refuses(500, f"{'x ' * 2040}{KEY}".encode()),
        sends(f'data: {{"error":{{"message":"{KEY}"}}}}\n\n'.encode()),
    )
    told = [await box.ask() for _ in range(4)]
    assert fake.calls[0].headers["authorization"] == f"Bearer {KEY}"
    shown = caplog.text + repr([one.outcomes for one in told]) + repr(box.backend.__dict__)
    assert KEY not in shown
    assert KEY[:12] not in shown


async def test_an_endless_answer_is_ended(fake: Fake, box: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that never stops does not fill our memory: text, calls, and calls without a name."""
    monkeypatch.setattr("vivace.server.backends.upstream.sequencer.MAX_ANSWER_CHARS", 10_000)
    piece = {"tool_calls": [{"index": 0, "function": {"arguments": "x" * 100}}]}
    for delta in ({"content": "x" * 100}, {"reasoning": "x" * 100}, piece):
        fake.play(_for_ever(lambda _, delta=delta: delta))  # type: ignore[misc]
        assert (await box.ask()).broken.code == "upstream_error"
    for named in ({"name": "f"}, {}):
        fake.play(_for_ever(lambda n, named=named: {"tool_calls": [{"index": n, "function": named}]}))  # type: ignore[misc]
        assert (await box.ask()).broken.code == "upstream_error"


def _for_ever(delta: Callable[[int], Any]) -> Script:
    def script(call: Call) -> None:
        call.head()
        for number in range(1000):
            call.send(f"data: {json.dumps(chunk(delta(number)))}\n\n".encode())
        call.hang()

    return script
