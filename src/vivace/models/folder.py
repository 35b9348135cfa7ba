"""A model as Hugging Face has it: a folder with config.json, tokenizer.json and safetensors.

Owns which files belong to it, that JSON in them is bounded, and that nothing outside is read because a file
inside names it. Links are followed: Hugging Face's own cache is made of them. Does not read weights
(`engine.runners.cuda.safetensors_folder`) or the vocabulary (`folder_vocab`).
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from vivace.errors import StartError

INDEX = "model.safetensors.index.json"
MOST_BYTES = {"tokenizer.json": 64 << 20, "tokenizer_config.json": 16 << 20, INDEX: 16 << 20}
OTHERS_MOST_BYTES = 1 << 20
MOST_SHARDS = 4096
WHOLE = "Get the whole folder of the model again."
ELSEWHERE = "A .gguf file of the same model runs on the CPU."
_SHARD = re.compile(r".*-(\d{1,6})-of-(\d{1,6})\.safetensors")

T = TypeVar("T")


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


class _Ends(msgspec.Struct):
    """Of generation_config.json and config.json."""

    eos_token_id: int | list[int] | None = None


class _Template(msgspec.Struct):
    name: str
    template: str


class _TokenizerConfig(msgspec.Struct):
    chat_template: str | list[_Template] | None = None
    eos_token: str | dict[str, Any] | None = None


class _Architecture(msgspec.Struct):
    model_type: str = ""


def read_json(folder: Path, name: str, kind: type[T]) -> T:
    """Read a JSON file of the folder as `kind`; raise `StartError` if it is not that."""
    try:
        return msgspec.convert(json.loads(_read(folder, name)), kind)
    except (ValueError, RecursionError, OverflowError) as error:  # msgspec's are ValueErrors too
        raise StartError(f"{folder.name}/{name} is not as it should be: {shown(error)}.", WHOLE) from error


def shown(what: object) -> str:
    """Return text for people: one short line without control characters."""
    return repr(str(what) or type(what).__name__)[1:-1][:160]


def has(folder: Path, name: str) -> bool:
    return (folder / name).is_file()


def weight_files(folder: Path) -> list[Path]:
    """Return all safetensors files of the model, in order; raise `StartError` if one is missing."""
    if has(folder, "model.safetensors"):  # before the index, as transformers does it
        names = ["model.safetensors"]
    elif has(folder, INDEX):
        names = sorted(set(read_json(folder, INDEX, _Index).weight_map.values()))
        for name in names:
            _check_shard_name(folder, name)
    else:
        found = (path.name for path in folder.glob("*.safetensors"))
        names = sorted(name for name in found if not name.startswith("."))
        names = sorted({*names, *_awaited(names)})
    if not names:
        raise _without_weights(folder)
    missing = [name for name in names if not has(folder, name)]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise StartError(f"{folder.name} lacks {shown(missing[0])}{more}, where weights of it are.", WHOLE)
    return [folder / name for name in names]


def identity(folder: Path) -> str:
    """Return a string that changes with the weights and their configuration. Saved KV belongs to it."""
    digest = hashlib.blake2b(_read(folder, "config.json"), digest_size=16)
    for path in weight_files(folder):
        facts = path.stat()
        digest.update(f"\n{path.name} {facts.st_size} {facts.st_mtime_ns}".encode())
    return digest.hexdigest()


def template_of_folder(folder: Path) -> str:
    """Return the chat template in the folder, else the model's architecture."""
    if has(folder, "chat_template.jinja"):
        return _read(folder, "chat_template.jinja").decode("utf-8", "replace")
    if has(folder, "tokenizer_config.json"):
        template = read_json(folder, "tokenizer_config.json", _TokenizerConfig).chat_template
        if isinstance(template, list):
            named = {each.name: each.template for each in template}
            template = named.get("default") or next(iter(named.values()), None)
        if template:
            return template
    return read_json(folder, "config.json", _Architecture).model_type


def end_ids(folder: Path) -> frozenset[int]:
    """Return the tokens that end a turn, by the generation configuration."""
    found: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        if has(folder, name):
            ids = read_json(folder, name, _Ends).eos_token_id
            found.update(ids if isinstance(ids, list) else [] if ids is None else [ids])
    return frozenset(found)


def end_name(folder: Path) -> str:
    """Return the name of the token that ends a turn, by the tokenizer configuration; "" if it names none."""
    if not has(folder, "tokenizer_config.json"):
        return ""
    end = read_json(folder, "tokenizer_config.json", _TokenizerConfig).eos_token
    name = end.get("content") if isinstance(end, dict) else end
    return name if isinstance(name, str) else ""


def _read(folder: Path, name: str) -> bytes:
    most_bytes = MOST_BYTES.get(name, OTHERS_MOST_BYTES)
    try:
        if not (folder / name).is_file():  # nor a pipe, on which we would wait for ever
            raise StartError(f"{folder.name} has no {name}.", WHOLE)
        with (folder / name).open("rb") as file:
            data = file.read(most_bytes + 1)
    except OSError as error:
        raise StartError(f"{folder.name}/{name} cannot be read: {error.strerror}.", WHOLE) from error
    if len(data) > most_bytes:
        raise StartError(f"{folder.name}/{name} has more than {most_bytes >> 20} MiB.", WHOLE)
    return data


def _check_shard_name(folder: Path, name: str) -> None:
    if Path(name).name != name or "\\" in name or "\0" in name or not name.endswith(".safetensors"):
        raise StartError(
            f"{folder.name}/{INDEX} names '{shown(name)}', which is no safetensors file beside it.",
            "Do not use this folder unless you know where it comes from.",
        )


def _awaited(names: list[str]) -> set[str]:
    """Return the names of all parts, where the name of one says how many there are."""
    awaited: set[str] = set()
    for name in names:
        if (
            (parts := _SHARD.fullmatch(name))
            and 0 < int(parts[2]) <= MOST_SHARDS
            and len(awaited) < MOST_SHARDS
        ):
            width, stem = len(parts[1]), name[: parts.start(1)]
            awaited |= {f"{stem}{n:0{width}}{name[parts.end(1) :]}" for n in range(1, int(parts[2]) + 1)}
    return awaited


def _without_weights(folder: Path) -> StartError:
    if file := next(iter(sorted(folder.glob("*.gguf"))), None):
        return StartError(
            f"{folder.name} has no safetensors, but {file.name}.", f"Name that file as the model: {file}"
        )
    if any(folder.glob("*.bin")):
        return StartError(
            f"{folder.name} has its weights in .bin files, which are programs and are not opened.",
            "Get the model as safetensors, or as a .gguf file.",
        )
    return StartError(f"{folder.name} has no *.safetensors.", WHOLE)
