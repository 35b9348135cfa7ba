"""The output of a model, from tokens to outcomes: characters, stop strings, calls and reasoning.

Owns the order of decoding: bytes to whole characters (`text_stream`), then the family's parser. Does not own
where outcomes go.
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
    OutputSpec,
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


class OutputDecoder:
    def __init__(
        self,
        family: Family,
        tokenizer: Tokenizer,
        spec: OutputSpec,
        log: Sequence[int],
        stops: Sequence[str],
        *,
        is_held: bool,
    ) -> None:
        """`is_held`: a grammar constrains the output, so that what begins as a call is one."""
        self._tokenizer = tokenizer
        self._controls = family.controls
        self._parser = family.parser(spec, log)
        self._stream = TextStream(stops)
        self._is_sure = is_held and not stops  # a stop string may come in the middle of a call
        self._logprobs: list[Any] = []  # of tokens whose text is still held back
        self.reasoning_tokens = 0
        self.is_in_call = False
        self._is_reasoning = False

    @property
    def is_stopped(self) -> bool:
        return self._stream.is_stopped

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
        self.reasoning_tokens += self._is_reasoning
        return outcomes

    def finish(self) -> list[Outcome]:
        """Return the outcomes of what was held back."""
        parts = self._parser.feed(self._stream.finish()) + self._parser.finish()
        return [self._outcome(part) for part in parts]

    def _outcome(self, part: Part) -> Outcome:
        self._is_reasoning = isinstance(part, ReasoningPart)
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
