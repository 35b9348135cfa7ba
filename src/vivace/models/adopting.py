"""Model files that other programs have on this machine: Ollama, LM Studio, the hub's own cache.

Owns where those keep files, and our links to them. Their files are read, never copied, moved or changed. What
is ours is a symbolic link under the model's name, and a note beside it of what the file was when its checksum
held. A hard link would keep a file that they deleted on the disk, and go on to show what they write into it.
Does not fetch (`download`).
"""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from vivace.config import foreign_folders
from vivace.durable import replace_file
from vivace.errors import ModelUnavailable
from vivace.models.catalog import ModelFile
from vivace.models.hub.names import is_safe_path

NOTE = ".adopted.json"
MOST_JSON_BYTES = 1 << 20
MOST_FILES = 20_000  # looked at in one program's folder
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_MODEL_LAYER = "application/vnd.ollama.image.model"


class Found(msgspec.Struct, frozen=True):
    """A file of another program."""

    program: str
    repo: str  # on the hub, where the program says it; else ""
    name: str  # its path in that repository, or in that program
    path: str  # the file itself: no link
    size_bytes: int
    sha256: str = ""  # as the program claims; nobody has computed it here


class Note(msgspec.Struct, frozen=True):
    """What an adopted file was when we linked it."""

    program: str
    path: str
    size_bytes: int
    changed_ns: int


def find_file(wanted: ModelFile, repo: str | None) -> Iterator[Found]:
    """Return files that may have these bytes: of that size, the likeliest first."""
    fitting = [each for each in find_all() if each.size_bytes == wanted.size_bytes]
    fitting = [each for each in fitting if not each.sha256 or each.sha256 == wanted.sha256]
    path = wanted.hub_path or wanted.name
    yield from sorted(
        fitting,
        key=lambda each: (not each.sha256, each.repo != repo, Path(each.name).name != Path(path).name),
    )


def find_all() -> list[Found]:
    """Return every model file that the other programs have. What cannot be read is passed over."""
    folders = foreign_folders()
    found: dict[str, Found] = {}
    for each in (*_of_hub(folders.hub), *_of_lm_studio(folders.lm_studio), *_of_ollama(folders.ollama)):
        found.setdefault(each.path, each)
    return list(found.values())


def _of_hub(root: Path) -> Iterator[Found]:
    """Yield files of the hub's cache: snapshots of links, whose targets are named by their sha-256."""
    for snapshots in _folders(root, "models--*--*/snapshots"):
        repo = snapshots.parent.name.removeprefix("models--").replace("--", "/", 1)
        for file in _gguf_files(snapshots):
            name = file.relative_to(snapshots).as_posix().partition("/")[2]
            if real := _real(file, root):
                claimed = real.name if re.fullmatch(r"[0-9a-f]{64}", real.name) else ""
                yield from _found("the hub's cache", repo, name, real, claimed)


def _of_lm_studio(roots: tuple[Path, ...]) -> Iterator[Found]:
    for root in roots:
        for file in _gguf_files(root):
            parts = file.relative_to(root).parts
            if len(parts) >= 3 and (real := _real(file, root)):
                yield from _found("LM Studio", "/".join(parts[:2]), "/".join(parts[2:]), real)


def _of_ollama(roots: tuple[Path, ...]) -> Iterator[Found]:
    """Yield the models of Ollama's manifests: HOST/OWNER/NAME/TAG, with the sha-256 of the file."""
    for root in roots:
        for manifest in _files(root / "manifests"):
            parts = manifest.relative_to(root / "manifests").parts
            digest = _digest_in(manifest) if len(parts) == 4 else None
            if digest and (real := _real(root / "blobs" / f"sha256-{digest}", root)):
                repo = "/".join(parts[1:3]) if parts[0] in ("hf.co", "huggingface.co") else ""
                yield from _found("Ollama", repo, f"{'/'.join(parts[2:])}.gguf", real, digest)


def _digest_in(manifest: Path) -> str | None:
    with contextlib.suppress(OSError, msgspec.MsgspecError, AttributeError, TypeError):
        if manifest.stat().st_size > MOST_JSON_BYTES:
            return None
        layers = msgspec.json.decode(manifest.read_bytes())["layers"]
        digests = [each["digest"] for each in layers if each["mediaType"] == _MODEL_LAYER]
        match = _DIGEST.fullmatch(digests[0]) if len(digests) == 1 else None
        return match[1] if match else None
    return None


def _found(program: str, repo: str, name: str, real: Path, sha256: str = "") -> Iterator[Found]:
    with contextlib.suppress(OSError):
        if is_safe_path(name):
            yield Found(program, repo, name, str(real), real.stat().st_size, sha256)


def _folders(root: Path, pattern: str) -> list[Path]:
    with contextlib.suppress(OSError):
        return sorted(folder for folder in root.glob(pattern) if folder.is_dir())
    return []


def _gguf_files(root: Path) -> Iterator[Path]:
    return (file for file in _files(root) if file.name.endswith(".gguf"))


def _files(root: Path) -> Iterator[Path]:
    """Yield the files below a folder, links to files too; links to folders are not followed."""
    seen = 0
    for folder, names, files in os.walk(root):
        names.sort()
        for name in sorted(files):
            seen += 1
            if seen > MOST_FILES:
                return
            yield Path(folder) / name


def _real(file: Path, root: Path) -> Path | None:
    """Return the regular file behind a path, if it is one of the program's own: below its folder."""
    with contextlib.suppress(OSError, RuntimeError, ValueError):  # RuntimeError: links in a circle
        real = file.resolve(strict=True)
        if real.is_file() and real.is_relative_to(root.resolve(strict=True)):
            return real
    return None


# ---- our links -------------------------------------------------------------------------------------------


def link(found: Found, ours: Path) -> None:
    """Make `ours` a link to the file, at once, with its note. Its checksum was seen to hold."""
    stat = Path(found.path).stat()
    note = Note(found.program, found.path, stat.st_size, stat.st_mtime_ns)
    replace_file(_note_of(ours), msgspec.json.encode(note))
    fresh = ours.with_name(f".{ours.name}.link")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(found.path)
    fresh.replace(ours)


def unlink(ours: Path) -> None:
    """Remove our link and its note, if it is one; never the file behind it."""
    if ours.is_symlink():
        ours.unlink()
    _note_of(ours).unlink(missing_ok=True)


def is_unchanged(ours: Path, stat: os.stat_result) -> bool:
    """Return whether the file at our path is our own, or the other program's as it was when we linked it."""
    note = _note(ours)
    return note is None or (stat.st_size, stat.st_mtime_ns) == (note.size_bytes, note.changed_ns)


def check(ours: Path, model: str) -> None:
    """Raise ModelUnavailable if our path is a link to a file that vanished or is not what it was."""
    note = _note(ours)
    if note is None:
        return
    try:
        if is_unchanged(ours, ours.stat()):
            return
        what = "was changed since it was adopted"
    except (OSError, RuntimeError):
        what = "is gone"
    raise ModelUnavailable(
        f"The file of {model} belongs to {note.program} and {what}: {note.path}.",
        f"Run `vivace models pull {model}`: it looks for the file again, or downloads it.",
    )


def owner_of(ours: Path) -> str:
    """Return the program whose file is behind our path; "" if it is our own, or absent."""
    note = _note(ours)
    return note.program if note else ""


def _note(ours: Path) -> Note | None:
    """Return what we wrote of a link that we made. A link without a note is the user's own."""
    if ours.is_symlink():
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            return msgspec.json.decode(_note_of(ours).read_bytes(), type=Note)
    return None


def _note_of(ours: Path) -> Path:
    return ours.with_name(f"{ours.name}{NOTE}")
