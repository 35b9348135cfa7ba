"""Where model files are, whether one is there, how it goes away.

Owns the models folder's layout: `FILE` is always complete and checked; `FILE.part` is what a pull has so far,
always a true beginning of `FILE`; `.FILE.lock` is held while someone changes either.
Does not fetch: `download` does.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vivace.config import Settings
from vivace.errors import ModelUnavailable, UsageError
from vivace.models.catalog import ModelCard, card


def model_path(settings: Settings, name: str) -> Path:
    """Where the file of model `name` is or would be; a path to a `.gguf` file is taken as it is."""
    if not _is_path(name):
        return card_path(settings, card(name))
    path = Path(name).expanduser()
    if not path.is_file():
        raise UsageError(
            f"There is no model file {path}.", "Give a .gguf file or a name from `vivace models`."
        )
    return path


def is_present(settings: Settings, name: str) -> bool:
    """Whether the complete file is there. Its size is enough: it got this name after its checksum held."""
    return model_path(settings, name).is_file() if _is_path(name) else is_complete(settings, card(name))


def remove(settings: Settings, model: ModelCard) -> int:
    """Delete the model's file and any beginning of it; gives back how many bytes that freed."""
    freed_bytes = 0
    with locked(settings, model) as free:
        if not free:
            raise ModelUnavailable(
                f"{model.name} is being downloaded now.", "Stop that first, then try again."
            )
        for path in (card_path(settings, model), part_path(settings, model)):
            if path.exists():
                freed_bytes += path.stat().st_size
                path.unlink()
    return freed_bytes


def is_complete(settings: Settings, model: ModelCard) -> bool:
    try:
        return card_path(settings, model).stat().st_size == model.size_bytes
    except FileNotFoundError:
        return False


def card_path(settings: Settings, model: ModelCard) -> Path:
    return settings.models_dir / model.file


def part_path(settings: Settings, model: ModelCard) -> Path:
    return settings.models_dir / f"{model.file}.part"


@contextmanager
def locked(settings: Settings, model: ModelCard) -> Iterator[bool]:
    """Try to hold the model's lock; yields whether we do. The system frees it however the holder ends."""
    descriptor = open_lock(settings, model)
    try:
        yield try_lock(descriptor)
    finally:
        os.close(descriptor)


def open_lock(settings: Settings, model: ModelCard) -> int:
    path = settings.models_dir / f".{model.file}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ModelUnavailable(
            f"The models folder {settings.models_dir} cannot be written: {error.strerror}.",
            "Make it writable, or set VIVACE_CACHE_DIR to another folder.",
        ) from error


def try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_path(name: str) -> bool:
    return name.endswith(".gguf") or os.sep in name
