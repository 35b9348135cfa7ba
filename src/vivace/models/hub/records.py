"""What was pulled from the hub, or is being pulled: a card beside the first file of each such model.

Owns those cards on disk, written before the first byte of a model. A card that cannot be read counts for
nothing: the next pull writes it anew. Does not own the files themselves (`store`, `download`).
"""

import contextlib
from pathlib import Path

import msgspec

from vivace.config import Settings
from vivace.durable import replace_file
from vivace.models.catalog import ModelCard
from vivace.models.hub.names import is_safe_path

FOLDER = "hf"
SUFFIX = ".card.json"


def local_name(repo: str, path: str) -> str:
    """Return the name in the models folder of a file in a repository."""
    return f"{FOLDER}/{repo}/{path}"


def is_recorded(card: ModelCard) -> bool:
    """Return whether the model is one that has its card on disk: not one of the catalog."""
    return card.file.startswith(f"{FOLDER}/")


def cards(settings: Settings) -> list[ModelCard]:
    """Return the cards of all models of the hub that are here, whole or in part."""
    files = sorted((settings.models_dir / FOLDER).rglob(f"*{SUFFIX}"))
    return [card for file in files if (card := _read(settings, file))]


def find(settings: Settings, name: str) -> ModelCard | None:
    return next((card for card in cards(settings) if card.name == name), None)


def keep(settings: Settings, card: ModelCard) -> None:
    """Write the card. It is the old one or the new one, whenever the power goes."""
    replace_file(_file_of(settings, card), msgspec.json.format(msgspec.json.encode(card)))


def forget(settings: Settings, card: ModelCard) -> None:
    if is_recorded(card):
        _file_of(settings, card).unlink(missing_ok=True)


def _file_of(settings: Settings, card: ModelCard) -> Path:
    return settings.models_dir / f"{card.file}{SUFFIX}"


def _read(settings: Settings, file: Path) -> ModelCard | None:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        card = msgspec.json.decode(file.read_bytes(), type=ModelCard)
        is_ours = card.files and all(is_safe_path(each.name) for each in card.files)
        if is_ours and _file_of(settings, card) == file:
            return card
    return None
