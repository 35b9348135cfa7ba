"""A transcript read back: its records, the state that they add up to, and what is said of damage.

Owns which lines are damaged and that this is told where it happened, as an `error` of the turn, which every
face shows: nothing is dropped in silence, and nothing is removed. A damaged line that can still be read is
shown, but no entry of the journal is undone because of it. Does not own the file (`file`).
"""

import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from vivace.agent.checked_lines import is_whole, seal_of
from vivace.agent.conversation.transcript import edit_records
from vivace.agent.conversation.transcript.file import SUFFIX, is_id
from vivace.agent.conversation.transcript.history import History
from vivace.agent.conversation.transcript.record_log import RecordLog
from vivace.agent.conversation.transcript.records import AnyRecord
from vivace.agent.events import talk as talk_events
from vivace.agent.events import turn as turn_events
from vivace.agent.events.base import DAMAGED, SCHEMA, Failed
from vivace.agent.events.talk import ConversationStarted

LOST = "(What was said here cannot be read.)"
_LOST_NEWLINE = re.compile(rb'(,"crc":"[0-9a-f]{8}"\})[^\n](?=\{"type":)')


class _Typed(msgspec.Struct):
    """Any record, known or not."""

    type: str


_decode = msgspec.json.Decoder(AnyRecord).decode
_decode_type = msgspec.json.Decoder(_Typed).decode
_decode_text = msgspec.json.Decoder(str).decode


def read_line(line: bytes) -> tuple[AnyRecord | None, bool]:
    """Return what a line says, None if that cannot be known, and whether the line is damaged.

    A line of an unknown type is a later program's, and a last line without an end was cut off by a crash.
    """
    if is_whole(line):
        return _decoded(line), False
    if not line.endswith(b"\n") and is_whole(line[:-1] + b"\n"):
        return _decoded(line[:-1]), True  # its newline is another character now
    record, is_broken = _decoded(line), seal_of(line) == "broken"
    if record is not None:
        return (_harmless(record), True) if is_broken else (record, False)
    return None, is_broken or (line.endswith(b"\n") and not _is_of_another_type(line))


def _decoded(line: bytes) -> AnyRecord | None:
    try:
        record: AnyRecord = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return record


def _apart(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines, and two that have become one, because the newline between them changed, as two."""
    for line in lines:
        at = 0
        for lost in _LOST_NEWLINE.finditer(line) if line.count(b',"crc":"') > 1 else ():
            yield line[at : lost.end()]
            at = lost.end()
        yield line[at:]


def read_records(file: Path) -> Iterator[AnyRecord]:
    """Yield what the lines say. Damage is an `error` at the end of the turn in which it is."""
    damaged, has_turn = 0, False
    with file.open("rb") as lines:
        for number, line in enumerate(_apart(lines)):
            record, is_damaged = read_line(line)
            damaged += is_damaged
            if number == 0 and is_damaged:
                record = _beginning(file, line)
            if isinstance(record, turn_events.TurnStarted):
                if damaged > is_damaged and has_turn:
                    yield _damage(file, damaged - is_damaged)
                    damaged = int(is_damaged)
                has_turn = True
            if record is not None:
                yield record
    if damaged and not has_turn:
        yield turn_events.TurnStarted(turn=1, text=LOST)
    if damaged:
        yield _damage(file, damaged)
    if damaged and not has_turn:
        yield turn_events.TurnEnded(turn=1, status="stopped")


def read_history(file: Path, log: RecordLog | None = None) -> History:
    """Return the state that the file's lines add up to. The lines themselves go into the log."""
    history = History()
    for record in read_records(file):
        history.take(record)
        if log is not None:
            log.add(record)
    history.close()
    return history


def files_by_use(folder: Path) -> list[Path]:
    """Return the files of conversations, the one that was used last first."""
    return sorted(folder.glob(f"*{SUFFIX}"), key=lambda file: file.stat().st_mtime_ns, reverse=True)


def beginning_of(file: Path) -> tuple[ConversationStarted | None, bool]:
    """Return how a conversation began, if this is the file of one, and whether that line is damaged."""
    with file.open("rb") as lines:
        return read_beginning(file, lines.readline())


def read_beginning(file: Path, line: bytes) -> tuple[ConversationStarted | None, bool]:
    """Return how the conversation began, by its first line, and whether that is damaged."""
    record, is_damaged = read_line(line)
    if is_damaged:
        return _beginning(file, line), True
    return (record, False) if isinstance(record, ConversationStarted) else (None, False)


def _beginning(file: Path, line: bytes) -> ConversationStarted | None:
    """Return what is certain of a damaged first line: the id is the file's name. More may be legible."""
    if not is_id(file.stem):
        return None
    at_s = time.mktime(time.strptime(file.stem[:15], "%Y%m%d-%H%M%S"))
    folder, model = _text_of(b"folder", line), _text_of(b"model", line)
    return ConversationStarted(schema=SCHEMA, id=file.stem, folder=folder, model=model, at_s=at_s)


def _text_of(field: bytes, line: bytes) -> str:
    found = re.search(rb'"%b":("(?:[^"\\]|\\.)*+")' % field, line)
    try:
        return _decode_text(found[1]) if found else ""
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


def _harmless(record: AnyRecord) -> AnyRecord:
    """Return a record that may be wrong so that nothing is sent, undone or hidden because of it."""
    match record:
        case talk_events.EditsUndone() | talk_events.EditsRedone():
            return msgspec.structs.replace(record, entries=[])
        case talk_events.Rewound():
            return msgspec.structs.replace(record, entries=[], is_talk=False)
        case talk_events.QueueChanged():
            return msgspec.structs.replace(record, messages=[])
        case edit_records.EditWritten():
            return msgspec.structs.replace(record, entry=0)
    return record


def _is_of_another_type(line: bytes) -> bool:
    if not line.strip():
        return True
    try:
        return bool(_decode_type(line))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


def _damage(file: Path, lines: int) -> Failed:
    return Failed(
        code=DAMAGED,
        message=f"{'A line is' if lines == 1 else f'{lines} lines are'} damaged here in the file of this "
        "conversation: what can be read is shown.",
        hint=f"The file is kept as it is: {file}. A disk that changes what it keeps may be failing.",
    )
