"""A prompt's content blocks as a message of ours: text with mentions, and unsaved texts of files.

Owns what each kind of block becomes. A link to a file, or a file that is embedded, is a mention where the
block stood; what is no file of this machine is quoted. Reads no file and asks nobody.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from acp.schema import (
    AudioContentBlock,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)

from vivace.agent.edits.write.answer import fence_for
from vivace.errors import UsageError

Block = (
    TextContentBlock
    | ImageContentBlock
    | AudioContentBlock
    | ResourceContentBlock
    | EmbeddedResourceContentBlock
)
_LINES = re.compile(r"L?(\d+)(?:[-:]L?(\d+))?")
_PLAIN = re.compile(r"[^\s,;()\[\]{}\"'`]+")


@dataclass
class Message:
    text: str = ""
    buffers: dict[Path, str] = field(default_factory=dict)  # whole texts of files that came with it


def read_blocks(blocks: Sequence[Block], folder: Path) -> Message:
    """Return the message. Raise UsageError for what no model of ours can read."""
    message, parts = Message(), []
    for block in blocks:
        match block:
            case TextContentBlock(text=text):
                parts.append(text)
            case ResourceContentBlock(uri=uri, name=name):
                parts.append(_mention(uri, folder) or f"[{name}]({uri})")
            case EmbeddedResourceContentBlock(resource=TextResourceContents(uri=uri, text=text)):
                parts.append(_embedded(uri, text, folder, message))
            case _:
                raise UsageError(
                    f"A prompt with a block of type {block.type!r} cannot be read.",
                    "Send text, links to files, or files as text.",
                )
    message.text = _joined(parts).strip()
    return message


def _embedded(uri: str, text: str, folder: Path, message: Message) -> str:
    """Return what stands for an embedded text: a mention of its file, or the text itself."""
    mention, place = _mention(uri, folder), _place(uri)
    if mention is None or place is None:
        fence = fence_for(text)
        return f"\n{uri}\n{fence}\n{text.rstrip()}\n{fence}\n"
    path, lines = place
    if not lines:
        message.buffers[path] = text
    return mention


def _mention(uri: str, folder: Path) -> str | None:
    """Return `@path` or `@path:lines` for a file of this machine, if it can be written so."""
    place = _place(uri)
    if place is None:
        return None
    path, lines = place
    shown = str(path.relative_to(folder) if path.is_relative_to(folder) else path)
    whole = f"{shown}:{lines}" if lines else shown
    if _PLAIN.fullmatch(whole):
        return f"@{whole}"
    return f'@"{whole}"' if '"' not in whole and "\n" not in whole else None


def _place(uri: str) -> tuple[Path, str] | None:
    """Return the file of a `file:` address, and the lines that it names: "" for all, or "3-9"."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return None
    path = Path(unquote(parts.path))
    if not path.is_absolute() or "\0" in str(path):
        return None
    found = _LINES.fullmatch(parts.fragment)
    if found is None:
        return path, ""
    return path, f"{found[1]}-{found[2] or found[1]}"


def _joined(parts: Sequence[str]) -> str:
    """Join the blocks as one text: a mention stands apart from the words around it."""
    text = ""
    for part in parts:
        needs_space = bool(text) and not text[-1].isspace() and bool(part) and not part[0].isspace()
        text += f" {part}" if needs_space and (part.startswith("@") or _ends_in_mention(text)) else part
    return text


def _ends_in_mention(text: str) -> bool:
    return text.split()[-1].startswith("@") if text.split() else False
