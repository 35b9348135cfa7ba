"""Sessions: a token log each, and how much of it is in the runner's KV.

Owns logs, sequence ids and what is evicted when the KV is full. Does not own turns or sampling.
Invariant: the KV of `session.seq` holds exactly `log[:kv]`.
"""

from collections.abc import Sequence

from vivace.engine.runners.base import KVFull, Logits, Runner, Span
from vivace.errors import UsageError

NO_SEQ = -1
SCRATCH_SEQS = 16  # sequences kept free for scoring candidates


class Session:
    def __init__(self, name: str, log: list[int]) -> None:
        self.name = name
        self.log = log
        self.kv = 0
        self.seq = NO_SEQ
        self.used = 0  # when it was last worked on, in ticks of `Sessions`
        self.is_running = False  # a turn runs or waits on it; there is never a second one

    @property
    def pending(self) -> int:
        """Tokens of the log that are not in the KV yet."""
        return len(self.log) - self.kv


class Sessions:
    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._by_name: dict[str, Session] = {}
        self._free = list(range(runner.facts.sequences - SCRATCH_SEQS))
        self.scratch = range(runner.facts.sequences - SCRATCH_SEQS, runner.facts.sequences)
        self._tick = 0

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> Session:
        try:
            return self._by_name[name]
        except KeyError:
            raise UsageError(f"There is no session {name}.") from None

    def open(self, name: str, log: list[int]) -> Session:
        if name in self._by_name:
            raise UsageError(f"Session {name} is open already.")
        session = self._by_name[name] = Session(name, log)
        return session

    def fork(self, name: str, source: str, length: int) -> Session:
        parent = self.get(source)
        if not 0 <= length <= len(parent.log):
            raise UsageError(f"Session {source} has {len(parent.log)} tokens; cannot fork at {length}.")
        return self.open(name, parent.log[:length])  # its KV is shared when it first works: `seat`

    def rewind(self, name: str, length: int) -> None:
        session = self.get(name)
        if not 0 <= length <= len(session.log):
            raise UsageError(f"Session {name} has {len(session.log)} tokens; cannot rewind to {length}.")
        del session.log[length:]
        self.trim(session, min(session.kv, length))

    def close(self, name: str) -> None:
        self._evict(self.get(name))
        del self._by_name[name]

    def kv_tokens(self) -> int:
        """Tokens held in the KV, shared ones counted once for each session that holds them."""
        return sum(session.kv for session in self._by_name.values())

    def trim(self, session: Session, length: int) -> None:
        if session.kv > length:
            self._runner.trim(session.seq, length)
            session.kv = length

    def seat(self, session: Session, *, evict_running: bool) -> None:
        """Give a session that is about to work a sequence; a new one begins with what others hold."""
        self._tick += 1
        session.used = self._tick
        if session.seq == NO_SEQ:
            if not self._free:
                self._make_room(session, evict_running=evict_running)
            session.seq = self._free.pop()
            self._adopt_prefix(session)

    def _adopt_prefix(self, session: Session) -> None:
        """Share the longest prefix of the log that any other session holds."""
        others = [s for s in self._by_name.values() if s is not session and s.kv > session.kv]
        best = max(others, key=lambda other: _common(other, session), default=None)
        if best is not None and (length := _common(best, session)) > session.kv:
            self._runner.share(best.seq, session.seq, length)
            session.kv = length

    def forward(self, session: Session, spans: Sequence[Span], *, evict_running: bool) -> Logits:
        """One pass for `session`, with room made for it if there is none; KVFull if none can be made."""
        while True:
            try:
                return self._runner.forward(spans)
            except KVFull:
                self._make_room(session, evict_running=evict_running)

    def _make_room(self, session: Session, *, evict_running: bool) -> None:
        """Take the KV of another session: the idle one not used for longest, or else one that runs.

        Only the oldest turn may take from running ones. If any could, two that do not fit together would
        take from each other for ever.
        """
        holders = [s for s in self._by_name.values() if s is not session and s.seq != NO_SEQ]
        idle = [s for s in holders if not s.is_running]
        if idle:
            self._evict(min(idle, key=lambda s: s.used))
        elif holders and evict_running:
            self._evict(min(holders, key=lambda s: s.used))
        else:
            raise KVFull

    def _evict(self, session: Session) -> None:
        """Forget a session's KV; its log stays, and is prefilled again when it is needed."""
        if session.seq != NO_SEQ:
            self._runner.trim(session.seq, 0)
            self._free.append(session.seq)
        session.seq, session.kv = NO_SEQ, 0


def _common(held: Session, wanted: Session) -> int:
    """Length of the common prefix of what `held` has in the KV and what `wanted` needs."""
    low, high = 0, min(held.kv, len(wanted.log))
    while low < high:  # halving with slice comparisons: C speed on long logs
        middle = (low + high + 1) // 2
        if held.log[low:middle] == wanted.log[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
