"""Races, one at a time: what must hold when two things happen at the same instant.

Each is brought about on a whole server in this process, by holding something open: a write, the engine, a
place in the line. The random ones are in `test_races_random`.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.server.inside import Inside, served_here, until
from tests.server.serving import fetch, script
from tests.server.talking import check_numbers, talking
from vivace.config import Settings
from vivace.protocol.shapes.outcomes import Broken, Ended
from vivace.protocol.shapes.refusal import Refusal
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.server.backends.base import Caller, TurnHooks
from vivace.server.backends.native.output_decoder import OutputDecoder
from vivace.server.store.problems import StoreUnavailable
from vivace.server.transport.websocket import SocketSession
from vivace.server.turns.queued_turn import QueuedTurn

CALL = 'Let me look. <tool_call>\n{"name": "look", "arguments": {"at": "' + "x" * 400 + '"}}</tool_call>'
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}


pytestmark = pytest.mark.asyncio(loop_scope="module")


def settings_in(folder: Path, **changes: object) -> Settings:
    replies = {"brief": "Fine.", "call": CALL, "": "x" * 3000}
    model = script(folder, replies=replies, step_ms=1)
    return Settings(
        cache_dir=folder / "cache", state_dir=folder, port=0, threads=1, model=model, allow_scripted=True
    ).having(**changes)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Inside]:
    async with served_here(settings_in(tmp_path_factory.mktemp("wide"))) as inside:
        yield inside


@pytest_asyncio.fixture(loop_scope="module")
async def inside(shared: Inside) -> AsyncIterator[Inside]:
    yield shared
    await shared.calm()


# ---- the end of a turn, while it is being written down ------------------------------------------------


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


# ---- finish and abort in the same step ----------------------------------------------------------------


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
    life = loaded.engine.process
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


# ---- a place in the line ------------------------------------------------------------------------------


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_narrow(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Inside]:
    async with served_here(settings_in(tmp_path_factory.mktemp("narrow"), max_running=1)) as inside:
        yield inside


@pytest_asyncio.fixture(loop_scope="module")
async def narrow(shared_narrow: Inside) -> AsyncIterator[Inside]:
    """One turn at a time; the others wait."""
    yield shared_narrow
    await shared_narrow.calm()


async def test_who_waits_keeps_what_it_goes_on_from(narrow: Inside) -> None:
    """The lane forgets its earlier response while the turn that continues it still stands in line."""
    async with talking(narrow.address) as talker, talking(narrow.address, close_timeout=1) as other:
        first = await talker.complete(input="brief", store=False)
        await other.create(input="go")
        running = await other.said()
        await talker.create(input="brief", previous_response_id=first["id"], store=False)
        await talker.until_type("response.queued")
        (session,) = [each for each in narrow.sockets._open if each._turns and running not in each._turns]
        narrow.library.forget(first["id"], session._caller)
        await other.say("response.cancel", response_id=running)
        done = await talker.ended()
        assert done["type"] == "response.completed", done["response"]["error"]


async def test_a_response_that_was_pushed_out_of_memory_is_still_continued(narrow: Inside) -> None:
    """The line is long and memory is short: what is stored is not lost for those who wait."""
    async with talking(narrow.address) as talker, talking(narrow.address, close_timeout=1) as other:
        first = await talker.complete(input="brief")
        await other.create(input="go")
        running = await other.said()
        await talker.create(input="brief", previous_response_id=first["id"])
        await talker.until_type("response.queued")
        narrow.library._stored.clear()
        await other.say("response.cancel", response_id=running)
        assert (await talker.ended())["type"] == "response.completed"


async def test_a_turn_in_line_ends_once(narrow: Inside) -> None:
    """Refused when its place came up, then interrupted: one end, and `on_over` is called once."""
    first = await narrow.begin(ResponseCreate(input="go"), Caller())
    ticket = narrow.service._queue.enter("realtime", "local")
    calls: list[object] = []
    backend: Any = Refusing()
    request, hooks = ResponseCreate(input="brief", model="m"), TurnHooks(on_over=calls.append)
    waiting = QueuedTurn(request, "resp_waiting", Caller(), ticket, backend, hooks)
    assert waiting.place is not None
    first.interrupt()
    outcomes = [outcome async for outcome in waiting.outcomes()]
    assert isinstance(outcomes[-1], Broken)
    waiting.interrupt()
    waiting.interrupt("cancelled")
    assert calls == outcomes[-1:]
    ticket.leave()


class Refusing:
    """A backend that begins nothing."""

    def begin(self, *_: object) -> None:
        raise Refusal("Not now.", code="not_now")


async def test_a_mistake_when_the_place_comes_up_is_answered(
    narrow: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn in line that cannot begin for a reason of ours fails; nothing is kept for it."""
    async with talking(narrow.address) as talker, talking(narrow.address, close_timeout=1) as other:
        await other.create(input="go")
        running = await other.said()
        await talker.create(input="brief")
        await talker.until_type("response.queued")
        monkeypatch.setattr(narrow.native, "begin", lambda *_: _explode())
        await other.say("response.cancel", response_id=running)
        ended = await talker.ended()
        assert ended["response"]["error"]["code"] == "server_error"


def _explode() -> None:
    raise ZeroDivisionError


async def test_a_mistake_at_the_desk_is_answered(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that cannot be begun for a reason of ours gets an error frame, and its lane goes on."""
    async with talking(inside.address) as talker:
        monkeypatch.setattr(inside.service, "_backend", lambda _: _explode())
        await talker.create(input="brief")
        refused = await talker.until_type("error")
        assert (refused["status"], refused["error"]["code"]) == (500, "server_error")
        monkeypatch.undo()
        assert (await talker.complete(input="brief"))["status"] == "completed"


async def test_places_are_told_as_they_change(narrow: Inside) -> None:
    """A place that is lost and won back is told both times."""
    running = await narrow.begin(ResponseCreate(input="go"), Caller())
    waiting = await narrow.begin(ResponseCreate(input="go", service_tier="flex"), Caller())
    places = waiting.outcomes()
    assert waiting.place is not None
    assert waiting.place.position == 1
    hasty = await narrow.begin(ResponseCreate(input="go"), Caller())
    assert (await anext(places)).position == 2  # type: ignore[union-attr]
    hasty.interrupt()
    assert (await anext(places)).position == 1  # type: ignore[union-attr]
    waiting.interrupt()
    running.interrupt()


# ---- background responses -----------------------------------------------------------------------------


async def test_nothing_is_told_before_it_is_written_down(inside: Inside) -> None:
    """While a background response is being stored it is not over yet, for whoever asks."""
    body = {"input": "brief", "background": True}
    inside.store.gate.clear()
    inside.store.free = 1  # that it was begun
    _, begun = await asyncio.to_thread(fetch, inside.address, "POST", "/v1/responses", body)
    live = inside.backgrounds.get(begun["id"], Caller())
    assert live is not None
    await inside.store.knocking.wait()
    path = f"/v1/responses/{begun['id']}"
    _, asked = await asyncio.to_thread(fetch, inside.address, "GET", path)
    assert asked["status"] == "in_progress"
    inside.store.gate.set()
    await until(lambda: live.is_over)
    assert (await asyncio.to_thread(fetch, inside.address, "GET", path))[1]["status"] == "completed"


async def test_a_number_that_has_not_come_yet_is_waited_for(inside: Inside) -> None:
    """Streaming again from beyond the last event waits for that event, and holds up nobody."""
    body = {"input": "go", "background": True, "stream": False}
    _, begun = await asyncio.to_thread(fetch, inside.address, "POST", "/v1/responses", body)
    live = inside.backgrounds.get(begun["id"], Caller())
    assert live is not None
    frames = live.frames(after=10**6)
    told = asyncio.ensure_future(anext(frames, b"end"))
    done, _ = await asyncio.wait([told], timeout=0.05)
    assert not done
    await live.cancel()
    assert await told == b"end"


async def test_who_leaves_a_background_stream_is_not_written_for(inside: Inside) -> None:
    """The response goes on; the streams of those who have gone do not."""
    turn = await inside.begin(ResponseCreate(input="go", background=True, stream=True), Caller())
    live = await inside.backgrounds.begin(turn)
    writers = []
    for _ in range(5):
        _, writer = await asyncio.open_connection("127.0.0.1", inside.port)
        head = f"GET /v1/responses/{turn.id}?stream=true HTTP/1.1\r\nHost: 127.0.0.1:{inside.port}\r\n"
        writer.write(f"{head}Authorization: Bearer {inside.address.token}\r\n\r\n".encode())
        writers.append(writer)
    await until(lambda: inside.activity.answers == 6)
    for writer in writers:
        writer.close()
    await until(lambda: inside.activity.answers == 1)
    assert not live.is_over
    await live.cancel()


async def test_a_mistake_in_a_background_response_ends_it(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits for its end, to cancel it or to hear it, is not left waiting."""
    body = {"input": "go", "background": True, "stream": True}
    _, begun = await asyncio.to_thread(
        fetch, inside.address, "POST", "/v1/responses", body | {"stream": False}
    )
    live = inside.backgrounds.get(begun["id"], Caller())
    assert live is not None
    monkeypatch.setattr(inside.service, "commit", lambda *_: _explode())
    async with asyncio.timeout(60):
        await live.cancel()
        assert [frame async for frame in live.frames()]


# ---- the backend --------------------------------------------------------------------------------------


async def test_a_mistake_in_reading_the_answer_fails_only_that_turn(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine goes on, and so do the others on it."""
    decode = OutputDecoder.decode
    broken: list[OutputDecoder] = []

    def fail_one(self: OutputDecoder, *given: object) -> object:
        if self is not other._decoder and not broken:  # type: ignore[attr-defined]
            broken.append(self)
        if self in broken:
            raise ZeroDivisionError
        return decode(self, *given)  # type: ignore[arg-type]

    status = await inside.native.status()
    other = await inside.begin(ResponseCreate(input="go"), Caller())
    await anext(other.outcomes())
    monkeypatch.setattr(OutputDecoder, "decode", fail_one)
    async with talking(inside.address) as talker:
        failed = await talker.complete(input="brief")
        assert (failed["status"], failed["error"]["code"]) == ("failed", "server_error")
        await until(lambda: broken)
        assert other in inside.native._turns
        assert (await talker.complete(input="brief"))["status"] == "completed"
    other.interrupt()
    assert (await inside.native.status()).pid == status.pid


async def test_a_turn_interrupted_while_models_change_does_not_run(inside: Inside, tmp_path: Path) -> None:
    """An engine that was still coming up is given up for another: the turn that wanted that is over too."""
    one, two = (script(tmp_path, name, replies={"": "y" * 2000}, step_ms=1) for name in ("one", "two"))
    for pause in range(4):
        first = await inside.begin(ResponseCreate(input="go", model=one), Caller())
        await until(lambda: (loaded := inside.native._pool.latest) and loaded.name == one)
        first.interrupt()
        second = await inside.begin(ResponseCreate(input="go", model=two), Caller())
        for _ in range(pause + 1):
            await asyncio.sleep(0)
        second.interrupt()
        for turn in (first, second):
            last = [outcome async for outcome in turn.outcomes()][-1]
            assert isinstance(last, Ended)
            assert (last.reason, last.usage.output_tokens) == ("interrupted", 0)
    back = await inside.begin(ResponseCreate(input="brief"), Caller())
    last = [outcome async for outcome in back.outcomes()][-1]
    assert isinstance(last, Ended)
    assert last.reason == "stop"


async def test_what_ends_after_its_connection_leaves_nothing(inside: Inside) -> None:
    """A response with `store: false` whose socket is gone is kept nowhere."""
    caller = Caller(connection="gone")
    turn = await inside.begin(ResponseCreate(input="brief", store=False), caller)
    assert isinstance([outcome async for outcome in turn.outcomes()][-1], Ended)
    assert inside.library._unstored == {}


async def test_an_output_in_parts_is_read_by_another_model(inside: Inside, tmp_path: Path) -> None:
    """A tool's output that came as text parts is the same text when it comes back from the store."""
    other = script(tmp_path, "other", replies={"a purple door": "Seen.", "": "Not seen."})
    parts = [{"type": "input_text", "text": "a purple "}, {"type": "input_text", "text": "door"}]
    call = {"type": "function_call", "name": "look", "call_id": "c", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": parts}
    async with talking(inside.address) as talker:
        first = await talker.complete(
            input=[{"role": "user", "content": "brief"}, call, output], tools=[LOOK]
        )
        second = await talker.complete(input="and?", previous_response_id=first["id"], model=other)
        assert second["output"][0]["content"][0]["text"] == "Seen."
        inside.library._stored.clear()
        third = await talker.complete(input="and?", previous_response_id=first["id"], model=other)
        assert third["output"][0]["content"][0]["text"] == "Seen."


async def test_a_parent_that_is_deleted_meanwhile(inside: Inside) -> None:
    """What goes on from it has all of the conversation itself."""
    async with talking(inside.address) as talker:
        first = await talker.complete(input="brief one")
        second = await talker.complete(input="two", previous_response_id=first["id"])
        await talker.create(input="three", previous_response_id=second["id"])
        await talker.created()
        for parent in (first, second):
            path = f"/v1/responses/{parent['id']}"
            assert (await asyncio.to_thread(fetch, inside.address, "DELETE", path))[0] == 200
        third = (await talker.ended())["response"]
        assert third["status"] == "completed"
        path = f"/v1/responses/{third['id']}/input_items?order=asc"
        _, items = await asyncio.to_thread(fetch, inside.address, "GET", path)
        texts = [item["content"][0]["text"] for item in items["data"]]
        assert texts == ["brief one", "Fine.", "two", "Fine.", "three"]
        inside.library._stored.clear()
        after = await talker.complete(input="four", previous_response_id=third["id"])
        assert after["usage"]["input_tokens"] > third["usage"]["total_tokens"]


async def test_a_shutdown_ends_those_in_line_too(tmp_path: Path) -> None:
    """What was created has its terminal event, also if its turn never came; then the server is gone."""
    settings = settings_in(tmp_path, max_running=1, drain_seconds=0.05)
    async with served_here(settings) as inside, talking(inside.address) as talker:
        for lane in "abcd":
            await talker.create(input="go", stream_id=lane)
        for _ in range(4):
            await talker.created()
        await talker.until_type("response.output_text.delta")
        inside.server.leave()
        assert await talker.until_closed() == 1012
        check_numbers(talker.heard)
