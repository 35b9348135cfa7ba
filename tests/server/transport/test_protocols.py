"""The way of a token through the server: one callback from the engine's frame to the client's socket."""

import select
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from hypothesis import example, given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from tests.server.inside import Inside, served_here, until
from tests.server.serving import script
from tests.server.talking import Talker, check_numbers, talking
from vivace.config import Settings
from vivace.engine.wire.frames import Tokens, pack
from vivace.server.backends.native.engines.transport import SocketTransport
from vivace.server.backends.native.turn import NativeTurn
from vivace.server.transport.protocols import framed

ARRIVE_S = 60.0  # a hang, not a slow machine

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def inside(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Inside]:
    """Its engine says nothing by itself, and has place for one turn: the tests say what it would say."""
    folder = tmp_path_factory.mktemp("wire")
    model = script(folder, replies={"": "never said"}, step_ms=3_600_000)
    settings = Settings(
        cache_dir=folder / "cache",
        state_dir=folder,
        port=0,
        threads=1,
        model=model,
        max_running=1,
        allow_scripted=True,
    )
    async with served_here(settings) as served:
        yield served


async def submitted(inside: Inside) -> NativeTurn:
    """The turn that the engine has."""
    found = await until(lambda: [turn for turn in inside.native._turns if turn.submitted])
    return found[0]


def say(inside: Inside, turn: NativeTurn, *texts: str) -> None:
    """The engine's frames, a text each, in one read."""
    loaded = inside.native._pool.latest
    assert loaded is not None
    assert loaded.engines.processes
    carrier = loaded.engines.processes[0]._transport
    assert isinstance(carrier, SocketTransport)
    carrier.data_received(b"".join(pack(Tokens(turn.id, list(text.encode()))) for text in texts))


def is_there(talker: Talker) -> bool:
    """Whether something has come for this client; the server, in this same loop, can do nothing meanwhile."""
    link = talker.connection.transport.get_extra_info("socket")
    return bool(select.select([link.fileno()], [], [], ARRIVE_S)[0])


async def deltas(talker: Talker, count: int) -> list[str]:
    return [str((await talker.until_type("response.output_text.delta"))["delta"]) for _ in range(count)]


async def end(inside: Inside, talker: Talker, turn: NativeTurn) -> None:
    turn.interrupt()
    await talker.ended()
    check_numbers(talker.heard)
    await until(lambda: turn not in inside.native._turns)


async def test_text_is_sent_in_the_callback_that_brought_it(inside: Inside) -> None:
    """When the engine's frame has been heard, the client's socket has the event, and nothing waits."""
    async with talking(inside.address) as talker:
        await talker.create(input="go", stream_id="a-lane")
        turn = await submitted(inside)
        await talker.until_type("response.in_progress")
        for letter in "abc":
            say(inside, turn, letter)
            assert is_there(talker)
            assert await deltas(talker, 1) == [letter]
        await end(inside, talker, turn)


async def test_what_came_at_once_is_told_at_once(inside: Inside) -> None:
    """Frames of one read are one delta, however many tokens each has; frames of two reads are two."""
    async with talking(inside.address) as talker:
        await talker.create(input="go")
        turn = await submitted(inside)
        say(inside, turn, "ab", "c", "d")
        say(inside, turn, "e")
        say(inside, turn, "fg")
        assert await deltas(talker, 3) == ["abcd", "e", "fg"]
        await end(inside, talker, turn)


async def test_a_turn_that_stood_in_line_is_told_the_same_way(inside: Inside) -> None:
    """First its place in the line, then, when it is its turn, text in the callback that brought it."""
    async with talking(inside.address) as first, talking(inside.address) as second:
        await first.create(input="go")
        running = await submitted(inside)
        await second.create(input="go")
        await second.until_type("response.queued")
        await end(inside, first, running)
        await second.until_type("response.in_progress")
        turn = await submitted(inside)
        say(inside, turn, "a")
        assert is_there(second)
        assert await deltas(second, 1) == ["a"]
        await end(inside, second, turn)


async def test_a_client_that_left_is_sent_nothing(inside: Inside) -> None:
    """Not even by an engine that has not heard of it: the turn ends, and what it said stays in its log."""
    async with talking(inside.address) as talker:
        await talker.create(input="go", store=False)
        turn = await submitted(inside)
        say(inside, turn, "a")
        await deltas(talker, 1)
        talker.connection.transport.abort()
        say(inside, turn, "b")  # before the server, in this same loop, can notice
    await until(lambda: turn.is_over)
    assert turn.session is not None
    assert bytes(turn.session.log.since(len(turn.session.log) - 2)) == b"ab"


@given(st.binary(max_size=300) | st.sampled_from([0, 125, 126, 65_535, 65_536]).map(bytes))
@example(b"")
async def test_a_message_is_framed_as_the_library_frames_it(text: bytes) -> None:
    """Lengths of all three kinds."""
    assert framed(text) == Frame(Opcode.TEXT, text).serialize(mask=False)
