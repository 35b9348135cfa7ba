"""What the server and the engine process say to each other: length-prefixed msgpack on one stream socket.

Owns the frames' shapes and their framing. Does not own sockets or what the engine does with a frame.
A frame on the wire is four bytes of length (big endian) and one msgpack map with a `type`.
"""

import struct
from collections.abc import Callable
from typing import Generic, Literal, TypeVar

import msgspec

from vivace.models.families.base import Grammar as Grammar

MAX_FRAME_BYTES = 64 * 1024 * 1024
LENGTH_BYTES = 4
_length_at = struct.Struct(">I").unpack_from
_ENCODER = msgspec.msgpack.Encoder()

Tier = Literal["realtime", "background"]


class Frame(msgspec.Struct, tag_field="type", tag=str.lower):
    pass


# ---- server → engine -------------------------------------------------------------------------------


class Open(Frame):
    """Begin a session. A token prefix that the same tenant has in KV already is not prefilled again."""

    session: str  # a name that the server chooses
    tokens: list[int] = []  # the beginning of the log, if the session existed on a former engine
    tenant: str = ""  # KV is shared between sessions of one tenant only


class Append(Frame):
    """Put tokens at the end of a session's log and prefill them now. Ends with `Finished`.

    A provisional tail is text that is still being typed. Whatever comes next in this session replaces it: of
    the next tokens only those behind the common beginning are prefilled. It gives way to realtime turns, and
    shares what they leave with background ones.
    """

    session: str
    turn: str
    tokens: list[int] = []
    tier: Tier = "realtime"
    is_provisional: bool = False
    kept_tokens: int = 0  # of the log, from its start: their KV is kept on disk for other sessions


class Sampling(msgspec.Struct, frozen=True):
    """How a token is chosen. The defaults are greedy and change nothing."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0  # 0: all
    min_p: float = 0.0  # leave out what is less likely than this share of the likeliest
    repetition_penalty: float = 1.0  # divides the logits of tokens that are in the log
    presence_penalty: float = 0.0  # taken off tokens that this turn has said
    frequency_penalty: float = 0.0  # and this for each time it said them
    logit_bias: dict[int, float] = {}  # added to the logits of these tokens
    seed: int = 0  # a token is drawn with the key (seed, position)
    top_logprobs: int | None = None  # report each token's log-probability, and those of the N likeliest


class Generate(Frame):
    """Append `tokens`, then generate. Tokens come as `Tokens`; the turn ends with one `Finished`."""

    session: str
    turn: str
    tokens: list[int] = []
    max_tokens: int = 1024  # of the answer
    sampling: Sampling = Sampling()
    stop: list[str] = []  # generation ends with the token that completes one of these
    stop_tokens: list[int] = []  # besides the model's own end-of-turn tokens
    grammar: Grammar | None = None
    prediction: list[int] = []  # what the output will resemble; drafts are taken from it first
    use_drafts: bool = True
    tier: Tier = "realtime"
    # This many of the log's last tokens are the beginning of this answer, generated on a former engine.
    prior_output_tokens: int = 0
    kept_tokens: int = 0  # as in `Append`


class Score(Frame):
    """Append `tokens`, then the log-probability of each candidate as what comes next. Ends with `Finished`.

    The candidates themselves leave no trace in the session.
    """

    session: str
    turn: str
    tokens: list[int] = []
    candidates: list[list[int]] = []
    tier: Tier = "realtime"


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


class Park(Frame):
    """Move an idle session's KV to disk. It comes back by itself with the session's next turn."""

    session: str


class Close(Frame):
    """End a session. Its KV is free for others."""

    session: str


class Stats(Frame):
    """Ask how the engine is. It answers with one `StatsReply`, also in the middle of a long pass."""


# ---- engine → server -------------------------------------------------------------------------------


class Loading(Frame):
    """The model is not loaded yet, but the engine gets on with it. Comes only before `Ready`."""

    read_bytes: int = 0  # of the model's files
    total_bytes: int = 0  # 0: not known


class Ready(Frame):
    """The model is loaded: from now on the engine is there to be asked."""

    model: str
    context_tokens: int  # KV cells, shared by all sessions
    trained_tokens: int  # the context the model was trained for
    limit_tokens: int  # the longest that one session may be
    yarn_factor: float  # scales positions to reach beyond the trained context; 1: not scaled
    threads: int
    load_ms: float
    pid: int
    device: str = "cpu"  # what computes
    why_no_gpu: str = ""  # if there is one that could not be used
    place: str = ""  # which runner on which device, for people
    gpu_devices: list[str] = []  # GPUs of this machine that could run the same, this one first


class TokenLogprob(msgspec.Struct, frozen=True):
    """A token and its log-probability (natural logarithm)."""

    token: int
    logprob: float


class PositionLogprobs(msgspec.Struct, frozen=True):
    """The log-probability of the chosen token, and those of the most likely tokens at its position."""

    chosen: TokenLogprob
    top: list[TokenLogprob] = []


class Tokens(Frame, omit_defaults=True):
    """Tokens of a running turn, as they are made: several where a draft was accepted."""

    turn: str
    tokens: list[int]
    logprobs: list[PositionLogprobs] = []  # one a token, if log-probabilities were asked for
    cached_tokens: int = -1  # with the turn's first: prompt tokens whose KV was there


class Reading(Frame):
    """How far a long prompt is read. Comes about twice a second, before the turn's first `Tokens`."""

    turn: str
    read_tokens: int  # of those whose KV was not there
    total_tokens: int


class Waterfall(msgspec.Struct, frozen=True):
    """Where a turn's time went, as the engine saw it."""

    queue_ms: float = 0.0  # frame received → first work on it
    restore_ms: float = 0.0  # KV read back from disk
    prefill_ms: float = 0.0  # forward passes over the prompt
    first_token_ms: float = 0.0  # frame received → first token sent
    decode_ms: float = 0.0  # first token → last token
    draft_ms: float = 0.0  # finding drafts
    grammar_ms: float = 0.0  # compiling the grammar and computing its masks
    overhead_ms: float = 0.0  # the engine's own work between passes, all steps together
    cached_tokens: int = 0  # prompt tokens whose KV was already there, in memory or on disk
    restored_tokens: int = 0  # those of them that came from disk
    new_tokens: int = 0  # prompt tokens prefilled by this turn
    reread_tokens: int = 0  # those of them that were read before, but no saved state could go on from there
    output_tokens: int = 0
    steps: int = 0  # forward passes
    draft_accepted: int = 0  # drafted tokens that the model said too
    draft_rejected: int = 0


class Finished(Frame):
    """The one end of a turn. `reason`: stop, length, interrupted, appended, scored."""

    turn: str
    reason: str
    waterfall: Waterfall
    scores: list[float] = []  # of a `Score`: one a candidate, in their order


class Failed(Frame):
    """The end of a turn that could not be done; `code` is one of `errors`' codes."""

    turn: str
    code: str
    message: str


class StatsReply(Frame):
    """How the engine is, as an answer to `Stats`."""

    sessions: int  # open ones
    turns: int  # running and waiting ones
    kv_tokens: int  # cells in use
    kv_cells: int  # cells there are
    parked_bytes: int  # KV on disk
    tokens_prefilled: int  # since the engine's start
    tokens_generated: int  # since the engine's start
    uptime_s: float
    parked_memory_bytes: int = 0  # KV of idle sessions in host memory, for a GPU


ToEngine = Open | Append | Generate | Score | Interrupt | Rewind | Fork | Park | Close | Stats
FromEngine = Loading | Ready | Reading | Tokens | Finished | Failed | StatsReply


class FrameError(ValueError):
    """The other side sent something that is not a frame."""


def pack(frame: Frame) -> bytes:
    body = _ENCODER.encode(frame)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


F = TypeVar("F", ToEngine, FromEngine)


class Unpacker(Generic[F]):
    """Bytes in, whole frames out, however the stream cut them."""

    def __init__(self, decoder: "msgspec.msgpack.Decoder[F]") -> None:
        self._decode: Callable[[bytes | bytearray], F] = decoder.decode
        self._rest = bytearray()  # the beginning of a frame

    def feed(self, data: bytes) -> list[F]:
        """Return the frames that are whole now. After a `FrameError` the stream is of no use.

        Every token comes this way: one frame in one read takes 2.5 µs, of which decoding it is 1.2.
        """
        frames: list[F] = []
        stream: bytes | bytearray = data
        if self._rest:
            self._rest += data
            stream = self._rest
        at, size, decode = 0, len(stream), self._decode
        try:
            while at + LENGTH_BYTES <= size:
                (length,) = _length_at(stream, at)
                start, end = at + LENGTH_BYTES, at + LENGTH_BYTES + length
                if end > size:
                    _check_length(length)
                    break
                frames.append(decode(stream[start:end]))
                at = end
        except msgspec.MsgspecError as error:
            raise FrameError(str(error)) from error
        if stream is self._rest:
            del self._rest[:at]
        elif at < size:
            self._rest += stream[at:]
        return frames


def _check_length(length: int) -> None:
    if length > MAX_FRAME_BYTES:
        raise FrameError(f"a frame of {length} bytes; at most {MAX_FRAME_BYTES} are allowed")


def engine_unpacker() -> Unpacker[ToEngine]:
    return Unpacker(msgspec.msgpack.Decoder(ToEngine))


def server_unpacker() -> Unpacker[FromEngine]:
    return Unpacker(msgspec.msgpack.Decoder(FromEngine))
