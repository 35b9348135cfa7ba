"""Tune one model file for this machine, and keep the result as a profile.

Owns the lock (of two tunings of one file the second waits and uses the first's result), writing the profile,
and deleting weights that no profile names. Does not measure (`search`).
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec.structs import replace

from vivace.config import Settings
from vivace.engine.tuning.cpu import cpu_features
from vivace.engine.tuning.journal import Journal
from vivace.engine.tuning.keys import file_prefix, fingerprint, journal_path, library_version, machine_key
from vivace.engine.tuning.profile import Profile, decode, now, tuned, write
from vivace.engine.tuning.search import choose
from vivace.engine.tuning.search.host import Host
from vivace.engine.tuning.search.search import SearchResult, VariantSearch
from vivace.errors import VivaceError
from vivace.models import store


class AlreadyTuning(Exception):
    """Another process tunes this file."""


def tune(
    settings: Settings,
    model: str,
    path: Path,
    host: Host,
    *,
    with_costly: bool = False,
    is_background: bool = False,
) -> Profile:
    """Measure, choose and remember what is best for the model file at `path`.

    In the background, go on with what an unfinished tuning has measured; raise `AlreadyTuning` instead of
    waiting for another process.
    """
    path = path.resolve()
    try:
        with _exclusive(settings, path, host, may_wait=not is_background) as has_waited:
            found = tuned(settings, path) if has_waited else None
            if found is None:
                journal = Journal.open(journal_path(settings, path), is_fresh=not is_background)
                found = _tune(settings, model, path, host, journal, with_costly=with_costly)
                journal.remove()
            return found
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        raise VivaceError(
            f"{model} could not be tuned: {what}.",
            "Make room, or set VIVACE_CACHE_DIR to another folder. The model works as downloaded meanwhile.",
        ) from error


def _tune(
    settings: Settings, model: str, path: Path, host: Host, journal: Journal, *, with_costly: bool
) -> Profile:
    busy_share = host.busy_share()
    search = VariantSearch(path, store.tuned_dir(settings), file_prefix(path), host, journal)
    try:
        result = search.run(settings.threads, with_costly=with_costly)
        search.close()  # so that what is busy now is not us
        busy_share = max(busy_share, host.busy_share())
        profile = replace(_profile(model, path, result, busy_share), is_threads_given=settings.threads > 0)
        write(settings, path, profile)
    finally:
        search.close()
        sweep(settings, path)
    return profile


def sweep(settings: Settings, path: Path) -> None:
    """Delete profiles of this machine for another llama.cpp, and weights that no machine's profile names."""
    prefix = f"{file_prefix(path)}."
    ours = [file for file in store.tuned_dir(settings).glob("*") if file.name.startswith(prefix)]
    named = {_made_file(file) for file in ours if file.suffix == ".json"}
    for file in ours:
        if file.suffix == ".part" or (file.suffix == ".gguf" and file.name not in named):
            file.unlink(missing_ok=True)


def _made_file(file: Path) -> str:
    """Return the weights that a profile names. Delete a profile that can never hold again."""
    try:
        profile = decode(file)
    except (OSError, msgspec.MsgspecError):
        return ""
    if profile.machine == machine_key() and profile.library != library_version():
        file.unlink(missing_ok=True)
        return ""
    return profile.made_file


def _profile(model: str, path: Path, result: SearchResult, busy_share: float) -> Profile:
    variant, chunk_costs = result.winner.variant, result.chunk_costs
    return Profile(
        model=model,
        source=fingerprint(path),
        machine=machine_key(),
        library=library_version(),
        state="measured",
        when=now(),
        why=result.why,
        made_file=Path(variant.path).name if variant.is_made else "",
        made_bytes=variant.size_bytes if variant.is_made else 0,
        format=variant.format,
        use_extra_bufts=variant.use_extra_bufts,
        threads=variant.threads,
        chunk_tokens=choose.choose_chunk(chunk_costs) if chunk_costs else 0,
        step_costs=choose.step_costs(result.winner.rounds),
        chunk_costs=chunk_costs,
        cpu=cpu_features(),
        busy_share=round(busy_share, 2),
        entries=result.entries,
    )


@contextmanager
def _exclusive(settings: Settings, path: Path, host: Host, *, may_wait: bool) -> Iterator[bool]:
    """Hold the lock of this file's tuning. Yield whether another process had to end first."""
    descriptor = store.open_tuning_lock(settings, path.stem)
    try:
        has_waited = not store.try_lock(descriptor)
        if has_waited and not may_wait:
            raise AlreadyTuning
        if has_waited:
            with host.step("Waiting for another tuning of this model"):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield has_waited
    finally:
        os.close(descriptor)
