"""The output of an upstream in our order: one item at a time, each call whole before anything else follows.

Upstreams may send several calls at once, a delta of each in turn. One is sent on as it comes, the rest wait.
Owns that order, stop strings (which not every API has), and how much output is accepted. Does not own where
outcomes go.
"""

from collections.abc import Callable, Sequence
from typing import Any

from vivace.protocol.shapes.outcomes import CallBegun, CallDelta, CallDone, Outcome, ReasoningDelta, TextDelta
from vivace.protocol.writing.text_stream import TextStream

MAX_ANSWER_CHARS = 32 * 1024 * 1024
MAX_CALLS = 128


class TooMuch(Exception):
    """More output than any model writes."""


class OutcomeSequencer:
    def __init__(self, tell: Callable[[Outcome], None], stops: Sequence[str] = ()) -> None:
        self._tell = tell
        self._stream = TextStream(stops)
        self._logprobs: list[Any] = []  # of text that is held back
        self._open: int | None = None  # the call that is being sent on
        self._calls = 0
        self._waiting: list[
            tuple[int | None, Outcome]
        ] = []  # behind the open call, with the call they belong to
        self._chars = 0
        self.delta_count = 0  # about one a token

    @property
    def stop_text(self) -> str:
        return self._stream.stop_text

    @property
    def is_stopped(self) -> bool:
        """Return whether a stop string has come: nothing more is sent."""
        return self._stream.is_stopped

    @property
    def is_crowded(self) -> bool:
        """Return whether something waits for the open call to end."""
        return bool(self._waiting)

    def text(self, delta: str, logprobs: Sequence[Any] = ()) -> None:
        if delta:
            self.count(delta)
            self._add(None, TextDelta(delta, list(logprobs)))

    def reasoning(self, delta: str) -> None:
        if delta:
            self.count(delta)
            self._add(None, ReasoningDelta(delta))

    def begin_call(self, call: CallBegun) -> int:
        """Begin a call. Return the number that names it from now on."""
        self._calls += 1
        if self._calls > MAX_CALLS:
            raise TooMuch
        self._add(self._calls, call)
        return self._calls

    def extend_call(self, number: int, delta: str) -> None:
        if delta:
            self.count(delta)
            self._add(number, CallDelta(delta))

    def end_call(self, number: int) -> None:
        """Note that the call is whole."""
        self._add(number, CallDone())

    def flush(self) -> None:
        """Send the text that is held back, but nothing behind a call that never ended."""
        if self._open is None:
            self._say(self._stream.flush())

    def count(self, delta: str) -> None:
        """Count something that came, whether it can be sent already or not."""
        self.delta_count += 1
        self._chars += len(delta)
        if self._chars > MAX_ANSWER_CHARS:
            raise TooMuch

    def _add(self, number: int | None, outcome: Outcome) -> None:
        if self.is_stopped:
            return
        if self._open is not None and number != self._open:
            self._waiting.append((number, outcome))
            return
        match outcome:
            case TextDelta(delta=delta, logprobs=logprobs):
                self._logprobs += logprobs
                self._say(self._stream.feed(_clean(delta).encode()))
                return
            case ReasoningDelta(delta=delta):
                self.flush()
                outcome = ReasoningDelta(_clean(delta))
            case CallBegun():
                self.flush()
                self._open = number
            case CallDelta(delta=delta):
                if self._open is None:
                    return  # of a call that is over
                outcome = CallDelta(_clean(delta))
            case CallDone():
                if self._open is None:
                    return
        self._tell(outcome)
        if isinstance(outcome, CallDone):
            self._open = None
            self._release()

    def _release(self) -> None:
        """Send what waited, up to the next call that is not whole."""
        waiting, self._waiting = self._waiting, []
        for number, outcome in waiting:
            self._add(number, outcome)

    def _say(self, text: str) -> None:
        if text:
            logprobs, self._logprobs = self._logprobs, []
            self._tell(TextDelta(text, logprobs))


def _clean(text: str) -> str:
    """Return the text without lone surrogates, which JSON can hold and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
