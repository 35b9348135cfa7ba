"""Connections to upstreams: limits of time, retries, keeping them, keys, and what comes between us."""

import asyncio
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.server.backends.upstream.fake import Asker, Call, Fake, Script, chunk, deaf, says, until

KEY = "sk-hush-0123456789abcdef"
HELLO = b'data: {"choices":[{"delta":{"content":"Hel"}}]}\n\n'


@pytest.fixture
async def box(fake: Fake) -> AsyncIterator[Asker]:
    async with Asker(fake, api="chat", api_key=KEY) as asker:
        yield asker


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
    monkeypatch.setattr("vivace.server.backends.upstream.client.USAGE_S", 0.05)

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
        fake.play(lambda call, head=head: call.raw(head + b"\r\n\r\n" + body))  # type: ignore[misc]
        assert (await box.ask()).text == "Hel"


async def test_a_connection_is_used_again(fake: Fake, box: Asker) -> None:
    """Turns that ended well share one, also if the last bytes of an answer come after its end."""
    is_over = threading.Event()

    def late(call: Call) -> None:
        call.head()
        call.event(chunk({"content": "x"}))
        call.event("[DONE]")
        assert is_over.wait(30)
        call.end()

    fake.play(late, says("x"))
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
