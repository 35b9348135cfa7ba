"""Lanes of our own client on one socket: several turns at once, steered, interrupted, refused, lost."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.server.serving import script, status_of, until, until_ready
from vivace.client.responses import ResponsesClient
from vivace.client.turn import Turn
from vivace.client.typed_ahead import TypedAhead
from vivace.client.warm import ServerAddress, ensure_server
from vivace.config import Settings
from vivace.errors import RequestRefused, ServerGone
from vivace.protocol.shapes.events import (
    AnyEvent,
    OutputItemInterrupted,
    OutputTextDelta,
    Response,
    ResponseCompleted,
    ResponseIncomplete,
    SteerFailed,
)

HANG_S = 60.0  # a hang, not a slow machine


@pytest.fixture
async def client(address: ServerAddress) -> AsyncIterator[ResponsesClient]:
    async with asyncio.timeout(HANG_S), ResponsesClient(address) as client:
        yield client


@pytest.fixture
def slow(tmp_path: Path) -> str:
    """A model that talks for seconds, and turns around when it is told to."""
    return script(tmp_path, replies={"turn": "Turned.", "again": "Again.", "": "x" * 800}, step_ms=5)


async def until_said(turn: Turn, letters: int = 3) -> str:
    """Read until this much was said, and return it."""
    text = ""
    async for event in turn:
        if isinstance(event, OutputTextDelta):
            text += event.delta
            if len(text) >= letters:
                return text
    raise AssertionError(f"it ended after {text!r}")


def cached_tokens(response: Response) -> int:
    assert response.usage is not None
    return response.usage.input_tokens_details.cached_tokens


async def test_two_lanes_interleave(client: ResponsesClient, slow: str) -> None:
    """Turns of two lanes run at the same time on one socket, and each reads its own events only."""
    order: list[str] = []

    async def listen(lane: str) -> list[AnyEvent]:
        events = []
        request = {"model": slow, "input": "go", "max_output_tokens": 40}
        async with client.turn(request, lane=lane) as turn:
            async for event in turn:
                order.append(lane)
                events.append(event)
        return events

    both = await asyncio.gather(listen("a"), listen("b"))
    for lane, events in zip("ab", both, strict=True):
        assert {event.stream_id for event in events} == {lane}
        assert isinstance(events[-1], ResponseIncomplete)
        assert events[-1].response.output_text == "x" * 40
    assert order.index("b") < len(order) - 1 - order[::-1].index("a"), "one after the other"


async def test_turns_of_one_lane_wait_for_each_other(client: ResponsesClient, slow: str) -> None:
    """A lane is first in, first out; a turn that is left while it waits is never sent."""
    first_request = {"model": slow, "input": "go", "max_output_tokens": 20}
    async with client.turn(first_request, lane="a") as first:
        await until_said(first)
        async with client.turn(first_request, lane="a") as left:
            assert left.response_id is None
        async with client.turn({"model": slow, "input": "turn"}, lane="a") as second:
            assert second.response_id is None
            assert (await first.response()).output_text == "x" * 20
            assert (await second.response()).output_text == "Turned."
        assert left.response_id is None


async def test_a_lane_that_nobody_reads_does_not_hold_up_another(client: ResponsesClient, slow: str) -> None:
    """A slow consumer keeps its events for later, while the turns of other lanes come and go."""
    async with client.turn({"model": slow, "input": "go", "max_output_tokens": 200}, lane="slow") as unread:
        for _ in range(5):
            assert (await client.complete({"input": "hi"}, lane="fast")).output_text == "Hello there."
        assert (await unread.response()).output_text == "x" * 200


async def test_text_that_waits_is_one_event(client: ResponsesClient, slow: str) -> None:
    """Whoever reads late gets the same text in fewer events, in its place between the others."""
    async with client.turn({"model": slow, "input": "go", "max_output_tokens": 60}, lane="a") as turn:
        while not turn.is_over:  # noqa: ASYNC110 - nobody reads it meanwhile
            await asyncio.sleep(0.005)
        events = [event async for event in turn]
    texts = [event.delta for event in events if isinstance(event, OutputTextDelta)]
    assert texts == ["x" * 60]
    numbers = [event.sequence_number for event in events]
    assert numbers == sorted(numbers)


async def test_a_steer_in_the_middle_turns_around(client: ResponsesClient, slow: str) -> None:
    """The turn goes on with its successor, which has the partial and the steer in its log."""
    async with client.turn({"model": slow, "input": "go", "stream_id": "a"}, lane="a") as turn:
        await until_said(turn)
        parent = turn.response_id
        await turn.steer("turn around")
        ends = [event async for event in turn if isinstance(event, ResponseIncomplete | ResponseCompleted)]
    assert [type(event) for event in ends] == [ResponseIncomplete, ResponseCompleted]
    assert ends[0].response.id == parent
    assert ends[1].response.previous_response_id == parent
    assert ends[1].response.output_text == "Turned."
    assert cached_tokens(ends[1].response) > 0


async def test_steers_follow_each_other(client: ResponsesClient, slow: str) -> None:
    """A steer may come before the response has begun, and another while the successor is on its way."""
    async with client.turn({"model": slow, "input": "go"}) as turn:
        await turn.steer("more")
        await turn.steer("again")
        response = await turn.response()
    assert response.output_text == "Again."


async def test_a_steer_that_comes_too_late_is_refused(client: ResponsesClient) -> None:
    """The caller learns that the text was not taken, and the turn still ends."""
    async with client.turn({"input": "hi"}) as turn:
        assert (await turn.response()).output_text == "Hello there."
        with pytest.raises(RequestRefused) as caught:
            await turn.steer("too late")
    assert caught.value.code == "response_already_completed"


async def test_a_steer_that_crosses_the_end_is_refused_by_the_server(client: ResponsesClient) -> None:
    """Sent to a response that has ended meanwhile: the steer fails, and the turn ends after the answer."""
    async with client.turn({"input": "hi"}) as turn:
        while turn.response_id is None:
            await anext(turn)
        await asyncio.sleep(0)
        steers = [asyncio.create_task(turn.steer(f"{number} turn")) for number in range(3)]
        response = await turn.response()
        answers = await asyncio.gather(*steers, return_exceptions=True)
    assert response.status == "completed"
    assert all(answer is None or isinstance(answer, RequestRefused) for answer in answers)
    assert turn.is_over


async def test_an_interrupt_keeps_the_partial(client: ResponsesClient, slow: str) -> None:
    """The last events come, what was said stays, and the conversation goes on from there."""
    async with client.turn({"model": slow, "input": "go"}, lane="a") as turn:
        said = await until_said(turn)
        turn.interrupt()
        response = await turn.response()
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "interrupted"
    assert response.output_text.startswith(said)
    more = {"model": slow, "input": "turn", "previous_response_id": response.id}
    after = await client.complete(more, lane="a")
    assert after.output_text == "Turned."
    assert cached_tokens(after) > len(response.output_text)


async def test_an_interrupt_before_the_first_event_ends_the_turn(client: ResponsesClient, slow: str) -> None:
    """Interrupted before the response has an id: it is stopped as soon as it has one."""
    async with client.turn({"model": slow, "input": "go"}) as turn:
        turn.interrupt()
        response = await turn.response()
        with pytest.raises(RequestRefused):
            await turn.steer("too late")
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "interrupted"


async def test_an_interrupt_may_discard_the_partial(client: ResponsesClient, slow: str) -> None:
    """What was not whole is told as interrupted, and is no part of the response."""
    async with client.turn({"model": slow, "input": "go"}) as turn:
        await until_said(turn)
        turn.interrupt(discards_partial=True)
        events = [event async for event in turn]
    assert any(isinstance(event, OutputItemInterrupted) for event in events)
    assert isinstance(events[-1], ResponseIncomplete)
    assert events[-1].response.output == []


async def test_an_interrupt_ends_a_turn_that_was_steered(client: ResponsesClient, slow: str) -> None:
    """Interrupted right behind its steer: it ends, and the steer is carried or given back with its text."""
    async with client.turn({"model": slow, "input": "go"}) as turn:
        await until_said(turn)
        steer = asyncio.create_task(turn.steer("more"))
        await asyncio.sleep(0)  # it is sent
        turn.interrupt()
        await steer
        events = [event async for event in turn]
    ends = [event.response for event in events if isinstance(event, ResponseIncomplete)]
    given_back = [event.steer.input for event in events if isinstance(event, SteerFailed)]
    assert (len(ends), given_back) in ((1, ["more"]), (2, []))
    assert ends[-1].incomplete_details is not None
    assert ends[-1].incomplete_details.reason == "interrupted"


async def test_a_turn_cancelled_before_it_has_an_id_is_ended(
    client: ResponsesClient, served: Settings, slow: str
) -> None:
    """Whoever leaves at once leaves nothing running, and the socket stays."""
    async with client.turn({"model": slow, "input": "go"}):
        pass
    await asyncio.to_thread(until, lambda: status_of(served).engine.turns == 0)
    assert (await client.complete({"input": "hi"})).output_text == "Hello there."


async def test_errors_belong_to_their_lane(client: ResponsesClient, slow: str) -> None:
    """A refused turn, a bad lane and a body too large are errors of their own turns only."""
    async with client.turn({"model": slow, "input": "go", "max_output_tokens": 60}, lane="good") as good:
        await until_said(good)
        refused = [
            client.complete({"input": "hi", "tools": [{"type": "web_search"}]}, lane="bad"),
            client.complete({"input": "hi", "previous_response_id": "resp_unknown"}),
            client.complete({"input": "hi"}, lane="no lane"),
            client.complete({"input": "x" * 17_000_000}, lane="large"),
        ]
        errors = await asyncio.gather(*refused, return_exceptions=True)
        codes = [error.code for error in errors if isinstance(error, RequestRefused)]
        assert codes == [
            "unsupported_parameter",
            "previous_response_not_found",
            "invalid_stream_id",
            "request_too_large",
        ]
        assert (await client.complete({"input": "hi"}, lane="bad")).output_text == "Hello there."
        assert (await good.response()).output_text == "x" * 60


async def test_too_many_lanes_are_refused_one_by_one(client: ResponsesClient) -> None:
    """Of 33 named lanes the last is refused; the others are served."""
    asked = [client.complete({"input": "hi"}, lane=f"lane-{number}") for number in range(33)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [getattr(answer, "output_text", "") for answer in answers[:32]] == ["Hello there."] * 32
    assert isinstance(answers[32], RequestRefused)
    assert answers[32].code == "websocket_stream_limit_reached"


async def test_a_server_that_dies_ends_every_lane(start: Callable[..., Settings], tmp_path: Path) -> None:
    """Each running and waiting turn ends with `ServerGone`; the next turn says so, too, and does not hang."""
    settings = start(model=script(tmp_path, replies={"": "x" * 500}, step_ms=5))
    address = ensure_server(settings)
    until_ready(settings)
    async with asyncio.timeout(HANG_S), ResponsesClient(address) as client:
        began = [asyncio.Event(), asyncio.Event()]

        async def listen(lane: str, begun: asyncio.Event) -> None:
            async for event in client.stream({"input": "go"}, lane=lane):
                if isinstance(event, OutputTextDelta):
                    begun.set()

        tasks = [asyncio.create_task(listen(f"lane-{n}", event)) for n, event in enumerate(began)]
        for event in began:
            await event.wait()
        tasks.append(asyncio.create_task(listen("lane-0", asyncio.Event())))
        async with client.turn({"input": "go"}, lane="steered") as turn:
            await until_said(turn)
            os.kill(address.pid, signal.SIGKILL)
            with pytest.raises(ServerGone):
                await turn.response()
            with pytest.raises(ServerGone):
                await turn.steer("anyone there?")
        lost = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(error) for error in lost] == [ServerGone] * 3
        with pytest.raises(ServerGone):
            await client.complete({"input": "go"})


async def test_an_old_socket_ends_its_turns_while_a_new_one_takes_the_next(
    address: ServerAddress, slow: str
) -> None:
    """A client whose socket is too old opens another for the next turn; what runs goes on to its end."""
    request = {"model": slow, "input": "go", "max_output_tokens": 60}
    async with (
        asyncio.timeout(HANG_S),
        ResponsesClient(address, max_age_s=0.0) as client,
        client.turn(request) as old,
    ):
        await until_said(old)
        assert (await client.complete({"input": "hi"})).output_text == "Hello there."
        assert (await old.response()).output_text == "x" * 60


async def test_typed_text_is_in_the_kv_when_the_turn_comes(client: ResponsesClient) -> None:
    """While the user types only the latest text is prefilled; the turn then prefills what is new."""
    warm = await client.prefill({"input": "Hello."}, lane="chat")
    text = "please write a long story about a small ship"

    def request(length: int) -> dict[str, object]:
        return {"input": text[:length], "previous_response_id": warm.id}

    async with TypedAhead(client, lane="chat") as typed:
        for length in range(1, len(text) + 1):
            typed.update(request(length))
        while typed.prefilled != request(len(text)):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        typed.update(request(3))  # Enter comes while this is under way: it is cancelled
    response = await client.complete(request(len(text)) | {"max_output_tokens": 2}, lane="chat")
    assert response.vivace
    assert response.vivace.waterfall is not None
    assert response.vivace.waterfall.new_tokens <= 30, "the text was there already"
