"""The models that can answer, as a picker shows them.

Owns the list's order: the default, those that the server has, those that could be downloaded. Does not fetch.
"""

import msgspec

from vivace.client import http, warm
from vivace.config import Settings
from vivace.errors import VivaceError
from vivace.models.choices import choices
from vivace.web.messages.answers import ModelRow


def model_rows(settings: Settings) -> list[ModelRow]:
    """Return all models. Blocks for some milliseconds."""
    rows = {settings.model: ModelRow(name=settings.model, is_default=True)}
    for name in _at_the_server(settings):
        rows.setdefault(name, ModelRow(name=name))
    for choice in choices(settings):
        row = ModelRow(name=choice.name, is_here=bool(choice.path), title=choice.title)
        known = rows.get(choice.name)
        rows[choice.name] = msgspec.structs.replace(known, title=choice.title) if known else row
    return list(rows.values())


def _at_the_server(settings: Settings) -> list[str]:
    try:
        address = warm.running_server(settings)
        status, body = http.get(address.port, "/v1/models", address.token, timeout_s=5.0)
        listed = msgspec.json.decode(body)["data"] if status == 200 else []
    except (VivaceError, OSError, msgspec.MsgspecError, KeyError):
        return []
    return [str(each["id"]) for each in listed]
