"""The socket's reader: it waits for nothing that may take long, and what it reads stays in order."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.server.inside import Inside, served_here, until
from tests.server.serving import script
from tests.server.talking import check_numbers, narrow_socket, talking
from vivace.config import Settings
from vivace.protocol.connection.messages import Message, parse_message
from vivace.server.backends.native.turn import NativeTurn
from vivace.server.transport import parsing, protocols, websocket

LARGE = "x" * (parsing.LARGE_BYTES + 1)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Inside]:
    folder = tmp_path_factory.mktemp("reader")
    replies = {"brief": "Fine.", "": "x" * 100_000}
    model = script(folder, replies=replies, step_ms=0.2, context_tokens=1 << 21, pass_tokens=1 << 20)
    settings = Settings(
        cache_dir=folder / "cache", state_dir=folder, port=0, threads=1, model=model, allow_scripted=True
    )
    async with served_here(settings, send_buffer_bytes=4096) as inside:
        yield inside


@pytest_asyncio.fixture(loop_scope="module")
async def inside(shared: Inside) -> AsyncIterator[Inside]:
    yield shared
    await shared.calm()


def turn_in(inside: Inside, lane: str) -> NativeTurn | None:
    turns = (turn for turn in inside.native._turns if turn.request.stream_id == lane)
    return next((turn for turn in turns if turn.submitted), None)


class HeldParser:
    """Parses as the server does, but large messages wait until they are let go."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.threads: list[threading.Thread] = []

    def parse(self, text: str) -> Message:
        if len(text) > parsing.LARGE_BYTES:
            self.threads.append(threading.current_thread())
            assert self.go_on.wait(60)
        return parse_message(text)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldParser]:
    parser = HeldParser()
    monkeypatch.setattr(parsing, "parse_message", parser.parse)
    yield parser
    parser.go_on.set()


async def test_a_cancel_is_obeyed_while_another_lane_waits_for_the_client(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client reads nothing, and an answer in one lane waits for that: a cancel in another does not."""
    monkeypatch.setattr(protocols, "BLOCKED_S", 120.0)
    options = {"sock": narrow_socket(inside.address), "max_queue": 1, "close_timeout": 0.2}
    async with talking(inside.address, **options) as talker:
        await talker.create(input="go", stream_id="a")
        await talker.create(input="go", stream_id="b")
        slow = await until(lambda: turn_in(inside, "a"))
        other = await until(lambda: turn_in(inside, "b"))
        session = next(iter(inside.sockets._open))
        await until(lambda: {"a", "b"} <= session._order.busy.keys())
        await talker.say("response.interrupt", response_id=slow.id)
        await talker.say("response.cancel", response_id=other.id)
        await until(lambda: other.interrupted, 20)
        talker.connection.transport.abort()


async def test_a_cancel_is_obeyed_while_another_lane_waits_for_the_store(inside: Inside) -> None:
    """A response is being written down, and the next answer in its lane waits for that: a cancel does not."""
    async with talking(inside.address) as talker:
        hearing = asyncio.create_task(talker.until(lambda event: event["type"] == "error"))
        await talker.create(input="go", stream_id="b")
        other = await until(lambda: turn_in(inside, "b"))
        inside.store.gate.clear()
        await talker.create(input="brief", stream_id="a")
        await inside.store.knocking.wait()
        await talker.create(input=5, stream_id="a")
        await talker.say("response.cancel", response_id=other.id)
        await until(lambda: other.interrupted, 20)
        inside.store.gate.set()
        await hearing
        kinds = [event["type"] for event in talker.heard if event.get("stream_id") == "a"]
        assert kinds[-2:] == ["response.completed", "error"]


async def test_who_answers_nothing_is_read_no_further(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers that a client does not take are limited in number; beyond that it is not read from."""
    monkeypatch.setattr(protocols, "BLOCKED_S", 120.0)
    monkeypatch.setattr(websocket, "MAX_UNSENT", 8)
    options = {"sock": narrow_socket(inside.address), "max_queue": 1, "close_timeout": 0.2}
    async with talking(inside.address, **options) as talker:
        session = await until(lambda: next(iter(inside.sockets._open), None))

        async def flood() -> None:
            while True:
                await talker.say("rubbish", padding="x" * 1000)

        flooding = asyncio.create_task(flood())
        await until(lambda: len(session._unsent) == 8)
        await until(lambda: talker.connection.transport.get_write_buffer_size() > 0)
        assert len(session._unsent) == 8
        flooding.cancel()
        await asyncio.wait([flooding])
        talker.connection.transport.abort()


async def test_a_large_message_is_parsed_beside_the_loop(inside: Inside, held: HeldParser) -> None:
    """Another lane's cancel and another client are served meanwhile."""
    async with talking(inside.address) as talker, talking(inside.address) as neighbour:
        await talker.create(input="go", stream_id="b")
        other = await until(lambda: turn_in(inside, "b"))
        await talker.create(input="brief" + LARGE, stream_id="a")
        await until(lambda: held.threads)
        assert held.threads[0] is not threading.main_thread()
        await talker.say("response.cancel", response_id=other.id)
        await until(lambda: other.interrupted, 20)
        assert (await neighbour.complete(input="brief"))["status"] == "completed"
        held.go_on.set()
        await talker.until(lambda event: event["type"] == "response.completed")
        check_numbers(talker.heard)


async def test_requests_behind_a_large_one_keep_their_order(inside: Inside, held: HeldParser) -> None:
    """A small request, and one that is refused, are not handled before the large one that came first."""
    async with talking(inside.address) as talker:
        await talker.create(input="brief" + LARGE, stream_id="a", metadata={"n": "1"})
        await talker.create(input=5, stream_id="a")
        await talker.create(input="brief", stream_id="a", metadata={"n": "2"})
        await until(lambda: held.threads)
        held.go_on.set()
        kinds = []
        while kinds.count("response.completed") < 2:
            event = await talker.hear()
            kinds.append(event["type"] if "response" not in event else event["response"]["metadata"]["n"])
            if event["type"] == "response.completed":
                kinds.append(event["type"])
        told = [kind for kind in kinds if kind in ("1", "error", "2")]
        assert told == sorted(told, key=["1", "error", "2"].index)
        assert kinds.count("error") == 1


async def test_a_client_that_leaves_during_parsing_begins_nothing(inside: Inside, held: HeldParser) -> None:
    """What it asked for is parsed for nobody, and no turn begins."""
    async with talking(inside.address) as talker:
        await talker.create(input="brief" + LARGE)
        await until(lambda: held.threads)
        talker.connection.transport.abort()
        await until(lambda: not inside.sockets._open)
        held.go_on.set()
    assert not inside.native._turns
