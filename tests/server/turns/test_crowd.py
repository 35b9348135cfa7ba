"""64 sockets at once, and something goes wrong: whoever stays gets a whole answer, and nothing is left.

The faults of the tests for one client once more: a dead engine, clients that leave, interrupts and cancels.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.serving import script, status_of, until
from tests.server.talking import Talker, check_numbers, talking
from tests.thorough import MARK
from vivace.client.warm import ServerAddress
from vivace.config import Settings

SOCKETS = 64
TEXT = "".join(f"{number:02} " for number in range(20))
SHORT: dict[str, Any] = {"replies": {"": TEXT}, "step_ms": 1, "context_tokens": 32_768}
ROUNDS = [0, *(pytest.param(number, marks=getattr(pytest.mark, MARK)) for number in range(1, 10))]


@contextlib.asynccontextmanager
async def crowd(address: ServerAddress) -> AsyncIterator[list[Talker]]:
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(talking(address, close_timeout=1, open_timeout=60))
            for _ in range(SOCKETS)
        ]


def check_text(talker: Talker, *, is_whole: bool = True) -> None:
    """One end, numbers without a gap, and a text that is the model's, whole or cut off."""
    check_numbers(talker.heard)
    said = "".join(event["delta"] for event in talker.heard if event["type"] == "response.output_text.delta")
    assert said == TEXT if is_whole else TEXT.startswith(said)


async def calm(served: Settings) -> None:
    """Wait until the server and its engine do nothing for anybody."""
    await asyncio.to_thread(until, lambda: status_of(served).answers == 0)
    await asyncio.to_thread(until, lambda: status_of(served).engine.turns == 0)


@pytest.mark.parametrize("number", ROUNDS)
async def test_the_engine_dies_under_all_of_them(
    address: ServerAddress, served: Settings, tmp_path: Path, number: int
) -> None:
    """Every turn goes on from its log in a new engine: no gap, no repeat, one end each."""
    at, mark = random.Random(number).randrange(1, len(TEXT) - 1), tmp_path / "died"
    model = script(tmp_path, **SHORT, die_at_token=at, die_mark=str(mark))
    async with crowd(address) as talkers:
        await asyncio.gather(*(talker.create(model=model, input="hi") for talker in talkers))
        ends = await asyncio.gather(*(talker.ended() for talker in talkers))
        assert mark.exists()
        assert {end["type"] for end in ends} == {"response.completed"}
        for talker in talkers:
            check_text(talker)
    await calm(served)


async def stay(talker: Talker, chance: random.Random) -> None:
    del chance
    await talker.ended()
    check_text(talker)


async def stop(talker: Talker, chance: random.Random) -> None:
    """Say at any moment that it is enough; the end comes all the same, once."""
    response_id = await talker.said(chance.randrange(1, len(TEXT) // 2))
    await talker.say(f"response.{chance.choice(['cancel', 'interrupt'])}", response_id=response_id)
    await talker.until_type("response.completed", "response.incomplete", "response.failed")
    check_text(talker, is_whole=False)


async def leave(talker: Talker, chance: random.Random) -> None:
    for _ in range(chance.choice([0, 1, 5, 20])):
        await talker.hear()
    talker.connection.transport.abort()


@pytest.mark.parametrize("number", ROUNDS)
async def test_some_leave_and_some_stop(
    address: ServerAddress, served: Settings, tmp_path: Path, number: int
) -> None:
    """Who goes or stops changes nothing for the others, and leaves nothing behind."""
    chance, model = random.Random(number), script(tmp_path, **SHORT)
    parts = [stay, stop, leave] * (SOCKETS // 3) + [stay]
    async with crowd(address) as talkers:
        await asyncio.gather(*(talker.create(model=model, input="hi") for talker in talkers))
        played = zip(parts, talkers, strict=True)
        await asyncio.gather(*(part(talker, random.Random(chance.random())) for part, talker in played))
    await calm(served)
    async with talking(address) as talker:
        assert (await talker.complete(model=model, input="hi"))["status"] == "completed"
