"""`@path` and `@path:name` in a message: which files and units the user points at.

Owns how they are found in text and read. Does not own the grammar behind the colon (`edits.find.target`), nor
what is said of a mention that names nothing (`missing`).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vivace.agent.edits.apply.files import DISK, Files
from vivace.agent.edits.find.languages import fence_tag_for, language_for
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.target import Target, parse_target
from vivace.agent.edits.scope import named_unit
from vivace.errors import UsageError

_MENTION = re.compile(r'(?<![\w@`])@(?:"([^"\n]+)"|((?:\\ |[^\s,;()\[\]{}"\'`])+))')
_TRAILING = ".:!?*>…"


@dataclass(frozen=True)
class Mention:
    """What stands behind an @. It may be a file, or no path at all."""

    name: str  # `path` or `path:name`, without the @, quotes and backslashes
    at: int  # where its @ stands in the text
    is_quoted: bool


def mentions_in(text: str, folder: Path, files: Files = DISK) -> tuple[str, ...]:
    """Return the mentions whose file exists, in order and each once.

    `@dataclass` or `a@b.example` in a message are no mentions: there is no such file.
    """
    found = dict.fromkeys(each.name for each in all_mentions(text, folder, files))
    return tuple(name for name in found if is_file(name, folder, files))


def all_mentions(text: str, folder: Path, files: Files = DISK) -> Iterator[Mention]:
    """Yield all that is written like a mention, whether or not it names a file."""
    for found in _MENTION.finditer(text):
        quoted, plain = found.groups()
        name = quoted or _stripped(plain.replace("\\ ", " "), folder, files)
        yield Mention(name, found.start(), quoted is not None)


def target_of(mention: str, folder: Path) -> Target:
    """Return what a mention points at. Its path is relative to the conversation's folder."""
    path = Path(mention).expanduser() if mention.startswith("~/") else Path(mention)
    return parse_target(str(folder / path))


def read_mention(
    mention: str, folder: Path, files: Files = DISK, *, judged: Path | None = None
) -> tuple[str, str, str]:
    """Return the mention's name, the tag of its fence, and its text. Raise what is wrong with it.

    `judged`: where its path was judged to lead.
    """
    target = target_of(mention, folder)
    source = files.read(target.path, judged)
    unit = named_unit(source, list_units(source, language_for(target.path)), target)
    text = source.text_of(unit.first_line, unit.last_line) if unit else source.text
    return mention, fence_tag_for(target.path), text


def _stripped(mention: str, folder: Path, files: Files) -> str:
    """Return the mention without the sentence's own stop, unless the file is called so."""
    return mention if is_file(mention, folder, files) else mention.rstrip(_TRAILING)


def is_file(mention: str, folder: Path, files: Files) -> bool:
    """Return whether a mention names a file that is there."""
    try:
        return bool(mention) and files.is_file(target_of(mention, folder).path)
    except (UsageError, OSError, ValueError):
        return False
