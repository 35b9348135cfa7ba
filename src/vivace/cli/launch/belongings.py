"""What a client has only while it runs: a key and a private folder, both named by our process.

Owns making and removing them, also those of a launch that was killed. The clients of a name share one tenant,
so that the next launch finds the KV of its prompt. Does not own keys (`server.store`).
"""

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from vivace.cli.server.keys import with_store
from vivace.config import Settings
from vivace.server.store.base import Store

PREFIX = "launch-"
NAME = re.compile(rf"{PREFIX}\w+-(\d+)")  # the last is our process


@contextlib.contextmanager
def own_key(settings: Settings, client: str) -> Iterator[str]:
    """Make a key for a client. Remove it at the end, and those of launches that are gone."""
    from vivace.server.transport.access.keys import add_key, remove_key

    async def make(store: Store) -> tuple[str, str]:
        for key in await store.keys():
            if _is_left_behind(key.name):
                await remove_key(store, key.id)
        made, secret = await add_key(store, _name(client), tenant=f"{PREFIX}{client}")
        return made.id, secret

    key_id, secret = with_store(settings.database, make)
    try:
        yield secret
    finally:
        with_store(settings.database, lambda store: store.remove_key(key_id))


@contextlib.contextmanager
def own_folder(settings: Settings, client: str) -> Iterator[Path]:
    """Make a folder that nobody else can read. Remove it at the end, and those of launches that are gone."""
    folder = private_folder(settings, client)
    for other in folder.parent.glob(f"{PREFIX}*"):
        if _is_left_behind(other.name):
            shutil.rmtree(other, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def private_folder(settings: Settings, client: str) -> Path:
    return settings.run_dir / _name(client)


def _name(client: str) -> str:
    return f"{PREFIX}{client}-{os.getpid()}"


def _is_left_behind(name: str) -> bool:
    """Return whether this belongs to a launch whose process is gone, or had our number before us."""
    found = NAME.fullmatch(name)
    if not found:
        return False
    process = int(found[1])
    if process == os.getpid():
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False
