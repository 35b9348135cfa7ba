"""Conversations as a list shows them, without reading each of them line by line.

Owns what a row says, kept as long as its file does not change. Does not own the files
(`agent.conversation.transcript`).
"""

import contextlib
from functools import lru_cache
from pathlib import Path

import msgspec

from vivace.agent.conversation.opening import conversations_dir
from vivace.agent.conversation.transcript.file import SUFFIX
from vivace.agent.conversation.transcript.records import AnyRecord
from vivace.agent.conversation.transcript.talk_records import ConversationStarted, WasRenamed
from vivace.agent.conversation.transcript.turn_records import TurnBegun
from vivace.agent.memory.transcript_index import TranscriptIndex
from vivace.config import Settings
from vivace.web.messages.answers import ConversationRow

TITLE_CHARS = 120
_TURN, _TITLE = b'{"type":"turn.started"', b'{"type":"conversation.renamed"'

_decode = msgspec.json.Decoder(AnyRecord).decode


def rows(settings: Settings, folder: str, limit: int) -> list[ConversationRow]:
    """Return the conversations, the one that was used last first; only those of a folder if one is named."""
    found: list[ConversationRow] = []
    for file, mtime_ns, size in _files(conversations_dir(settings)):
        row = _row(file, mtime_ns, size)
        if row is not None and (not folder or row.folder == folder):
            found.append(row)
            if len(found) >= limit:
                break
    return found


def search(settings: Settings, words: str, limit: int) -> list[ConversationRow]:
    """Return the conversations that have these words, the best first, each once."""
    folder = conversations_dir(settings)
    found: dict[str, ConversationRow] = {}
    for hit in TranscriptIndex(folder).search(words, limit):
        if hit.id in found:
            continue
        file = folder / f"{hit.id}{SUFFIX}"
        with contextlib.suppress(OSError):
            state = file.stat()
            if row := _row(file, state.st_mtime_ns, state.st_size):
                found[hit.id] = msgspec.structs.replace(row, excerpt=hit.excerpt)
    return list(found.values())


def _files(folder: Path) -> list[tuple[Path, int, int]]:
    found = []
    for file in folder.glob(f"*{SUFFIX}"):
        with contextlib.suppress(OSError):
            state = file.stat()
            found.append((file, state.st_mtime_ns, state.st_size))
    return sorted(found, key=lambda each: each[1], reverse=True)


@lru_cache(maxsize=2048)
def _row(file: Path, mtime_ns: int, size: int) -> ConversationRow | None:
    """Return the row of a conversation; None if its file has no beginning."""
    del size
    began: ConversationStarted | None = None
    first, given, turns = "", "", 0
    try:
        with file.open("rb") as lines:
            for line in lines:
                if began is not None and not line.startswith((_TURN, _TITLE)):
                    continue
                turns += line.startswith(_TURN)
                if turns > 1 and line.startswith(_TURN):
                    continue
                record = _decode(line)
                match record:
                    case ConversationStarted():
                        began = record
                    case TurnBegun(text=text):
                        first = text
                    case WasRenamed(title=title):
                        given = title
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    if began is None:
        return None
    return ConversationRow(
        conversation=began.id,
        title=given or " ".join(first.split())[:TITLE_CHARS],
        folder=began.folder,
        model=began.model,
        started_at_s=began.at_s,
        used_at_s=mtime_ns / 1e9,
        turns=turns,
    )
