"""Makes a copy of a model file in another format, and never half of one.

`FILE.part` is what is being written; `FILE` exists only when it is whole. Whatever goes wrong, also Ctrl-C,
the beginning is deleted and the model as downloaded is untouched. Owns the order of work. The writing itself
is llama.cpp's, in a child process, which can be ended in its middle.
"""

import os
from pathlib import Path

from vivace.engine.tuning.children.child import VariantFailed
from vivace.engine.tuning.children.wire import Done, Requantise
from vivace.engine.tuning.keys import usable_cpus
from vivace.engine.tuning.search.formats import Format
from vivace.engine.tuning.search.host import Host

SPARE_BYTES = 500_000_000  # stay free on the disk


def make(source: Path, target: Path, format: Format, size_bytes: int, host: Host) -> None:
    """Write `source` as `format` to `target`, about `size_bytes` large, unless it is there."""
    if target.exists():
        return
    part = target.with_name(f"{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        _check_space(target.parent, size_bytes, host)
        _write(source, part, format, size_bytes, host)
        _sync(part)
        part.replace(target)
        _sync(target.parent)
    except OSError as error:
        raise VariantFailed(f"{target.parent} cannot be written ({error.strerror or error})") from error
    finally:
        part.unlink(missing_ok=True)


def _check_space(folder: Path, size_bytes: int, host: Host) -> None:
    free_bytes = host.free_bytes(folder)
    if free_bytes < size_bytes + SPARE_BYTES:
        needed = f"{(size_bytes + SPARE_BYTES) / 1e9:.1f} GB"
        raise VariantFailed(f"it needs {needed} in {folder}, which has {free_bytes / 1e9:.1f} GB free")


def _write(source: Path, part: Path, format: Format, size_bytes: int, host: Host) -> None:
    written_bytes = 0

    def report_progress() -> None:
        nonlocal written_bytes
        now_bytes = part.stat().st_size if part.exists() else 0
        host.progress.advance(now_bytes - written_bytes)
        written_bytes = now_bytes

    job = Requantise(str(source), str(part), format.file_type, usable_cpus())
    with host.step(f"Making a {format.name} copy", size_bytes):
        child = host.start_child()
        try:
            child.ask(job, Done, while_waiting=report_progress)
            report_progress()
        except VariantFailed as failure:
            full = host.free_bytes(part.parent) < SPARE_BYTES
            raise VariantFailed(
                f"{failure}: the disk of {part.parent} is full" if full else str(failure)
            ) from failure
        finally:
            child.close()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
