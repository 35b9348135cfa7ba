"""Conversations on disk as a list shows them: found, forked and deleted, without opening one.

Owns what is known of each, kept as long as its file does not change, and that one is deleted only while
nobody has it open. Does not own the files' format (`transcript`), nor conversations that go on (`opening`).
"""

import contextlib
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from vivace.agent.checked_lines import is_whole, seal_of
from vivace.agent.conversation.opening import conversations_dir
from vivace.agent.conversation.transcript.file import SUFFIX, Transcript, file_of
from vivace.agent.conversation.transcript.forking import fork_transcript
from vivace.agent.conversation.transcript.reading import read_beginning, read_history, read_line
from vivace.agent.conversation.transcript.record_log import RecordLog
from vivace.agent.events.talk import Renamed
from vivace.agent.events.turn import TurnStarted
from vivace.agent.memory.transcript_index import MAX_FOUND, TranscriptIndex
from vivace.config import Settings
from vivace.errors import ConversationNotFound, UsageError

TITLE_CHARS = 120
MAX_NAMED = 5  # ids in an error
_TURN, _TITLE = b'{"type":"turn.started"', b'{"type":"conversation.renamed"'


@dataclass(frozen=True)
class PastConversation:
    id: str
    title: str  # as it was renamed, or how its first message begins
    folder: str
    model: str
    started_at_s: float
    used_at_s: float
    turns: int
    excerpt: str = ""  # of a search: where the words stand
    turn: int = 0  # of a search: in which turn
    is_damaged: bool = False  # some lines of its file have changed
    is_folder_sure: bool = True  # or else the line that names it has changed

    @property
    def shown_title(self) -> str:
        """Return the title as lists show it: with a mark if the file is damaged."""
        return f"(damaged) {self.title}".rstrip() if self.is_damaged else self.title


def list_past(settings: Settings, folder: str = "", limit: int | None = None) -> list[PastConversation]:
    """Return the conversations, the one that was used last first; only those of a folder if one is named."""
    found: list[PastConversation] = []
    for file, mtime_ns, size in _files(conversations_dir(settings)):
        if limit is not None and len(found) >= limit:
            break
        past = _read(file, mtime_ns, size)
        if past is not None and (not folder or past.folder == folder or not past.is_folder_sure):
            found.append(past)
    return found


def search_past(settings: Settings, words: str, limit: int = MAX_FOUND) -> list[PastConversation]:
    """Return the conversations that have these words, the best first, each once."""
    folder = conversations_dir(settings)
    found: dict[str, PastConversation] = {}
    for hit in TranscriptIndex(folder).search(words, limit):
        if hit.id in found:
            continue
        file = folder / f"{hit.id}{SUFFIX}"
        with contextlib.suppress(OSError):
            state = file.stat()
            if past := _read(file, state.st_mtime_ns, state.st_size):
                found[hit.id] = replace(past, excerpt=hit.excerpt, turn=hit.turn)
    return list(found.values())


def id_of(settings: Settings, name: str) -> str:
    """Return the id that a person means: a whole one, or a part that only one of them has."""
    ids = [file.stem for file, _, _ in _files(conversations_dir(settings))]
    fitting = [name] if name in ids else [id for id in ids if name in id]
    if not fitting or not name:
        raise ConversationNotFound(f"There is no conversation {name!r}.", "`vivace sessions list` names all.")
    if len(fitting) > 1:
        more = ", …" if len(fitting) > MAX_NAMED else ""
        named = ", ".join(fitting[:MAX_NAMED])
        raise UsageError(f"{name!r} is a part of several IDs: {named}{more}.", "Write more of it.")
    return fitting[0]


def fork_past(settings: Settings, conversation_id: str) -> str:
    """Copy a conversation, open or not, to one that goes on alone from here. Return its id."""
    log = RecordLog()
    history = read_history(file_of(conversations_dir(settings), conversation_id), log)
    if not history.id:
        raise ConversationNotFound(f"The conversation {conversation_id!r} has no beginning.")
    forked, _, transcript = fork_transcript(settings, history, log.records)
    transcript.close()
    return forked.id


def delete_past(settings: Settings, conversation_id: str) -> None:
    """Delete a conversation. Raise `ConversationBusy` if somebody has it open."""
    file = file_of(conversations_dir(settings), conversation_id)
    transcript = Transcript(file)
    try:
        file.unlink()
    finally:
        transcript.close()


def _files(folder: Path) -> list[tuple[Path, int, int]]:
    found = []
    for file in folder.glob(f"*{SUFFIX}"):
        with contextlib.suppress(OSError):
            state = file.stat()
            found.append((file, state.st_mtime_ns, state.st_size))
    return sorted(found, key=lambda each: each[1], reverse=True)


@lru_cache(maxsize=2048)
def _read(file: Path, mtime_ns: int, size: int) -> PastConversation | None:
    """Return what a list shows of a conversation; None if the file is none of a conversation."""
    del size
    first, given, turns, damaged = "", "", 0, 0
    try:
        with file.open("rb") as lines:
            began, is_vague = read_beginning(file, lines.readline())
            if began is None:
                return None
            for line in lines:
                if not line.startswith((_TURN, _TITLE)):
                    damaged += not is_whole(line) and _is_broken(line)
                    continue
                turns += line.startswith(_TURN)
                if turns > 1 and line.startswith(_TURN):
                    damaged += not is_whole(line) and _is_broken(line)
                    continue
                record, is_damaged = read_line(line)
                damaged += is_damaged
                match record:
                    case TurnStarted(text=text):
                        first = text
                    case Renamed(title=title):
                        given = title
    except OSError:
        return None
    return PastConversation(
        id=began.id,
        title=given or " ".join(first.split())[:TITLE_CHARS],
        folder=began.folder,
        model=began.model,
        started_at_s=began.at_s,
        used_at_s=mtime_ns / 1e9,
        turns=turns,
        is_damaged=is_vague or damaged > 0,
        is_folder_sure=not is_vague,
    )


def _is_broken(line: bytes) -> bool:
    """Return whether a line has changed, as far as is seen without reading it."""
    return seal_of(line) == "broken" or not line.startswith(b"{") or not line.endswith(b"\n")
