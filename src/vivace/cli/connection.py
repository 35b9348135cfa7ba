"""From settings to a model that answers: the model's file, the warm server, one connection, one retry.

Owns the order of those steps for every command that talks to a model. Does not own any of them.
"""

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

from vivace.agent.events.talk import ModelProgress
from vivace.agent.model import Model
from vivace.agent.presenter import Presenter
from vivace.client.responses import ResponsesClient
from vivace.client.turn import OnProgress
from vivace.client.warm import ensure_server
from vivace.config import Settings
from vivace.errors import ServerGone
from vivace.protocol.rundir import news_file
from vivace.protocol.shapes.events import WaitProgress

T = TypeVar("T")


def with_model(
    settings: Settings, work: Callable[[Model], Awaitable[T]], presenter: Presenter | None = None
) -> T:
    """Do `work` with a model. If the server goes away under it, once more with a new server.

    `presenter` is shown how far the model is while it is loaded.
    """

    def tell_progress(progress: WaitProgress | None) -> None:
        if presenter:
            presenter.show(ModelProgress(progress))

    try:
        return asyncio.run(_connected(settings, work, tell_progress))
    except ServerGone:
        _note("The server went away; trying once more.")
        return asyncio.run(_connected(settings, work, tell_progress))


async def _connected(settings: Settings, work: Callable[[Model], Awaitable[T]], on_progress: OnProgress) -> T:
    _tell_news(settings)
    address = ensure_server(settings, _note)
    async with ResponsesClient(address, on_progress) as client:
        return await work(Model(client, settings.model))


def _tell_news(settings: Settings) -> None:
    """Show the line that the server has left for its user, once."""
    file = news_file(settings)
    with contextlib.suppress(OSError, UnicodeDecodeError):
        _note(file.read_text("utf-8").strip())
        file.unlink(missing_ok=True)


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
