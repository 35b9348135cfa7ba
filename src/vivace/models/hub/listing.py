"""Which files of a repository on the hub are the model that was asked for.

Owns reading the hub's list of files and choosing among them: a file by its path, a format of weights by its
name, all shards of one. Does not ask the network (`client`) or look into files (`header`).
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from vivace.errors import ModelUnavailable, UsageError
from vivace.models.hub.names import HubName, is_safe_path

USUAL_FORMATS = (
    "Q4_K_M",
    "MXFP4",
    "Q4_K_S",
    "Q4_0",
    "Q4_1",
    "IQ4_XS",
    "Q5_K_M",
    "Q6_K",
    "Q8_0",
    "F16",
    "BF16",
)
_SHARD = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NOT_MODELS = ("mmproj", "imatrix", "mtp/", "-assistant")  # parts of others, and what only drafts for them


class HubFile(msgspec.Struct, frozen=True):
    path: str
    size_bytes: int
    sha256: str


class _Lfs(msgspec.Struct):
    oid: str = ""
    sha256: str = ""
    size: int = 0


class _Entry(msgspec.Struct):
    path: str
    type: str = "file"
    lfs: _Lfs | None = None


def gguf_files(pages: Sequence[Any]) -> list[HubFile]:
    """Return the GGUF files in the hub's list that have a sha-256 and a name that can be ours."""
    try:
        entries = [entry for page in pages for entry in msgspec.convert(page, list[_Entry])]
    except msgspec.ValidationError as error:
        raise ModelUnavailable(f"The model hub's list of files cannot be read: {error}.") from error
    return [
        HubFile(entry.path, entry.lfs.size, sha256)
        for entry in entries
        if entry.type == "file" and entry.lfs and is_safe_path(entry.path) and entry.lfs.size > 0
        if _SHA256.fullmatch(sha256 := (entry.lfs.oid or entry.lfs.sha256).removeprefix("sha256:"))
    ]


def choose_files(name: HubName, files: Sequence[HubFile]) -> tuple[HubFile, ...]:
    """Return the file that is asked for, or all its shards in order."""
    models = [shards for shards in _models(files) if not _is_other(shards[0])]
    if not models:
        raise UsageError(
            f"{name.repo} has no GGUF file of a model.", "Look for a repository whose name ends in GGUF."
        )
    found = _matching(name, models)
    if found is None:
        known = ", ".join(shards[0].path for shards in models[:12])
        raise UsageError(f"{name.repo} has no {name.wanted or 'usual format'}.", f"It has: {known}.")
    _check_whole(found)
    return found


def _models(files: Sequence[HubFile]) -> list[tuple[HubFile, ...]]:
    """Put the shards of each model together. Whole files come first."""
    whole = [(file,) for file in files if not _SHARD.fullmatch(file.path)]
    shards: dict[str, list[HubFile]] = {}
    for file in sorted(files, key=lambda file: file.path):
        if match := _SHARD.fullmatch(file.path):
            shards.setdefault(f"{match['stem']}-{match['count']}", []).append(file)
    return [*sorted(whole, key=lambda one: one[0].path), *map(tuple, shards.values())]


def _matching(name: HubName, models: Sequence[tuple[HubFile, ...]]) -> tuple[HubFile, ...] | None:
    if name.is_file:
        return next((shards for shards in models if name.wanted in [file.path for file in shards]), None)
    if name.wanted:
        return next((shards for shards in models if is_format(shards[0].path, name.wanted)), None)
    if len(models) == 1:
        return models[0]
    for usual in USUAL_FORMATS:
        for shards in models:
            if is_format(shards[0].path, usual):
                return shards
    return None


def is_format(path: str, wanted: str) -> bool:
    """Return whether a file's name says that its weights have this format."""
    return bool(re.search(rf"(^|[-._/]){re.escape(wanted)}([-._/]|$)", path, re.IGNORECASE))


def _is_other(file: HubFile) -> bool:
    return any(word in file.path.lower() for word in _NOT_MODELS)


def _check_whole(shards: Sequence[HubFile]) -> None:
    match = _SHARD.fullmatch(shards[0].path)
    numbers = [int(found["number"]) for shard in shards if (found := _SHARD.fullmatch(shard.path))]
    if match and numbers != list(range(1, int(match["count"]) + 1)):
        raise ModelUnavailable(
            f"The repository has {len(numbers)} of {int(match['count'])} shards of {match['stem']}.",
            "Choose another format, or tell the owner of the repository.",
        )
