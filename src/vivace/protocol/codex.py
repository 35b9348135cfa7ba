"""What the Codex CLI says of a request beside OpenAI's fields, as far as we act on it.

Owns reading `client_metadata`, where Codex puts what it would say in headers if a socket had them for each
request. Whatever is not understood is passed over: it is a stranger's, and another version's tomorrow.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

TURN = "x-codex-turn-metadata"  # JSON, in a string
MAX_CHARS = 16 * 1024
TITLE = "thread_title"  # a short turn beside the first one of a conversation, for the list of conversations


class _TurnMetadata(msgspec.Struct):
    thread_source: str = ""


def is_title(client_metadata: Mapping[str, Any] | None) -> bool:
    """Return whether the request only makes a title, for which nobody waits."""
    said = (client_metadata or {}).get(TURN)
    if not isinstance(said, str) or len(said) > MAX_CHARS:
        return False
    try:
        return msgspec.json.decode(said, type=_TurnMetadata).thread_source == TITLE
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
