"""A chat that was left alone comes back from disk: its KV is parked, not thrown away."""

from pathlib import Path
from typing import Any

import pytest

from tests.server.inside import served_here
from tests.server.serving import script
from tests.server.talking import talking
from vivace.config import Settings
from vivace.server.backends.native import loaded_model

REPLY = "Fine, thanks."


def chat(number: int) -> str:
    """A text that shares no beginning with another's, and is worth a file."""
    return f"{number} is the number of this chat. " + f"Chat {number} goes on. " * 40


def restored(response: dict[str, Any]) -> int:
    tokens: int = response["vivace"]["waterfall"]["restored_tokens"]
    return tokens


async def test_beyond_the_open_sessions_the_oldest_is_parked(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chat that had to make way goes on from disk."""
    monkeypatch.setattr(loaded_model, "MAX_OPEN_SESSIONS", 2)
    settings = settings.having(model=script(tmp_path, replies={"": REPLY}, context_tokens=16384))
    async with served_here(settings) as inside, talking(inside.address) as talker:
        first = await talker.complete(input=chat(1))
        for number in (2, 3):
            await talker.complete(input=chat(number))
        assert (await inside.native.status()).sessions == 2
        then = await talker.complete(input="Go on.", previous_response_id=first["id"])
        assert restored(then) > len(chat(1))


async def test_a_server_that_leaves_parks_what_is_idle(settings: Settings, tmp_path: Path) -> None:
    """After a restart, idle exit or not, every chat goes on from disk."""
    settings = settings.having(model=script(tmp_path, replies={"": REPLY}, context_tokens=16384))
    async with served_here(settings) as inside, talking(inside.address) as talker:
        chats = [await talker.complete(input=chat(number)) for number in (1, 2, 3)]
    async with served_here(settings) as inside, talking(inside.address) as talker:
        for number, left in enumerate(chats, 1):
            then = await talker.complete(input="Go on.", previous_response_id=left["id"])
            assert restored(then) > len(chat(number))


async def test_an_engine_that_cannot_park_in_time_is_ended(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaving takes a bounded time, whatever the disk does."""
    monkeypatch.setattr(loaded_model, "PARKING_S", 0.0)
    settings = settings.having(model=script(tmp_path, replies={"": REPLY}, context_tokens=16384))
    async with served_here(settings) as inside, talking(inside.address) as talker:
        await talker.complete(input=chat(1))
        engine = inside.native._pool.latest
        assert engine is not None
        process = engine.engines.processes[0]._process
        assert process is not None
    assert process.returncode is not None
