"""What the server and the engine process say to each other: length-prefixed msgpack on one stream socket.

Owns the frames' shapes and their framing. Does not own sockets or what the engine does with a frame.
A frame on the wire is four bytes of length (big endian) and one msgpack map with a `type`.
"""

import struct
from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

MAX_FRAME_BYTES = 64 * 1024 * 1024
_LENGTH = struct.Struct(">I")
_ENCODER = msgspec.msgpack.Encoder()


class Frame(msgspec.Struct, tag_field="type", tag=str.lower):
    pass


# ---- server → engine -------------------------------------------------------------------------------


class Open(Frame):
    """Begin a session. A token prefix that another session already holds is shared, not prefilled again."""

    session: str
    tokens: list[int] = []


class Append(Frame):
    """Put tokens at the end of a session's log and prefill them now. Ends with `Finished`."""

    session: str
    turn: str
    tokens: list[int] = []


class Generate(Frame):
    """Append `tokens`, then generate. Each token comes as `Tokens`; the turn ends with one `Finished`."""

    session: str
    turn: str
    tokens: list[int] = []
    max_tokens: int = 1024
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    stop: list[str] = []  # generation ends with the token that completes one of these
    stop_tokens: list[int] = []  # besides the model's own end-of-turn tokens


class Score(Frame):
    """Append `tokens`, then the log-probability of each candidate as what comes next. Ends with `Finished`.

    The candidates themselves leave no trace in the session.
    """

    session: str
    turn: str
    tokens: list[int] = []
    candidates: list[list[int]] = []


class Interrupt(Frame):
    """End a turn at the next step. What it has made so far stays in the log."""

    turn: str


class Rewind(Frame):
    """Cut a session's log to `length` tokens."""

    session: str
    length: int


class Fork(Frame):
    """A new session with the first `length` tokens of `source`, sharing its KV."""

    session: str
    source: str
    length: int


class Close(Frame):
    session: str


class Stats(Frame):
    pass


# ---- engine → server -------------------------------------------------------------------------------


class Ready(Frame):
    """The model is loaded. The first frame an engine sends."""

    model: str
    context_tokens: int  # KV cells, shared by all sessions
    trained_tokens: int  # the context the model was trained for
    threads: int
    load_ms: float
    pid: int


class Tokens(Frame):
    """Tokens of a running turn, as they are made."""

    turn: str
    tokens: list[int]


class Waterfall(msgspec.Struct, frozen=True):
    """Where a turn's time went, as the engine saw it."""

    queue_ms: float = 0.0  # frame received → first work on it
    prefill_ms: float = 0.0  # forward passes over the prompt
    first_token_ms: float = 0.0  # frame received → first token sent
    decode_ms: float = 0.0  # first token → last token
    overhead_ms: float = 0.0  # the engine's own work outside the runner, all steps together
    cached_tokens: int = 0  # prompt tokens whose KV was already there
    new_tokens: int = 0  # prompt tokens prefilled by this turn
    output_tokens: int = 0
    steps: int = 0


class Finished(Frame):
    """The one end of a turn. `reason`: stop, length, interrupted, appended, scored."""

    turn: str
    reason: str
    waterfall: Waterfall
    scores: list[float] = []


class Failed(Frame):
    """The end of a turn that could not be done; `code` is one of `errors`' codes."""

    turn: str
    code: str
    message: str


class StatsReply(Frame):
    sessions: int
    turns: int
    kv_tokens: int
    kv_cells: int
    tokens_prefilled: int
    tokens_generated: int
    uptime_s: float


ToEngine = Open | Append | Generate | Score | Interrupt | Rewind | Fork | Close | Stats
FromEngine = Ready | Tokens | Finished | Failed | StatsReply


class FrameError(ValueError):
    """The other side sent something that is not a frame."""


def pack(frame: Frame) -> bytes:
    body = _ENCODER.encode(frame)
    return _LENGTH.pack(len(body)) + body


F = TypeVar("F", ToEngine, FromEngine)


class Unpacker(Generic[F]):
    """Bytes in, whole frames out, however the stream cut them."""

    def __init__(self, decoder: "msgspec.msgpack.Decoder[F]") -> None:
        self._decoder: msgspec.msgpack.Decoder[F] = decoder
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[F]:
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > MAX_FRAME_BYTES:
                raise FrameError(f"a frame of {length} bytes; at most {MAX_FRAME_BYTES} are allowed")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            try:
                yield self._decoder.decode(body)
            except msgspec.MsgspecError as error:
                raise FrameError(str(error)) from error


def engine_unpacker() -> Unpacker[ToEngine]:
    return Unpacker(msgspec.msgpack.Decoder(ToEngine))


def server_unpacker() -> Unpacker[FromEngine]:
    return Unpacker(msgspec.msgpack.Decoder(FromEngine))
