"""The WebSocket of OpenAI's SDK, without asyncio and with it: turns, lanes, steers, warm-ups, refusals."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI
from openai.resources.responses.responses import ResponsesConnection
from openai.types.responses import ResponsesServerEvent

from tests.server.serving import LONG, script, status_of, until
from vivace.client.warm import ServerAddress
from vivace.config import Settings

# How the SDK opens its socket without asyncio is old for websockets 17; that is between those two.
pytestmark = pytest.mark.filterwarnings("ignore:connect.. must be used as a context:DeprecationWarning")
ENDS = ("response.completed", "response.incomplete", "response.failed")


@pytest.fixture
def socket(address: ServerAddress) -> Iterator[ResponsesConnection]:
    with (
        OpenAI(base_url=address.url, api_key=address.token, max_retries=0) as client,
        client.responses.connect() as connection,
    ):
        yield connection


@pytest.fixture
def slow(tmp_path: Path) -> str:
    return script(tmp_path, replies={"turn around": "Turned.", "": LONG}, step_ms=10)


def heard_until(socket: ResponsesConnection, *kinds: str) -> list[ResponsesServerEvent]:
    """Events up to the first of one of these kinds."""
    events = []
    for event in socket:
        events.append(event)
        if event.type in kinds:
            break
    return events


def text_of(events: list[Any]) -> str:
    return "".join(event.delta for event in events if event.type == "response.output_text.delta")


def test_turns_on_one_socket(socket: ResponsesConnection) -> None:
    """The second goes on from the first, which is not stored and known here only."""
    socket.response.create(input="hi", store=False)
    first = heard_until(socket, *ENDS)[-1].response
    socket.response.create(input="long", store=False, previous_response_id=first.id)
    events = heard_until(socket, *ENDS)
    assert text_of(events) == events[-1].response.output_text == LONG
    assert events[-1].response.usage.input_tokens_details.cached_tokens >= first.usage.total_tokens - 1


def test_a_steer(socket: ResponsesConnection, slow: str) -> None:
    """Accepted, incomplete as `steered`, and at once a successor that goes on from both."""
    socket.response.create(model=slow, input="go")
    parent = heard_until(socket, "response.output_text.delta")[0].response.id
    socket.response.steer(previous_response_id=parent, input="turn around")
    events = heard_until(socket, *ENDS)
    assert "response.steer.accepted" in [event.type for event in events]
    assert events[-1].response.incomplete_details.reason == "steered"
    after = heard_until(socket, *ENDS)
    assert after[0].type == "response.created"
    assert after[0].response.previous_response_id == parent
    assert after[-1].response.output_text == "Turned."


def test_a_steer_that_comes_too_late(socket: ResponsesConnection) -> None:
    """The input comes back in `response.steer.failed`, and the socket goes on."""
    socket.response.create(input="hi")
    over = heard_until(socket, *ENDS)[-1].response
    socket.response.steer(previous_response_id=over.id, input="turn around")
    (failed,) = heard_until(socket, "response.steer.failed")
    assert failed.error.code == "response_already_completed"
    assert failed.steer.input == "turn around"
    socket.response.create(input="hi")
    assert heard_until(socket, *ENDS)[-1].response.output_text == "Hello there."


def test_lanes(socket: ResponsesConnection, slow: str) -> None:
    """Two lanes run at the same time, and each event says whose it is."""
    for lane in ("left", "right"):
        socket.response.create(model=slow, input="go", stream_id=lane, max_output_tokens=30)
    events = heard_until(socket, *ENDS) + heard_until(socket, *ENDS)
    for lane in ("left", "right"):
        mine = [event for event in events if event.stream_id == lane]
        assert [event.sequence_number for event in mine] == list(range(len(mine)))
        assert text_of(mine) == LONG[:30]


def test_a_warm_up(socket: ResponsesConnection) -> None:
    """`generate: false` says nothing and pays for the turn after it."""
    socket.response.create(input="Read this first. " * 20, generate=False)
    warm = heard_until(socket, *ENDS)[-1].response
    assert warm.output == []
    socket.response.create(input="hi", previous_response_id=warm.id)
    done = heard_until(socket, *ENDS)[-1].response
    assert done.usage.input_tokens_details.cached_tokens >= warm.usage.input_tokens


def test_a_refusal_is_an_event_and_the_socket_stays(socket: ResponsesConnection) -> None:
    """With its code, the field and the status; the next request is answered."""
    socket.response.create(input="hi", previous_response_id="resp_none")
    (refused,) = heard_until(socket, "error")
    assert (refused.error.code, refused.status) == ("previous_response_not_found", 400)
    socket.response.create(input="hi", temperature=7)
    (refused,) = heard_until(socket, "error")
    assert refused.error.param == "temperature"
    socket.response.create(input="hi")
    assert heard_until(socket, *ENDS)[-1].response.output_text == "Hello there."


def test_closing_the_socket_ends_its_turn(address: ServerAddress, served: Settings, slow: str) -> None:
    """A client that leaves in the middle takes its turn with it."""
    with OpenAI(base_url=address.url, api_key=address.token) as client:
        with client.responses.connect() as connection:
            connection.response.create(model=slow, input="go")
            heard_until(connection, "response.output_text.delta")
        until(lambda: status_of(served).engine.turns == 0)


async def test_handlers_hear_events(address: ServerAddress) -> None:
    """The SDK's `on` and `dispatch_events` work: each handler hears its own kind, in order."""
    said: list[str] = []
    async with (
        AsyncOpenAI(base_url=address.url, api_key=address.token) as client,
        client.responses.connect() as connection,
    ):

        @connection.on("response.output_text.delta")  # type: ignore[operator]
        def hear(event: Any) -> None:
            said.append(event.delta)

        @connection.on("response.completed")  # type: ignore[operator]
        async def leave(_: Any) -> None:
            await connection.close()

        await connection.response.create(input="hi")
        await connection.dispatch_events()
    assert "".join(said) == "Hello there."


def test_many_sockets_at_once(address: ServerAddress) -> None:
    """Threads with a socket each are answered each for itself."""
    texts: dict[str, str] = {}

    def ask(words: str) -> None:
        with (
            OpenAI(base_url=address.url, api_key=address.token) as client,
            client.responses.connect() as connection,
        ):
            connection.response.create(input=words)
            texts[words] = heard_until(connection, *ENDS)[-1].response.output_text

    threads = [threading.Thread(target=ask, args=(words,)) for words in ("hi", "long", "emoji")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {"hi": "Hello there.", "long": LONG, "emoji": "aé€😀z"}
