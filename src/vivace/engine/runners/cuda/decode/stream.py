"""One sequence decoded without the host: steps run ahead on the device, the host reads a ring.

Owns a running stream: how many steps are in flight and which of their tokens were taken. Tokens are chosen on
the device, greedily or with the draws of engine/output/sampler.py at temperature alone; anything else (top_p,
penalties, grammars) needs the logits on the host. Does not own who may stream: see `runner`.
"""

from vivace.engine.runners.base import SamplingSpec
from vivace.engine.runners.cuda.decode.graphs import Passes
from vivace.engine.runners.cuda.decode.launches import RING_WORDS


class Stream:
    """Begins with `token` at position `start` of a sequence, whose pages are in use already."""

    def __init__(self, passes: Passes, seq: int, start: int, token: int, sampling: SamplingSpec) -> None:
        self._passes, self._pass = passes, passes.pass_of_size(1)
        self.seq, self.sampling = seq, sampling
        self.start, self.token = start, token  # what the first step that was not taken yet is fed
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
        """The position behind all that its steps write."""
        return self.start + self.in_flight

    def is_at(self, seq: int, start: int, token: int, sampling: SamplingSpec) -> bool:
        """Whether its next token is the one that follows `token` there."""
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

    def take(self) -> int:
        """The next token, as soon as it is there."""
        assert self.in_flight
        self.token = self._passes.wait_for(self._seen % RING_WORDS, self._seen + 1)
        self._seen += 1
        self.start += 1
        return self.token
