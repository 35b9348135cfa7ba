"""What of a prompt stays the same between folders and days, and what changes: the latter is read last.

Clients of coding put the folder, the date and the state of Git into their system text. Most chat templates
write that text in front of the tools, so that a new commit would have thousands of tokens of tools read
again. Where tools are long, the system text from its first such place on becomes a second system message
behind them. No word is left out or changed.

Owns where a system text is divided, and whether a family writes the two as meant. Does not own entries
(`prompting`) or tokens (`families`).
"""

import re
from collections.abc import Hashable, Sequence
from typing import Literal

import msgspec

from vivace.models.families.base import Entry, Family, Message, Tool
from vivace.models.tokenizer import Tokenizer

MOST_BEGINNINGS = 16
LONG_TOOLS_CHARS = 1024  # of their JSON: about 250 tokens, which a CPU reads in 2 s
# A folder (of two parts or more, and no example), a date, or a word for where and when one works.
CHANGING = re.compile(
    r"(?<![\w.:/\\])(?:~|[A-Za-z]:)?[/\\](?!path\b|absolute\b|home/user\b)[\w.@+-]+[/\\][\w.@+-]+"
    r"|\b20\d\d-\d\d-\d\d\b"
    r"|<env>|gitStatus|\btoday's date\b|\bworking directory:",
    re.IGNORECASE,
)
HEADING = re.compile(r"(?:^|\n)#+ [^\n]*\Z")  # at the end: it belongs to what follows
_HEAD, _TAIL, _ASKED, _TOOL = "aardvark", "badger", "coyote", "dormouse"


class KnownBeginnings:
    """The latest beginnings of prompts as tokens, by what they are made of. May be called from threads."""

    def __init__(self) -> None:
        self._latest: dict[Hashable, list[int]] = {}

    def get(self, key: Hashable) -> list[int] | None:
        return self._latest.get(key)

    def put(self, key: Hashable, tokens: list[int]) -> None:
        kept = list(self._latest.items())[1 - MOST_BEGINNINGS :]
        self._latest = {**dict(kept), key: tokens}


def divided(text: str) -> tuple[str, str]:
    """Return the part of a system text that stays the same, and the rest; all and "" if there is no such."""
    found = CHANGING.search(text)
    if found is None:
        return text, ""
    for gap in ("\n\n", "\n"):  # a paragraph's beginning, or else a line's
        at = text.rfind(gap, 0, found.start())
        head = HEADING.sub("", text[: max(at, 0)].rstrip()).rstrip()
        if head:
            return head, text[len(head) :].lstrip("\n")
    return text, ""


def system_of(entries: Sequence[Entry]) -> Message | None:
    """Return the system text that a conversation begins with."""
    first = entries[0] if entries else None
    is_system = isinstance(first, Message) and first.role == "system" and not first.is_open
    return first if is_system and isinstance(first, Message) else None


def with_changing_last(entries: list[Entry], tools: Sequence[Tool]) -> list[Entry]:
    """Return the entries of a new log with the changing rest of the system text as a message of its own."""
    system = system_of(entries)
    if system is None or len(msgspec.json.encode(tools)) < LONG_TOOLS_CHARS:
        return entries
    head, tail = divided(system.text)
    return [Message("system", head), Message("system", tail), *entries[1:]] if tail else entries


def tells_tools_between(family: Family, tokenizer: Tokenizer) -> bool:
    """Return whether a family writes tools behind a first system message and in front of a second one.

    Where it does not, the tools come first anyway, or a second system message would not be one.
    """
    tool = Tool(_TOOL, description="Sleeps.", parameters={"type": "object", "properties": {}})

    def written(role: Literal["system", "user"]) -> list[int]:
        entries = [Message("system", _HEAD), Message(role, _TAIL), Message("user", _ASKED)]
        return family.render(entries, tools=[tool])

    tokens = written("system")
    text = b"".join(map(tokenizer.token_bytes, tokens)).decode("utf-8", "replace")
    places = [text.find(name) for name in (_HEAD, _TOOL, _TAIL, _ASKED)]
    return -1 not in places and places == sorted(places) and tokens != written("user")
