"""Upstreams that are not there, refuse, break off, hang or talk nonsense: one end, with one code."""

import asyncio
import email.utils
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from upstream_fake import Asker, Call, Fake, Script, chat, chunk, deaf, says, until

KEY = "sk-hush-0123456789abcdef"
HELLO = b'data: {"choices":[{"delta":{"content":"Hel"}}]}\n\n'


@pytest.fixture
def fake() -> Iterator[Fake]:
    fake = Fake()
    yield fake
    fake.close()


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
        (sends(), "the end of its answer"),
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


async def test_an_upstream_that_is_not_there_says_so() -> None:
    """Refused: its name, its address, what to do."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    async with Asker(port) as box:
        broken = (await box.ask()).broken
    assert broken.code == "upstream_unreachable"
    assert f"box (127.0.0.1:{port}) cannot be reached" in broken.message
    assert "Is it running?" in broken.message


async def test_a_host_that_nobody_knows_is_not_reached() -> None:
    """A name that does not resolve is an error like any other."""
    async with Asker(0, url="http://nobody.invalid:8000/v1") as box:
        assert (await box.ask()).broken.code == "upstream_unreachable"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse when the queue is full")
async def test_a_connection_that_is_never_taken_times_out() -> None:
    """The time to connect has its own limit."""
    with deaf() as port:
        async with Asker(port, connect_s=0.1) as box:
            broken = (await box.ask()).broken
    assert broken.code == "upstream_timeout"
    assert "take a connection within 0.1 s" in broken.message


def nothing(call: Call) -> None:
    call.hang()


def only_head(call: Call) -> None:
    call.head()
    call.hang()


def hello_and_nothing(call: Call) -> None:
    call.head()
    call.send(HELLO)
    call.hang()


def half_a_refusal(call: Call) -> None:
    call.head(500)
    call.send(b"boo")
    call.hang()


@pytest.mark.parametrize(
    ("script", "limits", "text", "said"),
    [
        (nothing, {"first_byte_s": 0.1}, "", "answer within 0.1 s"),
        (only_head, {"first_byte_s": 1}, "", "begin its answer within 1 s"),
        (hello_and_nothing, {"idle_s": 0.1}, "Hel", "go on with its answer within 0.1 s"),
    ],
)
async def test_silence_has_a_limit(
    fake: Fake, script: Script, limits: dict[str, float], text: str, said: str
) -> None:
    """Before the first word and between two: then the connection is closed, and nobody is asked again."""
    fake.play(script)
    async with Asker(fake, api="chat", **limits) as box:
        told = await box.ask()
    assert (told.text, told.broken.code) == (text, "upstream_timeout")
    assert said in told.broken.message
    assert len(fake.calls) == 1
    assert fake.calls[0].gone.wait(20)


async def test_comments_are_a_sign_of_life(fake: Fake) -> None:
    """A server that says that it still thinks is waited for."""

    def script(call: Call) -> None:
        call.head()
        call.send(HELLO)
        for _ in range(8):
            time.sleep(0.25)  # all of them together are longer than the limit, each is far shorter
            call.send(b": still here\n\n")
        call.event("[DONE]")
        call.end()

    fake.play(script)
    async with Asker(fake, api="chat", idle_s=1.5) as box:
        assert (await box.ask()).ended.reason == "stop"


async def test_usage_that_hangs_does_not_break_the_answer(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the finish reason all was said: it ends well, with an estimate."""
    monkeypatch.setattr("vivace.server.backends.upstream_peer.USAGE_S", 0.05)

    def script(call: Call) -> None:
        call.head()
        call.event(chunk({"content": "x"}, "stop"))
        call.hang()

    fake.play(script)
    async with Asker(fake, api="chat") as box:
        ended = (await box.ask()).ended
    assert (ended.reason, ended.usage.output_tokens) == ("stop", 1)


async def test_a_kept_connection_that_died_is_made_again(fake: Fake, box: Asker) -> None:
    """The server closed it between two turns, at the worst moment: the request is sent again, once."""

    def closes_after(call: Call) -> None:
        says("one")(call)
        call.is_kept = False

    def drops(call: Call) -> None:
        assert call.body

    fake.play(says("one"), drops, says("two"))
    assert (await box.ask()).text == "one"
    await box.rested()
    assert (await box.ask()).text == "two"
    assert fake.connections == 2
    await box.rested()
    fake.play(closes_after, says("three"))
    assert (await box.ask()).text == "one"
    await box.rested()
    assert (await box.ask()).text == "three"


async def test_half_a_head_is_a_byte_of_an_answer(fake: Fake, box: Asker) -> None:
    """Then nobody is asked again, on a kept connection neither."""
    fake.play(says("one"), lambda call: call.raw(b"HTTP/1.1 2"), says("two"))
    assert (await box.ask()).text == "one"
    await box.rested()
    assert (await box.ask()).broken.code == "upstream_error"
    assert len(fake.calls) == 2


@pytest.mark.parametrize("is_later", [False, True])
async def test_what_comes_unasked_is_no_answer(fake: Fake, box: Asker, *, is_later: bool) -> None:
    """A server may say why it will close a connection that nobody uses: that answers nothing."""
    may_grumble = threading.Event()

    def grumbles(call: Call) -> None:
        says("one")(call)
        assert not is_later or may_grumble.wait(30)
        call.raw(b"HTTP/1.1 408 Too Slow\r\nContent-Length: 0\r\n\r\n")
        call.hang()

    fake.play(grumbles, says("two"))
    assert (await box.ask()).text == "one"
    await box.rested()
    if is_later:
        may_grumble.set()
        (kept,) = box.backend._peers["box"].link._idle
        await until(lambda: kept._reader.unread_bytes)
    assert (await box.ask()).text == "two"


async def test_a_word_before_the_answer_is_passed_over(fake: Fake, box: Asker) -> None:
    """100 and its like are no answers."""

    def script(call: Call) -> None:
        call.raw(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")
        says("x")(call)

    fake.play(script)
    assert (await box.ask()).text == "x"


async def test_servers_without_chunks_are_understood(fake: Fake, box: Asker) -> None:
    """A body with a length, or one that ends with its connection."""
    body = HELLO + b"data: [DONE]\n\n"
    for head in (b"HTTP/1.0 200 OK", b"HTTP/1.1 200 OK\r\nContent-Length: %d" % len(body)):
        fake.play(lambda call, head=head: call.raw(head + b"\r\n\r\n" + body))
        assert (await box.ask()).text == "Hel"


async def test_a_connection_is_used_again(fake: Fake, box: Asker) -> None:
    """Turns that ended well share one, also if the last bytes of an answer come after its end."""
    is_over = threading.Event()

    def late(call: Call) -> None:
        call.head()
        call.event("[DONE]")
        assert is_over.wait(30)
        call.end()

    fake.play(says("x"), late, says("x"))
    for _ in range(4):
        await box.ask()
        is_over.set()
        await box.rested()
    assert fake.connections == 1


async def test_a_connection_that_is_refused_is_tried_once_more(
    fake: Fake, box: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was sent yet."""
    loop, tries = asyncio.get_running_loop(), []
    connect = loop.create_connection

    async def flaky(*args: Any, **options: Any) -> Any:
        tries.append(args)
        if len(tries) == 1:
            raise ConnectionRefusedError(111, "refused")
        return await connect(*args, **options)

    monkeypatch.setattr(loop, "create_connection", flaky)
    fake.play(says("x"))
    assert (await box.ask()).text == "x"
    assert len(tries) == 2


async def test_a_new_connection_that_dies_is_no_reason_to_ask_again(fake: Fake, box: Asker) -> None:
    """It took the request: it may have done something already."""
    fake.play(lambda _: None)
    assert (await box.ask()).broken.code == "upstream_error"
    assert len(fake.calls) == 1


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


async def test_a_key_that_is_not_set_is_an_error(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the variable; nothing is sent without its key."""
    monkeypatch.delenv("BOX_KEY", raising=False)
    async with Asker(fake, key_env="BOX_KEY") as box:
        broken = (await box.ask()).broken
        assert broken.code == "upstream_auth"
        assert "BOX_KEY" in broken.message
        assert not fake.calls
        monkeypatch.setenv("BOX_KEY", KEY)
        fake.play(says("x"))
        await box.ask()
    assert fake.calls[0].headers["authorization"] == f"Bearer {KEY}"


async def test_no_proxy_comes_between_us_and_this_machine(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the environment says."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    fake.play(says("x"))
    async with Asker(fake, api="chat") as box:
        assert (await box.ask()).text == "x"


async def test_a_server_gets_no_hold_on_us(fake: Fake, box: Asker) -> None:
    """No compression, no redirects with our key, no cookies."""
    fake.play(
        lambda call: call.whole(307, b"", location=f"{fake.url}/x", set_cookie="a=b; Path=/"), says("x")
    )
    assert (await box.ask()).broken.code == "upstream_error"
    assert (await box.ask()).text == "x"
    assert [call.path for call in fake.calls] == ["/v1/chat/completions"] * 2
    assert fake.calls[0].headers["accept-encoding"] == "identity"
    assert "cookie" not in fake.calls[1].headers


async def test_an_endless_answer_is_ended(fake: Fake, box: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that never stops does not fill our memory: text, calls, and calls without a name."""
    monkeypatch.setattr("vivace.server.backends.upstream_teller.MAX_ANSWER_CHARS", 10_000)
    piece = {"tool_calls": [{"index": 0, "function": {"arguments": "x" * 100}}]}
    for delta in ({"content": "x" * 100}, {"reasoning": "x" * 100}, piece):
        fake.play(_for_ever(lambda _, delta=delta: delta))
        assert (await box.ask()).broken.code == "upstream_error"
    for named in ({"name": "f"}, {}):
        fake.play(_for_ever(lambda n, named=named: {"tool_calls": [{"index": n, "function": named}]}))
        assert (await box.ask()).broken.code == "upstream_error"


def _for_ever(delta: Callable[[int], Any]) -> Script:
    def script(call: Call) -> None:
        call.head()
        for number in range(1000):
            call.send(f"data: {json.dumps(chunk(delta(number)))}\n\n".encode())
        call.hang()

    return script
