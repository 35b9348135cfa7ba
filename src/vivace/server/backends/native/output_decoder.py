"""The output of a model, from tokens to outcomes: characters, stop strings, calls and reasoning.

Owns the order of decoding: bytes to whole characters (`text_stream`), then the family's parser; and the
shortcut that nearly every token takes, because it is text and can be nothing else. Does not own where
outcomes go.
"""

from collections.abc import Sequence
from typing import Any

from vivace.engine.wire.frames import PositionLogprobs, TokenLogprob
from vivace.models.families.base import (
    CallArguments,
    CallEnd,
    CallError,
    CallStart,
    Family,
    Parser,
    Part,
    ReasoningPart,
    TextPart,
)
from vivace.models.tokenizer import Tokenizer
from vivace.protocol.shapes.outcomes import (
    CallBegun,
    CallDelta,
    CallDone,
    CallInvalid,
    Outcome,
    ReasoningDelta,
    TextDelta,
)
from vivace.protocol.writing.text_stream import TextStream


class TokenTexts(dict[int, str]):
    """The text of each token that is whole characters by itself; "" for all others. Filled as it is used."""

    def __init__(self, family: Family, tokenizer: Tokenizer) -> None:
        super().__init__()
        self._controls = family.controls
        self._tokenizer = tokenizer

    def __missing__(self, token: int) -> str:
        piece = b"" if token in self._controls else self._tokenizer.token_bytes(token)
        try:
            text = piece.decode("utf-8")
        except UnicodeDecodeError:
            text = ""
        self[token] = text
        return text


class OutputDecoder:
    def __init__(
        self,
        family: Family,
        tokenizer: Tokenizer,
        texts: TokenTexts,
        parser: Parser,
        stops: Sequence[str],
        *,
        is_held: bool,
    ) -> None:
        """`is_held`: a grammar constrains the output, so that what begins as a call is one."""
        self._tokenizer = tokenizer
        self._texts = texts
        self._controls = family.controls
        self._parser = parser
        self._stream = TextStream(stops)
        self._starts = self._parser.marker_starts | self._stream.stop_starts
        self._is_sure = is_held and not stops  # a stop string may come in the middle of a call
        self._logprobs: list[Any] = []  # of tokens whose text is still held back
        self.reasoning_tokens = 0
        self.is_in_call = False
        self.is_reasoning = False
        self._plain = self._kind_of_plain()

    @property
    def is_stopped(self) -> bool:
        return self._stream.is_stopped

    @property
    def stop_text(self) -> str:
        """Return the stop string that the answer has come to; "" if there is none."""
        return self._stream.stop_text

    def decode_plain(self, tokens: Sequence[int]) -> TextDelta | ReasoningDelta | None:
        """Return the one outcome of tokens that are text and can be nothing else.

        None changes nothing: then `decode` takes them, with the same result.
        """
        kind, texts = self._plain, self._texts
        if kind is None:
            return None
        if len(tokens) == 1:
            text = texts[tokens[0]]
        else:
            pieces = [texts[token] for token in tokens]
            text = "".join(pieces) if all(pieces) else ""
        if not text or not self._starts.isdisjoint(text):
            return None
        if kind is ReasoningDelta:
            self.reasoning_tokens += len(tokens)
        return kind(text)

    def decode(self, token: int, logprobs: PositionLogprobs | None = None) -> list[Outcome]:
        """Return the outcomes of one more token."""
        if logprobs:
            self._logprobs.append(self._logprobs_of(logprobs))
        if name := self._controls.get(token):
            parts = self._parser.feed(self._stream.flush()) + self._parser.control(name)
        else:
            text = self._stream.feed(self._tokenizer.token_bytes(token))
            parts = self._parser.feed(text) if text else []
        outcomes = [self._outcome(part) for part in parts]
        self.reasoning_tokens += self.is_reasoning
        self._plain = self._kind_of_plain()
        return outcomes

    def _kind_of_plain(self) -> type[TextDelta] | type[ReasoningDelta] | None:
        """Return what text is now that begins nothing else; None if it has to go the whole way."""
        if self._logprobs or not self._stream.is_clear:
            return None
        kind = self._parser.plain
        if kind is None or self.is_reasoning != (kind is ReasoningPart):
            return None  # the first of its kind goes the whole way
        return ReasoningDelta if kind is ReasoningPart else TextDelta

    def finish(self) -> list[Outcome]:
        """Return the outcomes of what was held back."""
        parts = self._parser.feed(self._stream.finish()) + self._parser.finish()
        return [self._outcome(part) for part in parts]

    def _outcome(self, part: Part) -> Outcome:
        self.is_reasoning = isinstance(part, ReasoningPart)
        match part:
            case TextPart(text=text):
                logprobs, self._logprobs = self._logprobs, []
                return TextDelta(text, logprobs)
            case ReasoningPart(text=text):
                self._logprobs = []
                return ReasoningDelta(text)
            case CallStart(tool=tool):
                self.is_in_call = True
                return CallBegun(tool.name, tool.namespace, tool.is_custom, is_sure=self._is_sure)
            case CallArguments(delta=delta):
                return CallDelta(delta)
            case CallEnd():
                self.is_in_call = False
                self._logprobs = []
                return CallDone()
            case CallError(text=text):
                self.is_in_call = False
                return CallInvalid(text)

    def _logprobs_of(self, logprobs: PositionLogprobs) -> dict[str, Any]:
        return self._chance(logprobs.chosen) | {
            "top_logprobs": [self._chance(chance) for chance in logprobs.top]
        }

    def _chance(self, chance: TokenLogprob) -> dict[str, Any]:
        piece = self._tokenizer.token_bytes(chance.token)
        return {
            "token": piece.decode("utf-8", "replace"),
            "bytes": list(piece),
            "logprob": chance.logprob,
        }
