"""What travels between the process that holds a conversation and a face that is attached to it.

Owns the shapes, one union for each direction, and their frames: 4 bytes of length, then msgpack. Bounded: a
longer frame, or one that is no message, ends the connection. Does not own events (`event_codec`).
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from vivace.agent.conversation.transcript.records import AnyRecord
from vivace.agent.edits.find.units import Unit
from vivace.agent.edits.write.live_diff import Row
from vivace.agent.loop.steps import ApprovalAsked
from vivace.agent.options import Options
from vivace.agent.turn_events import TurnKind

VERSION = 1
CHUNK_BYTES = 1024 * 1024
MAX_FRAME_BYTES = 64 * 1024 * 1024  # a proposal has the old and the new text of each of its files


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """What all messages are."""


# ---- values that need a form of their own -----------------------------------------------------------


class SourceKnown(Message, frozen=True, tag="source"):
    """A file as it was read. Later messages name it by its number."""

    number: int
    path: str
    target: str
    raw: bytes
    newline: str
    exists: bool


class HunkForm(msgspec.Struct, frozen=True, array_like=True):
    old_first: int
    old_count: int
    new_first: int
    new_count: int
    rows: tuple[Row, ...]


class FileForm(msgspec.Struct, frozen=True):
    """What one file of a proposal would become."""

    source: int
    unit: Unit
    instruction: str
    new_bytes: bytes
    hunks: tuple[HunkForm, ...]
    problems: tuple[str, ...] = ()
    is_removed: bool = False


class ProposalKnown(Message, frozen=True, tag="proposal"):
    """A proposal. Later messages name it by its number."""

    number: int
    files: tuple[FileForm, ...]
    missing: tuple[str, ...] = ()


class DiffKnown(Message, frozen=True, tag="diff"):
    """A unit that is rewritten now. Later messages name its diff by its number."""

    number: int
    old_lines: tuple[str, ...]
    first_line: int


class DecisionForm(msgspec.Struct, frozen=True):
    """A decision about a proposal."""

    kind: str  # accept, hunks, text or reject
    hunks: tuple[int, ...] = ()
    texts: tuple[bytes, ...] = ()
    reason: str = ""


class ResolutionForm(msgspec.Struct, frozen=True):
    """What is to be done about a file that changed meanwhile."""

    kind: str  # edit, file, text or stop
    text: bytes = b""


class ConflictForm(msgspec.Struct, frozen=True):
    source: int
    new_bytes: bytes | None
    unit: Unit | str
    current: bytes | None
    message: str
    draft: bytes | None = None


# ---- from the holder to a face ----------------------------------------------------------------------


class Welcome(Message, frozen=True, tag="welcome"):
    """The first answer. The records up to the last moment of rest follow, then `Joined`."""

    version: int
    faces: tuple[str, ...]  # the names of those that have it open, the holder's first
    options: Options = Options()


class Records(Message, frozen=True, tag="records"):
    """Some of the lines so far, in order."""

    records: list[msgspec.Raw]


class AtRest(Message, frozen=True, tag="at_rest"):
    """Nothing runs now. What was named by a number is not named again."""


class Joined(Message, frozen=True, tag="joined"):
    """All lines were sent. What has happened since comes as events, then whatever happens next."""


class Shown(Message, frozen=True, tag="shown"):
    """An event. Its body depends on its name."""

    name: str
    body: msgspec.Raw


class Asked(Message, frozen=True, tag="asked"):
    """A question to the user. The first answer of any face counts."""

    question: str
    proposal: int | None = None
    conflict: ConflictForm | None = None
    call: ApprovalAsked | None = None


class Closed(Message, frozen=True, tag="closed"):
    """The question was answered, or the edit was interrupted."""

    question: str


class Done(Message, frozen=True, tag="done"):
    """A command has ended."""

    id: int
    value: Any = None


class Refused(Message, frozen=True, tag="refused"):
    """A command has failed."""

    id: int
    code: str
    message: str
    hint: str = ""


FromHolder = (
    Welcome
    | Records
    | Joined
    | AtRest
    | SourceKnown
    | ProposalKnown
    | DiffKnown
    | Shown
    | Asked
    | Closed
    | Done
    | Refused
)


# ---- from a face to the holder ----------------------------------------------------------------------


class Hello(Message, frozen=True, tag="hello"):
    """The first message."""

    version: int
    name: str  # such as terminal
    is_asking: bool = False  # only for who has it open; the connection ends with `Welcome`


class Command(Message, frozen=True, kw_only=True):
    """Something to do. With an id, `Done` or `Refused` answers it."""

    id: int = 0


class Send(Command, frozen=True, tag="send"):
    text: str
    mentions: tuple[str, ...] | None = None
    kind: TurnKind | None = None


class RunQueue(Command, frozen=True, tag="queue.run"):
    pass


class OfferProposal(Command, frozen=True, tag="offer"):
    text: str
    sources: tuple[SourceKnown, ...]
    proposal: ProposalKnown


class Steer(Command, frozen=True, tag="steer"):
    text: str


class Stop(Command, frozen=True, tag="stop"):
    pass


class AnswerNow(Command, frozen=True, tag="answer_now"):
    pass


class AddNote(Command, frozen=True, tag="note"):
    text: str


class Prefill(Command, frozen=True, tag="prefill"):
    draft: str
    mentions: tuple[str, ...] | None = None


class AskBeside(Command, frozen=True, tag="btw"):
    question: str


class Cancel(Command, frozen=True, tag="cancel"):
    """End the command with that id, which is a question beside."""

    command: int


class Rewind(Command, frozen=True, tag="rewind"):
    turn: int
    code: bool = True
    talk: bool = True


class Undo(Command, frozen=True, tag="undo"):
    pass


class Redo(Command, frozen=True, tag="redo"):
    pass


class Compact(Command, frozen=True, tag="compact"):
    pass


class UndoCompact(Command, frozen=True, tag="compact.undo"):
    pass


class CountContext(Command, frozen=True, tag="context"):
    draft: str = ""
    mentions: tuple[str, ...] | None = None


class Rename(Command, frozen=True, tag="rename"):
    title: str


class QueueAdd(Command, frozen=True, tag="queue.add"):
    text: str
    mentions: tuple[str, ...] | None = None


class QueueChange(Command, frozen=True, tag="queue.change"):
    message: int
    text: str
    mentions: tuple[str, ...] | None = None


class QueueRemove(Command, frozen=True, tag="queue.remove"):
    message: int


class UseOptions(Command, frozen=True, tag="options"):
    options: Options


class UseModel(Command, frozen=True, tag="model"):
    model: str


class Answer(Command, frozen=True, tag="answer"):
    """The user's answer to a question. It has no effect if another face was first."""

    question: str
    decision: DecisionForm | None = None
    resolution: ResolutionForm | None = None
    is_allowed: bool = False
    is_kept: bool = False
    reason: str = ""


AnyCommand = (
    Send
    | RunQueue
    | OfferProposal
    | Steer
    | Stop
    | AnswerNow
    | AddNote
    | Prefill
    | AskBeside
    | Cancel
    | Rewind
    | Undo
    | Redo
    | Compact
    | UndoCompact
    | CountContext
    | Rename
    | QueueAdd
    | QueueChange
    | QueueRemove
    | UseOptions
    | UseModel
    | Answer
)
FromFace = Hello | AnyCommand

_encode = msgspec.msgpack.Encoder().encode
_decode_record = msgspec.msgpack.Decoder(AnyRecord).decode
decode_from_holder = msgspec.msgpack.Decoder(FromHolder).decode
decode_from_face = msgspec.msgpack.Decoder(FromFace).decode


def record_chunks(records: Sequence[AnyRecord]) -> Iterator[Records]:
    """Yield the records in messages of about 1 MiB."""
    chunk: list[msgspec.Raw] = []
    size_bytes = 0
    for record in records:
        chunk.append(msgspec.Raw(_encode(record)))
        size_bytes += len(chunk[-1])
        if size_bytes > CHUNK_BYTES:
            yield Records(records=chunk)
            chunk, size_bytes = [], 0
    yield Records(records=chunk)


def records_in(message: Records) -> list[AnyRecord]:
    """Return the records of a message."""
    return [_decode_record(record) for record in message.records]


def frame(message: Message) -> bytes:
    """Return the message as it travels."""
    data = _encode(message)
    return len(data).to_bytes(4, "big") + data


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Return the next message's bytes. Raise `EOFError` at the end, or if it is longer than it may be."""
    try:
        size = int.from_bytes(await reader.readexactly(4), "big")
        if size > MAX_FRAME_BYTES:
            raise EOFError(f"a frame of {size} bytes")
        return await reader.readexactly(size)
    except (OSError, asyncio.IncompleteReadError) as error:
        raise EOFError("the connection ended") from error
