"""Requests that clients send beside a user's turn, and for which nobody waits: titles, notes for later.

Owns how they are recognised, for all clients and all APIs; they go to the background tier. Whatever is not
understood is passed over: it is a stranger's, and another version's tomorrow.

| client | request | known by |
|---|---|---|
| Codex CLI | title | `client_metadata`, where Codex puts what it would say in headers |
| Claude Code | title | no tools, and a JSON schema whose one property is `title` |
| opencode | title | the first words of its system text |
| Qwen Code | memory extraction after each turn | the first words of its system text |
"""

from collections.abc import Mapping
from typing import Any

import msgspec

TURN = "x-codex-turn-metadata"  # JSON, in a string
MAX_CHARS = 16 * 1024
TITLE = "thread_title"  # a short turn beside the first one of a conversation, for the list of conversations
TITLE_TOKENS = 256  # of a title and its JSON; a small model may never end a string
SYSTEM_TEXTS = (
    "You are a title generator.",
    "You are now acting as the managed memory extraction subagent",
)


class _TurnMetadata(msgspec.Struct):
    thread_source: str = ""


def is_side_request(
    client_metadata: Mapping[str, Any] | None,
    system: str,
    schema: Mapping[str, Any] | None,
    *,
    has_tools: bool,
) -> bool:
    """Return whether nobody waits for the answer. `system`: the first text that is not the user's."""
    return (
        _is_codex_title(client_metadata)
        or (not has_tools and is_title_schema(schema))
        or system.lstrip().startswith(SYSTEM_TEXTS)
    )


def _is_codex_title(client_metadata: Mapping[str, Any] | None) -> bool:
    said = (client_metadata or {}).get(TURN)
    if not isinstance(said, str) or len(said) > MAX_CHARS:
        return False
    try:
        return msgspec.json.decode(said, type=_TurnMetadata).thread_source == TITLE
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False


def is_title_schema(schema: Mapping[str, Any] | None) -> bool:
    """Return whether an answer of this schema is a title and nothing else."""
    properties = (schema or {}).get("properties")
    return isinstance(properties, dict) and list(properties) == ["title"]
