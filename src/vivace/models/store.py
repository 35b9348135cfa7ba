"""Where model files are, whether one is present, and its removal.

Owns the models folder's layout: `FILE` is always complete and checked; `FILE.part` is what a pull has so far,
always a true beginning of `FILE`; a `FILE` that is a link is another program's (`adopting`); `.FILE.lock` is
held while someone changes either. What comes from a repository of the hub that the catalog does not know is
in `hf/OWNER/REPO` (`hub.records`). And that of the tuned folder, where `STEM.FINGERPRINT.*` was made from the
file of that stem; `.STEM.lock` is held meanwhile. Does not fetch (`download`) and does not tune
(`engine.tuning`).
"""

import difflib
import fcntl
import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vivace.config import Settings
from vivace.errors import ModelUnavailable, UsageError
from vivace.models import adopting
from vivace.models.catalog import CATALOG, ModelCard, ModelFile, pinned
from vivace.models.hub import records
from vivace.models.hub.curated import CURATED, curated
from vivace.models.hub.names import is_hub_name, read_name

FINGERPRINT_DIGITS = 16  # hexadecimal, of a model file, in the names of what was made from it


def model_path(settings: Settings, name: str) -> Path:
    """Return the path of model `name`, present or not. A path of a `.gguf` file or folder is its own.

    Raise `ModelUnavailable` for a model of the hub that nobody has begun to pull: its file is not known yet.
    """
    if not _is_path(name):
        if found := find_card(settings, name):
            return card_path(settings, found)
        raise ModelUnavailable(
            f"The model {name} is not on this machine.", f"Run `vivace models pull {name}`."
        )
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
    if _is_path(name):
        return model_path(settings, name).exists()
    found = find_card(settings, name)
    return found is not None and is_complete(settings, found)


def find_card(settings: Settings, name: str) -> ModelCard | None:
    """Return the card of a model. None: it is on the hub, and nobody has begun to pull it.

    Raise `UsageError` if there is no such model.
    """
    if model := pinned(name):
        return model
    if is_hub_name(name):
        read_name(name)  # or raise
    found = records.find(settings, full_name(settings, name))  # also one that was recommended once
    if not found and not is_hub_name(name) and not curated(name):
        raise _no_such_model(name)
    return found


def weights_bytes(settings: Settings, name: str) -> int | None:
    """Return about how large the model's weights are, present or not. None: only the hub knows."""
    if _is_path(name):
        path = Path(name).expanduser()
        files = path.rglob("*") if path.is_dir() else shards_of(path)
        return sum(file.stat().st_size for file in files if file.is_file())
    known = find_card(settings, name) or curated(name)
    return known.size_bytes if known else None


def shards_of(path: Path) -> list[Path]:
    """Return all files of the model whose first file is `path`."""
    stem, dash, count = path.stem.rpartition("-of-")
    if not dash or not stem.endswith("-00001"):
        return [path]
    pattern = f"{glob.escape(stem.removesuffix('-00001'))}-*-of-{glob.escape(count)}{path.suffix}"
    return sorted(path.parent.glob(pattern))


def present_cards(settings: Settings) -> list[ModelCard]:
    """Return the cards of all models whose files are complete: the catalog's, then those of the hub."""
    return [model for model in (*CATALOG, *records.cards(settings)) if is_complete(settings, model)]


def full_name(settings: Settings, name: str) -> str:
    """Return the one name of a model that can be called by several; an unknown one as it is.

    `qwen2.5-coder:7b` is `qwen2.5-coder-7b`, and `hf:OWNER/REPO` is whatever of it was pulled.
    """
    if is_hub_name(name):
        try:
            wanted = read_name(name)
        except UsageError:
            return name
        of_repo = [model for model in records.cards(settings) if model.hub_repo == wanted.repo]
        fitting = [model for model in of_repo if wanted.wanted.lower() in model.files[0].hub_path.lower()]
        return fitting[0].name if fitting else name
    dashed = name.replace(":", "-").lower()
    return dashed if dashed in _names() else name


def _names() -> list[str]:
    return [*(model.name for model in CATALOG), *(model.name for model in CURATED)]


def _no_such_model(name: str) -> UsageError:
    near = difflib.get_close_matches(name.lower(), _names(), n=1, cutoff=0.4)
    hint = f"Did you mean {near[0]}? " if near else ""
    known = f"Known models: {', '.join(_names())}; any other as hf:OWNER/REPO."
    return UsageError(f"There is no model called {name!r}.", f"{hint}{known}")


def remove(settings: Settings, model: ModelCard) -> int:
    """Delete the model's file, partial downloads and tuned files. Return the bytes freed.

    Of a file that belongs to another program only our link goes.
    """
    freed_bytes = 0
    with locked(settings, model) as free, _held(open_tuning_lock(settings, Path(model.file).stem)) as untuned:
        if not free or not untuned:
            what = "downloaded" if not free else "tuned"
            raise ModelUnavailable(f"{model.name} is being {what} now.", "Stop that first, then try again.")
        ours = (
            path for file in model.files for path in (file_path(settings, file), part_path(settings, file))
        )
        for path in (*ours, *tuned_files(settings, model)):
            if path.is_symlink():
                adopting.unlink(path)
            elif path.exists():
                freed_bytes += path.stat().st_size
                path.unlink()
        records.forget(settings, model)
    return freed_bytes


def tuned_dir(settings: Settings) -> Path:
    """Return the folder of tuned files and measurements."""
    return settings.cache_dir / "tuned"


def tuned_files(settings: Settings, model: ModelCard) -> list[Path]:
    """Return what tuning made from the model's file: weights in other formats, and measurements."""
    prefix = f"{glob.escape(Path(model.file).stem)}.{'[0-9a-f]' * FINGERPRINT_DIGITS}."
    return sorted(tuned_dir(settings).glob(f"{prefix}*"))


def is_complete(settings: Settings, model: ModelCard) -> bool:
    return all(has_file(settings, file) for file in model.files)


def has_file(settings: Settings, file: ModelFile) -> bool:
    path = file_path(settings, file)
    try:
        stat = path.stat()
    except OSError:
        return False
    return stat.st_size == file.size_bytes and adopting.is_unchanged(path, stat)


def owner_of(settings: Settings, model: ModelCard) -> str:
    """Return the program that the model's file belongs to; "": it is our own."""
    return adopting.owner_of(card_path(settings, model))


def check_adopted(settings: Settings, name: str) -> None:
    """Raise ModelUnavailable if the model was adopted and its file is not what it was."""
    if not _is_path(name) and (model := find_card(settings, name)):
        for file in model.files:
            adopting.check(file_path(settings, file), model.name)


def downloaded_bytes(settings: Settings, model: ModelCard) -> int:
    """Return how much of the model is here, in whole files and in parts."""
    done_bytes = 0
    for file in model.files:
        part = part_path(settings, file)
        if has_file(settings, file):
            done_bytes += file.size_bytes
        elif part.exists():
            done_bytes += part.stat().st_size
    return done_bytes


def card_path(settings: Settings, model: ModelCard) -> Path:
    """Return the path of the file that is loaded."""
    return file_path(settings, model.files[0])


def file_path(settings: Settings, file: ModelFile) -> Path:
    return settings.models_dir / file.name


def part_path(settings: Settings, file: ModelFile) -> Path:
    return settings.models_dir / f"{file.name}.part"


@contextmanager
def locked(settings: Settings, model: ModelCard) -> Iterator[bool]:
    """Try to hold the model's lock; yield whether it is held. The system frees it when the holder ends."""
    with _held(open_lock(settings, model)) as is_ours:
        yield is_ours


def open_lock(settings: Settings, model: ModelCard) -> int:
    path = card_path(settings, model)
    return _open_lock(path.with_name(f".{path.name}.lock"))


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
    return not is_hub_name(name) and (name.endswith(".gguf") or os.sep in name)
