"""One turn as a text completion: outcomes of a backend in, chunks out, or all of them as one answer.

Owns the shapes of both answers: OpenAI's, and that of llama.cpp's `/infill`. Does not own how long a client
may wait.
"""

import time
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from vivace.protocol.chat.answer import ChatUsage, usage_of
from vivace.protocol.shapes.events import Extension
from vivace.protocol.shapes.outcomes import Broken, Ended, Outcome, TextDelta


class Choice(msgspec.Struct, frozen=True):
    text: str
    finish_reason: str | None = None
    index: int = 0
    logprobs: None = None


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer, or a part of one in a stream."""

    id: str
    object: str = "text_completion"
    created: int
    model: str
    choices: list[Choice]
    usage: ChatUsage | UnsetType | None = UNSET
    vivace: Extension | UnsetType = UNSET


class CompletionWriter:
    def __init__(self, response_id: str, model: str, *, has_usage_chunk: bool = False) -> None:
        self._id = f"cmpl-{response_id.removeprefix('resp_')}"
        self.model = model
        self._created = int(time.time())
        self._has_usage_chunk = has_usage_chunk
        self._texts: list[str] = []
        self._end: Ended | None = None
        self.is_over = False

    def begin(self) -> list[Completion]:
        """Return nothing: the first chunk comes with the first text."""
        return []

    def write(self, outcome: Outcome) -> list[Completion]:
        """Return the chunks of an outcome. A turn that broke has none: the transport sends the error."""
        assert not self.is_over, "a turn ends exactly once"
        self.is_over = isinstance(outcome, Ended | Broken)
        match outcome:
            case TextDelta(delta=delta) if delta:
                self._texts.append(delta)
                return [self._part([Choice(delta)])]
            case Ended():
                return self._finish(outcome)
        return []

    def completion(self) -> Completion:
        """Return the whole answer, once it has ended well."""
        end = self._ended()
        return msgspec.structs.replace(
            self._part([Choice("".join(self._texts), _reason(end))]),
            usage=usage_of(end.usage),
            vivace=Extension(end.waterfall),
        )

    def infill(self, fields: Sequence[str] = ()) -> dict[str, Any]:
        """Return the answer as llama.cpp's server gives it: all of it, or just the fields at these paths."""
        whole = self._infill()
        if not fields:
            return whole
        found = {path: _at(whole, path.split("/")) for path in fields}
        return {path: value for path, value in found.items() if value is not None}

    def _infill(self) -> dict[str, Any]:
        end = self._ended()
        usage, times = end.usage, end.waterfall
        return {
            "content": "".join(self._texts),
            "stop": True,
            "stop_type": "limit" if _reason(end) == "length" else "eos",
            "model": self.model,
            "tokens_predicted": usage.output_tokens,
            "tokens_evaluated": usage.input_tokens,
            "tokens_cached": usage.input_tokens + usage.output_tokens,
            "truncated": False,
            "generation_settings": {},
            "timings": {
                "cache_n": times.cached_tokens,
                "prompt_n": times.new_tokens,
                "prompt_ms": times.prefill_ms,
                "prompt_per_token_ms": _each(times.prefill_ms, times.new_tokens),
                "prompt_per_second": _rate(times.new_tokens, times.prefill_ms),
                "predicted_n": usage.output_tokens,
                "predicted_ms": times.decode_ms,
                "predicted_per_token_ms": _each(times.decode_ms, usage.output_tokens),
                "predicted_per_second": _rate(usage.output_tokens, times.decode_ms),
            },
        }

    def _finish(self, end: Ended) -> list[Completion]:
        self._end = end
        last = msgspec.structs.replace(
            self._part([Choice("", _reason(end))]), vivace=Extension(end.waterfall)
        )
        if not self._has_usage_chunk:
            return [last]
        return [last, msgspec.structs.replace(self._part([]), usage=usage_of(end.usage))]

    def _ended(self) -> Ended:
        assert self._end is not None, "only a turn that ended has an answer"
        return self._end

    def _part(self, choices: list[Choice]) -> Completion:
        usage = None if self._has_usage_chunk else UNSET
        return Completion(id=self._id, created=self._created, model=self.model, choices=choices, usage=usage)


def _at(value: Any, path: Sequence[str]) -> Any:
    """Return what stands at a path of names, or None."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _reason(end: Ended) -> str:
    return "length" if end.reason in ("length", "interrupted") else "stop"


def _each(milliseconds: float, count: int) -> float:
    return milliseconds / count if count else 0.0


def _rate(count: int, milliseconds: float) -> float:
    return 1000 * count / milliseconds if milliseconds else 0.0
