"""The models that a user can choose from: the catalog's, those pulled from the hub, those recommended.

Owns that list and how far each is on its way here; every picker shows it. Does not know what this machine can
run (`engine.tuning.fit`) or what a server has loaded.
"""

import msgspec

from vivace.config import Settings
from vivace.models import store
from vivace.models.catalog import CATALOG, STEERING, Memory, ModelCard
from vivace.models.hub import records
from vivace.models.hub.curated import CURATED, Curated


class Choice(msgspec.Struct, frozen=True):
    name: str
    title: str
    size_bytes: int  # about, where it is not here
    licence: str
    context_tokens: int
    purpose: str
    active_share: float
    kv_token_bytes: int
    memory: Memory
    has_mtp: bool
    downloaded_bytes: int = 0
    path: str = ""  # of its file; "": it is not here, or not whole

    @property
    def steering(self) -> str:
        return STEERING[self.memory]

    @property
    def where(self) -> str:
        """Return where it is, in words."""
        if self.path:
            return self.path
        return (
            f"{self.downloaded_bytes / self.size_bytes:.0%} downloaded"
            if self.downloaded_bytes
            else "not here"
        )


def choices(settings: Settings) -> list[Choice]:
    """Return all models, those of the catalog first, then what is here, then what could be."""
    cards = [*CATALOG, *records.cards(settings)]
    names = {card.name for card in cards}
    here = [_of_card(settings, card) for card in cards]
    return [*here, *(_choice(model) for model in CURATED if model.name not in names)]


def _of_card(settings: Settings, card: ModelCard) -> Choice:
    path = str(store.card_path(settings, card)) if store.is_complete(settings, card) else ""
    return _choice(card, store.downloaded_bytes(settings, card), path)


def _choice(model: ModelCard | Curated, downloaded_bytes: int = 0, path: str = "") -> Choice:
    return Choice(
        name=model.name,
        title=model.title,
        size_bytes=model.size_bytes,
        licence=model.licence,
        context_tokens=model.context_tokens,
        purpose=model.purpose,
        active_share=model.active_share,
        kv_token_bytes=model.kv_token_bytes,
        memory=model.memory,
        has_mtp=model.has_mtp,
        downloaded_bytes=downloaded_bytes,
        path=path,
    )
