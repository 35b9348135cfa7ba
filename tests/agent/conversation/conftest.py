"""Conversations with a real server and a scripted model, shown to a presenter that keeps everything."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.agent.conversation.talking import Face
from tests.agent.edits.test_flow import OLD
from tests.server.serving import LONG, script
from vivace.agent.conversation.conversation import Conversation
from vivace.agent.conversation.opening import open_conversation
from vivace.agent.edits.apply.files import DISK, Files
from vivace.config import Settings


@pytest.fixture
def task(folder: Path) -> Path:
    """A file that a model with the replies `EDITING` can edit."""
    file = folder / "task.py"
    file.write_text(OLD)
    return file


@pytest.fixture
def face() -> Face:
    return Face()


@pytest.fixture
async def begin(
    served: Settings, tmp_path: Path, folder: Path, face: Face
) -> AsyncIterator[Callable[..., Conversation]]:
    """Begin a conversation whose model gives these replies."""
    begun: list[Conversation] = []

    def begin(
        replies: dict[str, str] | None = None, *, files: Files = DISK, **options: object
    ) -> Conversation:
        said = replies or {"long": LONG, "": "Hello there."}
        model = script(tmp_path, replies=said, **({"context_tokens": 20000} | options))  # type: ignore[arg-type]
        settings = served.having(model=model, state_dir=served.state_dir)
        begun.append(open_conversation(settings, folder, face, files=files))
        return begun[-1]

    yield begin
    async with asyncio.timeout(60):
        for one in begun:
            await one.close()
