"""Fetches the model of the settings where it is missing, with a bar: the same for every command.

Owns that order, and what is said of a model of the hub before its download. Does not fetch
(`models.download`), draw (`show.progress`) or work out what this machine can run (`engine.tuning.fit`).
"""

import sys
from typing import TYPE_CHECKING

from vivace.cli.show.progress import TerminalProgress
from vivace.config import Settings
from vivace.models.catalog import STEERING
from vivace.models.presence import with_model_present
from vivace.models.store import is_present

if TYPE_CHECKING:
    from vivace.models.catalog import ModelCard


def with_model_here(settings: Settings) -> Settings:
    """Return settings whose model is on this machine; show a download on the terminal."""
    return with_model_present(settings, TerminalProgress(), lambda card: say_what_fits(settings, card))


def fetch_model(settings: Settings) -> None:
    if not is_present(settings, settings.model):
        from vivace.models.download import ensure  # ssl and http.client: 25 ms that a warm start does not pay

        ensure(settings, settings.model, TerminalProgress(), lambda card: say_what_fits(settings, card))


def say_what_fits(settings: Settings, card: "ModelCard", *, anyway: bool = False) -> None:
    """Say what the model is and how it would do here. Raise ModelUnavailable if it has too little room."""
    from vivace.engine.tuning.fit import check_fits, fit_here  # numpy, for a download only

    found = fit_here(settings, card)
    context = f"{card.context_tokens:,} tokens of context" if card.context_tokens else "context not stated"
    size = f"{card.size_bytes / 1e6:,.0f} MB"
    steering = STEERING[card.memory]
    told = f"{card.title}: {size}, licence {card.licence}, {context}; {steering}; here {found.words}."
    for line in (told, *card.notes):
        print(line, file=sys.stderr)
    if not anyway:
        check_fits(found, card)
