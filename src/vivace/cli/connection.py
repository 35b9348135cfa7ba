"""From settings to a model that answers: the model's file, the warm server, one connection, one retry.

Owns the order of those steps for every command that talks to a model. Does not own any of them.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from vivace.agent.model import Model
from vivace.cli.progress import TerminalProgress
from vivace.cli.tune import is_watched, tune_once
from vivace.client.responses import ResponsesClient
from vivace.client.warm import ensure_server
from vivace.config import Settings
from vivace.errors import ServerGone
from vivace.models.store import is_present
from vivace.models.tokenizer import SCRIPTED

T = TypeVar("T")


def with_model_here(settings: Settings, *, may_tune: bool = True) -> Settings:
    """Settings whose model is on this machine, under a name that the server understands too.

    Where a person watches, a model's first use here begins with finding out how to run it best.
    """
    if settings.is_elsewhere(settings.model):
        return settings
    settings = settings.having(model=_absolute(settings.model))
    if settings.model.startswith(SCRIPTED):
        return settings
    if not is_present(settings, settings.model):
        from vivace.models.download import ensure  # ssl and http.client: 25 ms that a warm start does not pay

        ensure(settings, settings.model, TerminalProgress())
    if may_tune and settings.tune == "auto" and is_watched():
        tune_once(settings)
    return settings


def with_model(settings: Settings, work: Callable[[Model], Awaitable[T]]) -> T:
    """Do `work` with a model. If the server goes away under it, once more with a new server."""
    try:
        return asyncio.run(_connected(settings, work))
    except ServerGone:
        _note("The server went away; trying once more.")
        return asyncio.run(_connected(settings, work))


async def _connected(settings: Settings, work: Callable[[Model], Awaitable[T]]) -> T:
    address = ensure_server(settings, _note)
    async with ResponsesClient(address) as client:
        return await work(Model(client, settings.model))


def _absolute(model: str) -> str:
    """A model that is a file or a folder, under its full name: the server works in another folder."""
    scripted = SCRIPTED if model.startswith(SCRIPTED) else ""
    path = Path(model.removeprefix(SCRIPTED))
    is_here = path.is_file() or (os.sep in model and path.is_dir())  # a folder may have a model's name
    return f"{scripted}{path.resolve()}" if is_here else model


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
