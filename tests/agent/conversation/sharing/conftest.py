"""Conversations that several faces can open, with a real server and a scripted model."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.agent.conversation.sharing.sharing import Share, Shared
from tests.agent.conversation.talking import Face
from tests.server.serving import LONG, script
from vivace.config import Settings


@pytest.fixture
def other() -> Face:
    return Face()


@pytest.fixture
async def share(served: Settings, tmp_path: Path, folder: Path) -> AsyncIterator[Share]:
    """Open conversations of a model that gives these replies."""
    made: list[Shared] = []

    def share(replies: dict[str, str] | None = None, **options: object) -> Shared:
        said = replies or {"long": LONG, "": "Hello there."}
        model = script(tmp_path, replies=said, **({"context_tokens": 20000} | options))  # type: ignore[arg-type]
        made.append(Shared(served.having(model=model, state_dir=served.state_dir), folder))
        return made[-1]

    yield share
    async with asyncio.timeout(60):
        for shared in made:
            for talk in reversed(shared.talks):
                await talk.close()
