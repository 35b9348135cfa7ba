"""States of sessions at earlier lengths, for models whose memory cannot be cut (`MemoryKind`).

A checkpoint is a sequence of the runner that shares a session's state as it was at a length. A recurrent
model goes back to one instead of reading its log from the start. Owns at which lengths they are taken, and
which are dropped when sequences are short. Does not own the sequences of sessions (`sessions`).
"""

from collections.abc import Callable, Iterable

from vivace.engine.kv.session import Checkpoint, Session
from vivace.engine.runners.base import Runner

INTERVAL_TOKENS = 512  # between two checkpoints, as long as there are no more than MOST
MOST = 8  # checkpoints of one session; in a longer log they stand further apart


class Checkpoints:
    """`free` has the sequences that nobody uses; `holders` names the sessions that have one."""

    def __init__(self, runner: Runner, free: list[int], holders: Callable[[], Iterable[Session]]) -> None:
        self._runner = runner
        self._free = free
        self._holders = holders
        self.is_needed = runner.info.memory == "checkpoints"

    def prepare(self, session: Session) -> None:
        """Let the passes of a session end where checkpoints will be taken."""
        session.interval_tokens = INTERVAL_TOKENS if self.is_needed else 0

    def take_if_due(self, session: Session) -> None:
        """Take a checkpoint after a pass, if the session is at a length that wants one."""
        interval = session.interval_tokens
        if interval and (session.kv % interval == 0 or session.kv == session.mark):
            self.take(session)

    def take(self, session: Session) -> bool:
        """Keep the state of a session as it is now. Return whether its length can be restored."""
        if not self.is_needed or not session.kv:
            return True
        if any(each.length == session.kv for each in session.checkpoints):
            return True
        if len(session.checkpoints) >= MOST:
            self._drop(session, _least_useful(session.checkpoints))
        if not self._free and not self.free_one(unless=session):
            return False
        seq = self._free.pop()
        if not self._runner.share(session.seq, seq, session.kv):
            self._free.append(seq)
            return False
        session.checkpoints.append(Checkpoint(session.kv, seq))
        session.checkpoints.sort()
        return True

    def restore(self, session: Session, length: int) -> int:
        """Put the last state at or before `length` into the session's sequence. Return its length, or 0."""
        self.forget(session, length)
        for each in reversed(session.checkpoints):
            if held := self._runner.share(each.seq, session.seq, each.length):
                return held
        return 0

    def forget(self, session: Session, length: int = 0) -> None:
        """Drop a session's checkpoints beyond a length: its log has another text there."""
        for each in [each for each in session.checkpoints if each.length > length]:
            self._drop(session, each)

    def free_one(self, unless: Session | None = None) -> bool:
        """Drop the least useful checkpoint of the session used least recently. Return whether one was."""
        sessions = [each for each in self._holders() if each.checkpoints]
        session = min(sessions, key=lambda each: (each is unless, each.used), default=None)
        if session is None:
            return False
        self._drop(session, _least_useful(session.checkpoints))
        return True

    def _drop(self, session: Session, checkpoint: Checkpoint) -> None:
        session.checkpoints.remove(checkpoint)
        self._runner.trim(checkpoint.seq, 0)
        self._free.append(checkpoint.seq)


def _least_useful(checkpoints: list[Checkpoint]) -> Checkpoint:
    """Return the checkpoint without which the least is read again, but for the last one."""
    if len(checkpoints) < 2:
        return checkpoints[0]
    before = [0, *(each.length for each in checkpoints)]
    gaps = [(after.length - before[at], checkpoints[at]) for at, after in enumerate(checkpoints[1:])]
    return min(gaps)[1]
