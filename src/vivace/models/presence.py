"""Settings whose model can be used: its file is on this machine, under a name that any process understands.

Owns the order: name, then file. Does not fetch (`download`) nor know where files are (`store`).
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from vivace.config import Settings
from vivace.models.progress import Progress
from vivace.models.store import full_name, is_present
from vivace.models.tokenizer import SCRIPTED

if TYPE_CHECKING:
    from vivace.models.download import Check


def with_model_present(settings: Settings, progress: Progress, check: "Check" = lambda _: None) -> Settings:
    """Return settings whose model is on this machine, fetched if it was missing and `check` lets it be."""
    if settings.is_elsewhere(settings.model):
        return settings
    settings = settings.having(model=_absolute(settings.model))
    if settings.model.startswith(SCRIPTED):
        return settings
    settings = settings.having(model=full_name(settings, settings.model))
    if not is_present(settings, settings.model):
        from vivace.models.download import ensure  # ssl and http.client: 25 ms that a warm start does not pay

        ensure(settings, settings.model, progress, check)
    return settings.having(model=full_name(settings, settings.model))  # the hub may have said which file


def _absolute(model: str) -> str:
    """Return the full name of a model that is a file or a folder: the server works in another folder."""
    scripted = SCRIPTED if model.startswith(SCRIPTED) else ""
    path = Path(model.removeprefix(SCRIPTED))
    is_here = path.is_file() or (os.sep in model and path.is_dir())  # a folder may have a model's name
    return f"{scripted}{path.resolve()}" if is_here else model
