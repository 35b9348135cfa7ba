"""Where model files are, whether one is present, and its removal.

Owns the models folder's layout: `FILE` is always complete and checked; `FILE.part` is what a pull has so far,
always a true beginning of `FILE`; `.FILE.lock` is held while someone changes either. And that of the tuned
folder, where `STEM.FINGERPRINT.*` was made from the file of that stem, and `.STEM.lock` is held meanwhile.
Does not fetch (`download`) and does not tune (`engine.tuning`).
"""

import fcntl
import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vivace.config import Settings
from vivace.errors import ModelUnavailable, UsageError
from vivace.models.catalog import ModelCard, card

FINGERPRINT_DIGITS = 16  # hexadecimal, of a model file, in the names of what was made from it


def model_path(settings: Settings, name: str) -> Path:
    """Return the path of model `name`, present or not. A path of a `.gguf` file or folder is its own."""
    if not _is_path(name):
        return card_path(settings, card(name))
    try:
        return _user_path(Path(name).expanduser())
    except (OSError, RuntimeError) as error:  # too long, not allowed, or the home of nobody
        raise UsageError(
            f"There is no model {name[:200]!r} that can be read.", f"The system says: {error}"[:200]
        ) from error


def _user_path(path: Path) -> Path:
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise UsageError(
                f"The folder {path} has no config.json: it is no model.",
                "Give a folder as Hugging Face has it, a .gguf file or a name from `vivace models`.",
            )
        return path.absolute()
    if not path.is_file():
        raise UsageError(
            f"There is no model file {path}.",
            "Give a .gguf file, a folder of safetensors or a name from `vivace models`.",
        )
    return path


def is_present(settings: Settings, name: str) -> bool:
    """Return whether the complete file is there. It gets its name after its checksum held."""
    return model_path(settings, name).exists() if _is_path(name) else is_complete(settings, card(name))


def remove(settings: Settings, model: ModelCard) -> int:
    """Delete the model's file, partial downloads and tuned files. Return the bytes freed."""
    freed_bytes = 0
    with locked(settings, model) as free, _held(open_tuning_lock(settings, Path(model.file).stem)) as untuned:
        if not free or not untuned:
            what = "downloaded" if not free else "tuned"
            raise ModelUnavailable(f"{model.name} is being {what} now.", "Stop that first, then try again.")
        for path in (card_path(settings, model), part_path(settings, model), *tuned_files(settings, model)):
            if path.exists():
                freed_bytes += path.stat().st_size
                path.unlink()
    return freed_bytes


def tuned_dir(settings: Settings) -> Path:
    """Return the folder of tuned files and measurements."""
    return settings.cache_dir / "tuned"


def tuned_files(settings: Settings, model: ModelCard) -> list[Path]:
    """Return what tuning made from the model's file: weights in other formats, and measurements."""
    prefix = f"{glob.escape(Path(model.file).stem)}.{'[0-9a-f]' * FINGERPRINT_DIGITS}."
    return sorted(tuned_dir(settings).glob(f"{prefix}*"))


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
    """Try to hold the model's lock; yield whether it is held. The system frees it when the holder ends."""
    with _held(open_lock(settings, model)) as is_ours:
        yield is_ours


def open_lock(settings: Settings, model: ModelCard) -> int:
    return _open_lock(settings.models_dir / f".{model.file}.lock")


def open_tuning_lock(settings: Settings, stem: str) -> int:
    return _open_lock(tuned_dir(settings) / f".{stem}.lock")


def _open_lock(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ModelUnavailable(
            f"The folder {path.parent} cannot be written: {error.strerror}.",
            "Make it writable, or set VIVACE_CACHE_DIR to another folder.",
        ) from error


@contextmanager
def _held(descriptor: int) -> Iterator[bool]:
    try:
        yield try_lock(descriptor)
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_path(name: str) -> bool:
    return name.endswith(".gguf") or os.sep in name
