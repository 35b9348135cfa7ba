"""Fetches the model of the settings where it is missing, with a bar: the same for every command.

Owns that order. Does not fetch (`models.download`) or draw (`show.progress`).
"""

from vivace.cli.show.progress import TerminalProgress
from vivace.config import Settings
from vivace.models.store import is_present


def fetch_model(settings: Settings) -> None:
    if not is_present(settings, settings.model):
        from vivace.models.download import ensure  # ssl and http.client: 25 ms that a warm start does not pay

        ensure(settings, settings.model, TerminalProgress())
