"""Finds out how this machine runs one model best, and keeps the answer until something changes.

Owns the lock (of two tunings of one file the second waits and takes over what the first found), the profile
that is written, and that nothing stays behind which no profile names. Does not measure (`contest`).
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec.structs import replace

from vivace.config import Settings
from vivace.engine.tuning import choose
from vivace.engine.tuning.contest import Contest, Outcome
from vivace.engine.tuning.cpu import cpu_features
from vivace.engine.tuning.keys import file_prefix, fingerprint, library_version, machine_key
from vivace.engine.tuning.profile import Profile, decode, now, tuned, write
from vivace.engine.tuning.surroundings import Surroundings
from vivace.errors import VivaceError
from vivace.models import store


def tune(
    settings: Settings, model: str, path: Path, around: Surroundings, *, with_costly: bool = False
) -> Profile:
    """Measure, choose and remember what is best for the model file at `path`."""
    path = path.resolve()
    try:
        with _only_one(settings, path, around) as has_waited:
            found = tuned(settings, path) if has_waited else None
            return found or _tune(settings, model, path, around, with_costly=with_costly)
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        raise VivaceError(
            f"{model} could not be tuned: {what}.",
            "Make room, or set VIVACE_CACHE_DIR to another folder. The model works as downloaded meanwhile.",
        ) from error


def _tune(settings: Settings, model: str, path: Path, around: Surroundings, *, with_costly: bool) -> Profile:
    busy_share = around.busy_share()
    contest = Contest(path, store.tuned_dir(settings), file_prefix(path), around)
    try:
        outcome = contest.run(settings.threads, with_costly=with_costly)
        contest.close()  # so that what is busy now is not us
        busy_share = max(busy_share, around.busy_share())
        profile = replace(_profile(model, path, outcome, busy_share), is_threads_given=settings.threads > 0)
        write(settings, path, profile)
    finally:
        contest.close()
        sweep(settings, path)
    return profile


def sweep(settings: Settings, path: Path) -> None:
    """Delete what is of no use: profiles of this machine for another llama.cpp, weights that no profile of
    any machine names, and beginnings of such files."""
    prefix = f"{file_prefix(path)}."
    ours = [file for file in store.tuned_dir(settings).glob("*") if file.name.startswith(prefix)]
    named = {_made_file(file) for file in ours if file.suffix == ".json"}
    for file in ours:
        if file.suffix == ".part" or (file.suffix == ".gguf" and file.name not in named):
            file.unlink(missing_ok=True)


def _made_file(file: Path) -> str:
    """The weights that a profile names; one that will never hold again is deleted and names none."""
    try:
        profile = decode(file)
    except (OSError, msgspec.MsgspecError):
        return ""
    if profile.machine == machine_key() and profile.library != library_version():
        file.unlink(missing_ok=True)
        return ""
    return profile.made_file


def _profile(model: str, path: Path, outcome: Outcome, busy_share: float) -> Profile:
    variant, chunk_costs = outcome.winner.variant, outcome.chunk_costs
    return Profile(
        model=model,
        source=fingerprint(path),
        machine=machine_key(),
        library=library_version(),
        state="measured",
        when=now(),
        why=outcome.why,
        made_file=Path(variant.path).name if variant.is_made else "",
        made_bytes=variant.size_bytes if variant.is_made else 0,
        format=variant.format,
        use_extra_bufts=variant.use_extra_bufts,
        threads=variant.threads,
        chunk_tokens=choose.choose_chunk(chunk_costs) if chunk_costs else 0,
        step_costs=choose.step_costs(outcome.winner.rounds),
        chunk_costs=chunk_costs,
        cpu=cpu_features(),
        busy_share=round(busy_share, 2),
        entries=outcome.entries,
    )


@contextmanager
def _only_one(settings: Settings, path: Path, around: Surroundings) -> Iterator[bool]:
    """Hold the lock of this file's tuning; yields whether another one had to end first."""
    descriptor = store.open_tuning_lock(settings, path.stem)
    try:
        has_waited = not store.try_lock(descriptor)
        if has_waited:
            with around.step("Waiting for another tuning of this model"):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield has_waited
    finally:
        os.close(descriptor)
