"""Messages as bytes: 4 bytes of length, then msgpack.

Owns the frames and their bounds. A longer frame, or one that is no message, ends the connection. Does not own
the messages (`from_holder`, `from_face`).
"""

import asyncio
from collections.abc import Iterator, Sequence

import msgspec

from vivace.agent.conversation.sharing.wire import from_face, from_holder
from vivace.agent.conversation.sharing.wire.forms import Message
from vivace.agent.conversation.transcript.records import AnyRecord

VERSION = 2
CHUNK_BYTES = 1024 * 1024
MAX_FRAME_BYTES = 64 * 1024 * 1024  # a proposal has the old and the new text of each of its files

_encode = msgspec.msgpack.Encoder().encode
_decode_record = msgspec.msgpack.Decoder(AnyRecord).decode
decode_from_holder = msgspec.msgpack.Decoder(from_holder.FromHolder).decode
decode_from_face = msgspec.msgpack.Decoder(from_face.FromFace).decode


def record_chunks(records: Sequence[AnyRecord]) -> Iterator[from_holder.Records]:
    """Yield the records in messages of about 1 MiB."""
    chunk: list[msgspec.Raw] = []
    size_bytes = 0
    for record in records:
        chunk.append(msgspec.Raw(_encode(record)))
        size_bytes += len(chunk[-1])
        if size_bytes > CHUNK_BYTES:
            yield from_holder.Records(records=chunk)
            chunk, size_bytes = [], 0
    yield from_holder.Records(records=chunk)


def records_in(message: from_holder.Records) -> list[AnyRecord]:
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
