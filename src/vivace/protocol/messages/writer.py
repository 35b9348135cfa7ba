"""One turn as a message: outcomes of a backend in, events out, or all of them as one answer.

Owns the order of the events, and that the answer is the events put together. Does not own the shapes
(`answer`) or how long a client may wait.

A call is held back until it is whole, as in chat completions: half a command must never reach a client. A
malformed call is sent as text. Blocks come one after the other, each closed before the next begins.
"""

import secrets
from collections.abc import Callable, Iterator

import msgspec

from vivace.protocol.messages.answer import (
    Block,
    BlockDelta,
    BlockStart,
    BlockStop,
    Event,
    InputPiece,
    Message,
    MessageDelta,
    MessageStart,
    MessageStop,
    MessageUsage,
    Piece,
    Ping,
    SignaturePiece,
    StopDelta,
    TextBlock,
    TextPiece,
    ThinkingBlock,
    ThinkingPiece,
    ToolUseBlock,
    usage_of,
)
from vivace.protocol.messages.said_calls import SaidCalls
from vivace.protocol.shapes.events import Usage
from vivace.protocol.shapes.outcomes import (
    Broken,
    CallBegun,
    CallDelta,
    CallDone,
    CallInvalid,
    Ended,
    ModelProgress,
    Outcome,
    Queued,
    ReasoningDelta,
    Started,
    TextDelta,
)

Sign = Callable[[str], str]


class MessageWriter:
    def __init__(
        self, response_id: str, model: str, sign: Sign, said: SaidCalls, *, is_marked: bool = False
    ) -> None:
        self._is_marked = is_marked  # what is read counts as put into a cache
        self._message = Message(id=f"msg_{response_id.removeprefix('resp_')}", model=model)
        self._sign = sign
        self._said = said
        self._content: list[Block] = []  # closed blocks
        self._open: type[TextBlock] | type[ThinkingBlock] | None = None
        self._texts: list[str] = []  # of the open block
        self._call: CallBegun | None = None
        self._held: list[str] = []  # of the call
        self._is_lost = False  # the last call was malformed
        self.is_over = False

    def begin(self, known: Usage | None = None) -> list[Event]:
        """Return the first event; `known` is what is known of the prompt so far."""
        usage = usage_of(known, is_marked=self._is_marked) if known else MessageUsage()
        return [MessageStart(msgspec.structs.replace(self._message, usage=usage))]

    def write(self, outcome: Outcome) -> list[Event]:
        """Return the events of an outcome. A turn that broke has none: the transport sends the error."""
        assert not self.is_over, "a turn ends exactly once"
        self.is_over = isinstance(outcome, Ended | Broken)
        return list(self._events(outcome))

    def keep_alive(self) -> list[Event]:
        """Return an empty piece of the open block. Claude Code gives up a stream without any for 285 s."""
        is_thinking = self._open is ThinkingBlock
        return list(self._piece(ThinkingBlock, "") if is_thinking else self._piece(TextBlock, ""))

    def message(self) -> Message:
        """Return the whole answer, once it has ended well."""
        assert self._message.stop_reason, "only a turn that ended has an answer"
        return self._message

    def _events(self, outcome: Outcome) -> Iterator[Event]:
        match outcome:
            case Queued() | ModelProgress() | Started():
                yield Ping()
            case TextDelta(delta=delta):
                yield from self._say(TextBlock, delta)
            case ReasoningDelta(delta=delta):
                yield from self._say(ThinkingBlock, delta)
            case CallBegun():
                self._drop_call()
                self._call = outcome
            case CallDelta(delta=delta):
                assert self._call is not None, "no call is open"
                self._held.append(delta)
            case CallDone():
                yield from self._whole_call()
            case CallInvalid(text=text):
                yield from self._say(TextBlock, text)
                self._is_lost = True
            case Ended():
                yield from self._finish(outcome)

    def _say(self, kind: type[TextBlock] | type[ThinkingBlock], delta: str) -> Iterator[Event]:
        self._drop_call()
        if delta:
            yield from self._piece(kind, delta)

    def _piece(self, kind: type[TextBlock] | type[ThinkingBlock], delta: str) -> Iterator[Event]:
        if self._open is not kind:
            yield from self._close()
            self._open = kind
            yield BlockStart(len(self._content), kind())
        self._texts.append(delta)
        piece: Piece = TextPiece(delta) if kind is TextBlock else ThinkingPiece(delta)
        yield BlockDelta(len(self._content), piece)

    def _close(self) -> Iterator[Event]:
        """Close the open block, if there is one."""
        kind, text = self._open, "".join(self._texts)
        self._open, self._texts = None, []
        if kind is None:
            return
        index = len(self._content)
        if kind is TextBlock:
            self._content.append(TextBlock(text))
        else:
            signature = self._sign(text)
            self._content.append(ThinkingBlock(text, signature))
            yield BlockDelta(index, SignaturePiece(signature))
        yield BlockStop(index)

    def _whole_call(self) -> Iterator[Event]:
        call, words = self._call, "".join(self._held) or "{}"
        assert call is not None, "no call is open"
        self._drop_call()
        if not _is_object(words):  # an upstream's: nobody could run it
            yield from self._say(TextBlock, words)
            return
        yield from self._close()
        call_id = call.call_id or f"toolu_{secrets.token_hex(12)}"
        self._said.remember(call_id, words)
        index = len(self._content)
        self._content.append(ToolUseBlock(call_id, call.name, msgspec.Raw(words.encode())))
        yield BlockStart(index, ToolUseBlock(call_id, call.name, {}))
        yield BlockDelta(index, InputPiece(words))
        yield BlockStop(index)

    def _drop_call(self) -> None:
        """Drop an open call, since something else follows."""
        self._call, self._held, self._is_lost = None, [], False

    def _finish(self, end: Ended) -> Iterator[Event]:
        if not self._content and self._open is None:
            yield from self._piece(TextBlock, "")  # an empty answer is an answer
        yield from self._close()
        reason = self._reason(end)
        sequence = end.stop_text if reason == "stop_sequence" else None
        usage = usage_of(end.usage, is_marked=self._is_marked)
        self._message = msgspec.structs.replace(
            self._message, content=self._content, stop_reason=reason, stop_sequence=sequence, usage=usage
        )
        yield MessageDelta(StopDelta(reason, sequence), usage)
        yield MessageStop()

    def _reason(self, end: Ended) -> str:
        is_cut = self._call is not None or (self._is_lost and end.reason != "stop")
        if end.reason in ("length", "interrupted") or is_cut:  # half an answer must not look whole
            return "max_tokens"
        if end.stop_text:
            return "stop_sequence"
        return "tool_use" if any(isinstance(block, ToolUseBlock) for block in self._content) else "end_turn"


def _is_object(words: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(words), dict)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
