"""The profile: what tuning found best for one model file on one machine, kept as JSON.

A profile for another file, machine or version of llama.cpp is ignored. Owns its contents, writing it, and
when it is valid. The server asks here which weights an engine loads.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from vivace.config import Settings
from vivace.durable import replace_file
from vivace.engine.tuning.keys import fingerprint, library_version, machine_key, profile_path
from vivace.engine.tuning.search.choose import Measured
from vivace.models import store

VERSION = 1  # of this file's shape; another one is not read


class Profile(msgspec.Struct, frozen=True):
    """The result of one tuning, or the user's choice not to tune."""

    model: str
    source: str  # fingerprint of the file as downloaded
    machine: str
    library: str
    state: Literal["measured", "skipped"]
    when: str  # UTC
    why: str  # for people
    made_file: str = ""  # in the folder of made files; empty: the file as downloaded
    made_bytes: int = 0
    format: str = ""
    use_extra_bufts: bool = True
    threads: int = 0
    is_threads_given: bool = False  # by the user, so only measured with
    chunk_tokens: int = 0  # for prefill; 0: not measured
    step_costs: dict[int, float] = {}  # ms of a pass by its tokens
    chunk_costs: dict[int, float] = {}  # ms of a prefilled token by the chunk's tokens
    cpu: list[str] = []
    busy_share: float = 0.0  # of the CPUs that others used when it began or ended
    entries: list[Measured] = []  # all that was looked at
    version: int = VERSION


class Weights(NamedTuple):
    """What the engine is to load, and how."""

    path: Path
    threads: int = 0  # 0: chosen from the machine's cores
    use_extra_bufts: bool = True
    chunk_tokens: int = 0  # 0: not measured
    step_costs: dict[int, float] = {}  # noqa: RUF012 - never changed; empty: not measured


def weights_for(settings: Settings, path: Path) -> Weights:
    """Return what to load for the model file at `path`: as tuning found best here, or as downloaded.

    The user's own number of threads wins, and one that was only tried because the user had set it does not
    stay when the setting goes. Costs that were measured with another number are not passed on.
    """
    profile = tuned(settings, path)
    if profile is None:
        return Weights(path, settings.threads)
    chosen = made_path(settings, profile) or path
    threads = settings.threads or (0 if profile.is_threads_given else profile.threads)
    if threads != profile.threads:
        return Weights(chosen, threads, profile.use_extra_bufts)
    return Weights(chosen, threads, profile.use_extra_bufts, profile.chunk_tokens, profile.step_costs)


def tuned(settings: Settings, path: Path) -> Profile | None:
    """Return the measurement for this file on this machine, or None. Its weights must be there."""
    if settings.tune == "never":
        return None
    profile = read(settings, path)
    if profile is None or profile.state != "measured":
        return None
    made = made_path(settings, profile)
    return profile if made is None or _size_bytes(made) == profile.made_bytes else None


def read(settings: Settings, path: Path) -> Profile | None:
    """Return the decision for this file, machine and llama.cpp, a skipped tuning included, or None."""
    try:
        profile = decode(profile_path(settings, path))
        held_for = (fingerprint(path), machine_key(), library_version(), VERSION)
    except (OSError, msgspec.MsgspecError):
        return None
    return (
        profile if held_for == (profile.source, profile.machine, profile.library, profile.version) else None
    )


def decode(file: Path) -> Profile:
    return msgspec.json.decode(file.read_bytes(), type=Profile)


def write(settings: Settings, path: Path, profile: Profile) -> None:
    replace_file(profile_path(settings, path), msgspec.json.format(msgspec.json.encode(profile)))


def skipped(model: str, path: Path, why: str) -> Profile:
    """Return a profile that says to use the file as downloaded without measuring."""
    return Profile(
        model=model,
        source=fingerprint(path),
        machine=machine_key(),
        library=library_version(),
        state="skipped",
        when=now(),
        why=why,
    )


def made_path(settings: Settings, profile: Profile) -> Path | None:
    return store.tuned_dir(settings) / profile.made_file if profile.made_file else None


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
