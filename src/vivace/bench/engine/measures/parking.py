"""A session that comes back from disk against one that is prefilled again.

Both are timed to the first token. The session is parked by name, its file is waited for and then dropped from
the system's page cache where that can be asked for (Linux), so that the disk is read and not the memory.
"""

import os
from pathlib import Path

from vivace.bench.engine.context import BenchContext, Section
from vivace.bench.engine.engine_process import EngineProcess
from vivace.bench.figures import median, ratio
from vivace.engine.wire.frames import Generate, Park
from vivace.errors import ServerGone

RESTORES = 3  # of each session
WRITTEN_WITHIN_S = 60.0
POLL_S = 0.02


def measure_park(context: BenchContext, engine: EngineProcess, shelf: Path) -> Section:
    """`shelf` is the folder that the engine parks into."""
    prefills, restores, restored, sizes = [], [], [], []
    for number in range(context.effort.park_rounds):
        context.progress.note(f"session {number + 1} of {context.effort.park_rounds}")
        prompt = context.prompts.fresh(context.effort.park_tokens)
        with context.cold_session(engine) as session:
            prefills.append(engine.run(Generate(session, "", prompt, max_tokens=1)).first_token_ms)
            for _ in range(RESTORES):
                file = _park(engine, session, shelf)
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


def _park(engine: EngineProcess, session: str, shelf: Path) -> Path:
    """Park the session and wait for its file, which gets its name when it is whole."""
    before = _files(shelf)
    engine.send(Park(session))
    for _ in range(int(WRITTEN_WITHIN_S / POLL_S)):
        engine.watch(POLL_S)
        if fresh := _files(shelf) - before:
            return max(fresh, key=lambda file: file.stat().st_mtime)
    raise ServerGone("The engine did not write the parked session.", f"Is there room in {shelf}?")


def _files(shelf: Path) -> set[Path]:
    return set(shelf.rglob("*.session"))


def _drop_from_memory(file: Path) -> None:
    if not hasattr(os, "posix_fadvise"):
        return
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)  # pages that wait for the disk cannot be dropped
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
