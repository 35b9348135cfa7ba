"""Decode one sequence without waiting for the host: steps run ahead on the device, the host reads a ring.

Owns a running stream: how many steps are in flight and which of their tokens were read. The device samples
greedily or as engine/output/sampler.py does with temperature alone; anything else (top_p, penalties,
grammars) needs the logits on the host. Does not own who may stream (`runner`).
"""

from vivace.engine.runners.base import SamplingSpec
from vivace.engine.runners.cuda.decode.graphs import Passes
from vivace.engine.runners.cuda.decode.launches import RING_WORDS


class Stream:
    """A stream that begins with `token` at position `start` of a sequence, whose pages are set already."""

    def __init__(self, passes: Passes, seq: int, start: int, token: int, sampling: SamplingSpec) -> None:
        self._passes, self._pass = passes, passes.pass_of_size(1)
        self.seq, self.sampling = seq, sampling
        self.start, self.token = start, token  # position and input of the first step that was not read yet
        self._first = start
        self._sent = self._seen = 0
        passes.prepare(self._pass, self._pass.plan.parts_for(start + 1), streams=True)
        passes.clear_ring(RING_WORDS)
        passes.write(self._pass, start, [token], sampling, streams=True)
        passes.embed(self._pass)

    @property
    def in_flight(self) -> int:
        return self._sent - self._seen

    @property
    def end(self) -> int:
        """Return the position behind the last token that the steps in flight write."""
        return self.start + self.in_flight

    def is_at(self, seq: int, start: int, token: int, sampling: SamplingSpec) -> bool:
        """Return whether the next token is the one that follows `token` at this position."""
        return (self.seq, self.start, self.token, self.sampling) == (seq, start, token, sampling)

    def send(self, in_flight: int) -> bool:
        """Have `in_flight` steps under way. Return False if the context has outgrown the captured steps."""
        while self.in_flight < in_flight:
            length = self._first + self._sent + 1
            if not self._passes.is_ready(self._pass, length, streams=True):
                return False
            self._passes.replay(self._pass, length, streams=True)
            self._sent += 1
        return True

    def next_token(self) -> int:
        """Wait for the next token and return it."""
        assert self.in_flight
        self.token = self._passes.wait_for(self._seen % RING_WORDS, self._seen + 1)
        self._seen += 1
        self.start += 1
        return self.token
