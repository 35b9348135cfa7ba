"""Tasks with a real server, a scripted model and real tools, in a folder of their own."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.loop.working import Face
from tests.server.serving import script
from vivace.agent.conversation.connection import Connection
from vivace.agent.loop.opening import open_task
from vivace.agent.loop.task import Task, TaskLimits
from vivace.agent.permissions.policy import Policy
from vivace.config import Settings


@pytest.fixture
def face() -> Face:
    return Face()


@pytest.fixture
async def begin(
    served: Settings, tmp_path: Path, folder: Path, face: Face
) -> AsyncIterator[Callable[..., Awaitable[Task]]]:
    """Begin a task whose model says these messages, one a turn."""
    opened: list[Connection] = []

    async def begin(
        *steps: str, policy: Policy | None = None, limits: TaskLimits | None = None, **options: Any
    ) -> Task:
        model = script(
            tmp_path, f"script{len(opened)}", steps=list(steps), **({"context_tokens": 60000} | options)
        )
        settings = served.having(model=model)
        opened.append(Connection(settings))
        return await open_task(
            settings,
            folder,
            "Do the task.",
            face,
            opened[-1],
            policy=policy or Policy(),
            limits=limits or TaskLimits(),
        )

    yield begin
    for connection in opened:
        await connection.close()
