"""One session: its token log, and how much of it is in the runner's KV.

Owns the log and the index that drafts are found with. Does not own sequences, nor who is parked (`sessions`).
"""

from vivace.engine.kv.parked_cache import ParkedKV
from vivace.engine.runners.base import Checkpoint
from vivace.engine.speculation.suffix import History

NO_SEQ = -1

Claim = tuple[bool, float]  # a turn's right to its KV: (is background, time received). Smaller is stronger


class Session:
    def __init__(self, name: str, log: list[int], tenant: str = "") -> None:
        self.name = name
        self.tenant = tenant
        self.log = log
        self.tail_start: int | None = None  # where the provisional tail begins, if there is one
        self.kv = 0
        self.seq = NO_SEQ
        self.restored_tokens = 0  # how much of `kv` was restored when it was last seated
        self.reread_tokens = 0  # since the last turn began: in some KV, with no state to go on from
        self.first_prompt_tokens = 0  # the log when its first turn began
        self.origin: ParkedKV | None = None  # the file that a prefix was loaded from
        self.used = 0.0  # when its last turn began or ended
        self.claim: Claim | None = None  # of the turn that runs or waits on it: there is never a second one
        self.is_fork = False
        self.checkpoints: list[Checkpoint] = []  # the shortest first; none where the KV can be cut
        self.interval_tokens = 0  # between two of them; 0: there are none
        self.cannot_cut = False  # at any length but those
        self.kept_tokens = 0  # a length at which its KV is kept on disk for other sessions; 0: none
        self.mark = 0  # where another one is wanted: other sessions begin with the same tokens
        self._history: History | None = None

    @property
    def pending(self) -> int:
        """Return how many tokens of the log are not in the KV yet."""
        return len(self.log) - self.kv

    @property
    def committed_length(self) -> int:
        """Return the length of the log without its provisional tail."""
        return len(self.log) if self.tail_start is None else self.tail_start

    def next_stop(self) -> int:
        """Return the length up to which the next pass may read the log: its state is saved there."""
        stop = len(self.log)
        if self.interval_tokens:
            due = self.next_interval()
            stop = min(stop, due if due > self.kv else self.kv + self.interval_tokens)
        wanted = [length for length in (self.mark, self.kept_tokens) if length > self.kv]
        return min(stop, *wanted) if wanted else stop

    def next_interval(self) -> int:
        """Return the length at which the next checkpoint is due."""
        return (self.checkpoints[-1].length if self.checkpoints else 0) + self.interval_tokens

    def history(self) -> History:
        """Return the index that drafts are found with, brought up to date with the log."""
        if self._history is None:
            self._history = History(self.log)
        else:
            self._history.extend(self.log[len(self._history) :])
        return self._history

    def truncate(self, length: int) -> None:
        del self.log[length:]
        if self._history is not None and len(self._history) > length:
            self._history.truncate(length)
