"""A session that comes back from disk against one that is prefilled again.

Both are timed to the first token. The session is parked by name, its file is waited for and then dropped from
the system's page cache where that can be asked for (Linux), so that the disk is read and not the memory.

And the same through a server: a chat, the server told to stop, another one started, the chat's next turn.
"""

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

from vivace.bench.engine.context import BenchContext, Section
from vivace.bench.engine.engine_process import EngineProcess
from vivace.bench.figures import median, ratio
from vivace.bench.served.own_server import running
from vivace.client.responses import ResponsesClient
from vivace.client.warm import ServerAddress
from vivace.config import Settings
from vivace.engine.wire.frames import Generate, Park
from vivace.errors import ServerGone
from vivace.protocol.shapes.events import Response, Waterfall

RESTORES = 3  # of each session
WRITTEN_WITHIN_S = 60.0
POLL_S = 0.02


def measure_park(context: BenchContext, engine: EngineProcess, kv_folder: Path) -> Section:
    """Compare a restored session with a prefilled one. The engine parks into `kv_folder`."""
    prefills, restores, restored, sizes = [], [], [], []
    for number in range(context.effort.park_rounds):
        context.progress.note(f"session {number + 1} of {context.effort.park_rounds}")
        prompt = context.prompts.fresh(context.effort.park_tokens)
        with context.cold_session(engine) as session:
            prefills.append(engine.run(Generate(session, "", prompt, max_tokens=1)).first_token_ms)
            for _ in range(RESTORES):
                file = _park(engine, session, kv_folder)
                sizes.append(file.stat().st_size)
                _drop_from_memory(file)
                turn = engine.run(Generate(session, "", max_tokens=1))
                restores.append(turn.first_token_ms)
                restored.append(turn.waterfall.restored_tokens)
    return {
        "restore_ratio": ratio(median(restores), median(prefills)),
        "restore_ms": median(restores),
        "prefill_ms": median(prefills),
        "session_tokens": context.effort.park_tokens,
        "restored_tokens": min(restored),
        "file_bytes": max(sizes),
        "rounds": len(restores),
    }


def measure_leaving(context: BenchContext, settings: Settings, model: str) -> Section:
    """Return how much of a chat's log a new server restores from disk."""
    context.progress.note("a chat whose server is restarted")
    with tempfile.TemporaryDirectory(prefix="bench-leaving-", dir=settings.cache_dir) as name:
        folder = Path(name)
        own = settings.having(
            cache_dir=folder / "cache", state_dir=folder / "state", model=model, port=0, tune="never"
        )
        with running(own) as address:
            text = context.prompts.text(context.effort.park_tokens)
            left = _ask(address, input=text, max_output_tokens=1)
        with running(own) as address:
            then = _ask(address, input="Go on.", previous_response_id=left.id, max_output_tokens=1)
    assert left.usage is not None
    before, after = _times(left), _times(then)
    return {
        "left_restored_share": ratio(after.restored_tokens, left.usage.input_tokens),
        "left_restored_tokens": after.restored_tokens,
        "left_first_token_ms": after.first_token_ms,
        "left_prefill_ms": before.first_token_ms,
    }


def _times(response: Response) -> Waterfall:
    assert response.vivace
    assert response.vivace.waterfall
    return response.vivace.waterfall


def _ask(address: ServerAddress, **fields: Any) -> Response:
    async def complete() -> Response:
        async with ResponsesClient(address) as client:
            return await client.complete(fields)

    return asyncio.run(complete())


def _park(engine: EngineProcess, session: str, kv_folder: Path) -> Path:
    """Park the session and wait for its file, which gets its name when it is whole."""
    before = _files(kv_folder)
    engine.send(Park(session))
    for _ in range(int(WRITTEN_WITHIN_S / POLL_S)):
        engine.watch(POLL_S)
        if fresh := _files(kv_folder) - before:
            return max(fresh, key=lambda file: file.stat().st_mtime)
    raise ServerGone("The engine did not write the parked session.", f"Is there room in {kv_folder}?")


def _files(kv_folder: Path) -> set[Path]:
    return set(kv_folder.rglob("*.session"))


def _drop_from_memory(file: Path) -> None:
    if not hasattr(os, "posix_fadvise"):
        return
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)  # pages that wait for the disk cannot be dropped
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
