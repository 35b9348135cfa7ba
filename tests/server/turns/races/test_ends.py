"""Races at the end of a turn: while it is written down, or in the same step of the engine."""

import asyncio
from collections import Counter

import pytest

from tests.server.inside import Inside, until
from tests.server.serving import fetch
from tests.server.talking import check_numbers, talking
from tests.server.turns.races.staging import LOOK
from vivace.protocol.shapes.outcomes import Ended
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.server.caller import Caller
from vivace.server.store.problems import StoreUnavailable
from vivace.server.transport.websocket import SocketSession

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def test_a_steer_in_the_commit_is_answered_after_the_end(inside: Inside) -> None:
    """The response is over and not written down yet: the steer's answer comes after the terminal event."""
    async with talking(inside.address) as talker:
        inside.store.gate.clear()
        await talker.create(input="brief")
        response_id = await talker.created()
        await inside.store.knocking.wait()
        await talker.say("response.steer", previous_response_id=response_id, input="more")
        (session,) = inside.sockets._open
        await until(lambda: any(session._order.busy.values()))  # it was read, and its answer stands in line
        inside.store.gate.set()
        while {"response.steer.failed", "response.completed"} - {event["type"] for event in talker.heard}:
            await talker.hear()
        check_numbers(talker.heard)


async def test_a_lane_that_is_written_down_holds_up_no_other(inside: Inside) -> None:
    """While one lane's response waits for the store, another lane goes on to its end."""
    async with talking(inside.address) as talker:
        inside.store.gate.clear()
        await talker.create(input="brief")
        await inside.store.knocking.wait()
        await talker.create(input="brief", stream_id="side", store=False)
        assert (await talker.ended())["stream_id"] == "side"
        inside.store.gate.set()
        await talker.ended()
        check_numbers(talker.heard)


@pytest.mark.parametrize("ending", ["drain", "expire"])
async def test_a_connection_that_ends_in_the_commit_tells_the_end_first(inside: Inside, ending: str) -> None:
    """Nothing runs any more, so the socket closes: but after the terminal event that is being written."""
    async with talking(inside.address) as talker:
        inside.store.gate.clear()
        await talker.create(input="brief")
        await inside.store.knocking.wait()
        (session,) = inside.sockets._open
        closing = asyncio.create_task(session._perform(getattr(session._machine, ending)()))
        await asyncio.sleep(0)
        inside.store.gate.set()
        assert (await talker.ended())["type"] == "response.completed"
        await talker.until_closed()
        await closing


@pytest.mark.parametrize("failure", [StoreUnavailable("No room."), RuntimeError("a mistake")])
async def test_a_response_that_cannot_be_stored_fails(inside: Inside, failure: Exception) -> None:
    """Whatever the store does, there is one terminal event, the lane goes on, and what is next works."""
    async with talking(inside.address) as talker:
        inside.store.failure = failure
        failed = await talker.complete(input="brief")
        assert failed["status"] == "failed"
        status, answer = await asyncio.to_thread(
            fetch, inside.address, "POST", "/v1/responses", {"input": "brief"}
        )
        assert status in (500, 503), answer
        inside.store.failure = None
        assert (await talker.complete(input="brief"))["status"] == "completed"
        check_numbers(talker.heard)


async def test_an_interrupted_turn_whose_parent_cannot_be_read_still_ends(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn that never began is written down with its parent; if that fails, the turn has failed."""
    async with talking(inside.address) as talker:
        first = await talker.complete(input="brief")
        monkeypatch.setattr(inside.service, "_unlogged", _refuse)
        monkeypatch.setattr(inside.native, "_keep", lambda *_, **__: None)
        await talker.create(input="go", previous_response_id=first["id"])
        response_id = await talker.said()
        await talker.say("response.cancel", response_id=response_id)
        assert (await talker.ended())["type"] == "response.failed"


def _refuse(*_: object) -> None:
    raise StoreUnavailable("It cannot be read.")


async def test_a_finish_wins_over_the_abort_in_the_same_step(inside: Inside) -> None:
    """The engine had ended the turn when the interrupt came: it is completed, and the log has its answer."""
    request = ResponseCreate(input="brief", store=True)
    turn = await inside.begin(request, Caller())
    async for outcome in turn.outcomes():
        if not isinstance(outcome, Ended):
            _when_the_engine_is_done(inside, turn)
    assert isinstance(outcome, Ended)
    assert outcome.reason == "stop"
    known = inside.library.peek(turn.id, Caller())
    assert known is not None
    assert known.length == outcome.usage.total_tokens, "what was said is a part of the response"


def _when_the_engine_is_done(inside: Inside, turn: object) -> None:
    """Interrupt the turn the moment its end is here, before anyone has heard of it."""
    loaded = inside.native._pool.latest
    assert loaded is not None
    life = loaded.engines.processes[0]
    assert life is not None
    hear = life._handlers.get(turn.id)  # type: ignore[attr-defined]
    if hear is None or getattr(hear, "is_ours", False):
        return

    def ours(frame: object) -> None:
        if type(frame).__name__ == "Finished":
            turn.interrupt("interrupted", is_discarding=True)  # type: ignore[attr-defined]
        hear(frame)  # type: ignore[arg-type]

    ours.is_ours = True  # type: ignore[attr-defined]
    life._handlers[turn.id] = ours  # type: ignore[attr-defined]


async def test_a_double_abort_is_one(inside: Inside) -> None:
    """Cancelled twice, interrupted and left at once: one end, told once, and everything given back once."""
    async with talking(inside.address) as talker:
        await talker.create(input="go")
        response_id = await talker.said(3)
        for _ in range(3):
            await talker.say("response.cancel", response_id=response_id)
            await talker.say("response.interrupt", response_id=response_id)
        ended = await talker.ended()
        assert ended["response"]["incomplete_details"]["reason"] == "interrupted"
        await talker.say("response.cancel", response_id=response_id)
        assert (await talker.complete(input="brief"))["status"] == "completed"
        check_numbers(talker.heard)


async def test_an_id_used_again_after_an_abort_is_another_turn(inside: Inside) -> None:
    """What still comes for the first turn of that id does not end the second."""
    for _ in range(5):
        turn = await inside.begin(ResponseCreate(input="go"), Caller(), "resp_same")
        turn.interrupt()
        assert isinstance([outcome async for outcome in turn.outcomes()][-1], Ended)
        turn = await inside.begin(ResponseCreate(input="brief"), Caller(), "resp_same")
        last = [outcome async for outcome in turn.outcomes()][-1]
        assert isinstance(last, Ended)
        assert last.reason == "stop"


@pytest.mark.parametrize("is_strict", [True, False])
async def test_discarding_a_call_keeps_the_message_before_it(inside: Inside, is_strict: bool) -> None:
    """Codex's interrupt forgets the item that is not whole, in the events and in the log alike.

    Of a call of a loose tool nothing is told before it is whole, but that the message before it is.
    """
    async with talking(inside.address) as talker:
        await talker.create(input="call", tools=[LOOK | {"strict": is_strict}], store=False)
        response_id = await talker.created()
        event = "function_call_arguments.delta" if is_strict else "output_item.done"
        await talker.until_type(f"response.{event}")
        await talker.say("response.interrupt", response_id=response_id, mode="discard_partial_items")
        ended = (await talker.ended())["response"]
        assert [item["type"] for item in ended["output"]] == ["message"]
        (session,) = inside.sockets._open
        known = inside.library.peek(response_id, session._caller)
        assert known is not None
        said = bytes(token for token in known.tokens() if token < 256).decode()
        assert said.rstrip().endswith("Let me look.")


async def test_a_thousand_messages_at_once_let_others_go_first(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them are there already: even so the loop goes round after each."""
    rounds, taken = [0], Counter[int]()
    receive = SocketSession._receive

    def counting(self: SocketSession, text: str | None) -> object:
        taken[rounds[0]] += 1
        return receive(self, text)

    async def go_round() -> None:
        while True:
            rounds[0] += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(SocketSession, "_receive", counting)
    async with talking(inside.address, max_queue=None) as talker:
        going = asyncio.create_task(go_round())
        for _ in range(1000):
            talker.connection.protocol.send_text(b"{}")
        talker.connection.transport.write(b"".join(talker.connection.protocol.data_to_send()))
        for _ in range(1000):
            await talker.until_type("error")
        going.cancel()
    assert max(taken.values()) <= 2
