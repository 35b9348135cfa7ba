"""States of sessions at earlier lengths, for models whose memory cannot be cut everywhere (`MemoryKind`).

A checkpoint is a copy in host memory of what cannot be cut, at a length: a session goes back to the last one
instead of reading its log from the start. The state before a pass, which a stop or a wrong draft needs, is
shared with a spare sequence instead: that is no copy. Owns at which lengths checkpoints are taken, and which
are dropped when their bytes are too many. Does not own the sequences of sessions (`sessions`).
"""

import time
from collections.abc import Callable, Iterable, Sequence

from vivace.engine.kv.session import Session
from vivace.engine.runners.base import Checkpoint, CheckpointRunner, Runner
from vivace.engine.runners.limits import CHECKPOINT_BYTES

INTERVAL_TOKENS = 512  # between two checkpoints …
COST_SHARE = 0.01  # … more where taking one costs more than this of reading the tokens …
LONGEST_INTERVAL = 8192  # … but no more than this, as long as all of them are within the limit
MIN_PROMPT_TOKENS = 64  # since the last one, for another at a prompt's end: fewer are read again at once
MIN_TIMED_TOKENS = 16  # a pass over fewer says little about what reading costs


class Checkpoints:
    """`spares` are sequences that nobody has between two passes; `holders` names the sessions in the KV."""

    def __init__(
        self,
        runner: Runner,
        spares: Sequence[int],
        holders: Callable[[], Iterable[Session]],
        limit_bytes: int = CHECKPOINT_BYTES,
    ) -> None:
        memory = runner.info.memory
        self._runner = runner
        self._saver = runner if memory != "exact" and isinstance(runner, CheckpointRunner) else None
        self._spares = spares
        self._holders = holders
        self._limit_bytes = limit_bytes
        self.shortest_interval, self.longest_interval = INTERVAL_TOKENS, LONGEST_INTERVAL
        self._before: dict[Session, tuple[int, int]] = {}  # its length before the pass, and a spare sequence
        self._take_s = self._token_s = 0.0  # what one costs, and a token that is read
        self.is_needed = self._saver is not None
        self.cannot_cut = memory == "checkpoints"

    def prepare(self, session: Session) -> None:
        """Let the passes of a session end where checkpoints will be taken."""
        session.interval_tokens, session.cannot_cut = self.interval_tokens, self.cannot_cut

    @property
    def interval_tokens(self) -> int:
        """Return the tokens between two checkpoints, by what they and reading have cost so far; 0: none."""
        interval = self.shortest_interval if self.is_needed else 0
        while (
            0 < interval < self.longest_interval and self._take_s > COST_SHARE * interval * self._token_s > 0
        ):
            interval *= 2
        return interval

    def begin(self, session: Session) -> None:
        """Take one where a turn begins, if the model could not go back there without."""
        if self.cannot_cut:
            self.take(session)

    def end_prompt(self, session: Session) -> None:
        """Take one where a prompt ends: another answer to it, or another end of this one, begins there."""
        last = session.checkpoints[-1].length if session.checkpoints else 0
        if self.cannot_cut and session.kv >= last + MIN_PROMPT_TOKENS:
            self.take(session)

    def after_pass(self, session: Session, fed: int, spent_s: float) -> None:
        """Take a checkpoint after a pass, if the session is at a length that wants one."""
        if not session.interval_tokens:
            return
        if fed >= MIN_TIMED_TOKENS:
            self._token_s = _smooth(self._token_s, spent_s / fed)
        if session.kv >= session.next_interval() or session.kv in (session.mark, session.kept_tokens):
            self.take(session)

    def take(self, session: Session) -> None:
        """Keep the state of a session as it is now."""
        if not self._saver or not session.kv:
            return
        if any(each.length == session.kv for each in session.checkpoints):
            return
        begun = time.perf_counter()
        session.checkpoints.append(self._saver.checkpoint(session.seq, session.kv))
        session.checkpoints.sort(key=lambda each: each.length)
        self.keep_limit()
        self._take_s = _smooth(self._take_s, time.perf_counter() - begun)
        self.prepare(session)

    def keep_limit(self) -> None:
        """Drop checkpoints beyond the limit, of the session that has the most bytes of them."""
        while self.held_bytes() > self._limit_bytes:
            largest = max(self._holders(), key=lambda each: (_bytes_of(each.checkpoints), -each.used))
            largest.checkpoints.remove(_least_useful(largest.checkpoints))

    def held_bytes(self) -> int:
        """Return the bytes of all checkpoints in memory; sessions that begin alike have the same ones."""
        every = (each.state for session in self._holders() for each in session.checkpoints)
        return sum({id(state): len(state) for state in every}.values())

    def cut(self, session: Session, length: int) -> int:
        """Cut a session's KV to a length, or to the last state before it that there is. Return its length."""
        before, spare = self._before.get(session, (0, 0))
        session.checkpoints = [each for each in session.checkpoints if each.length <= length]
        if not self._saver or self._saver.can_cut(session.seq, length):
            return self._runner.trim(session.seq, length)
        last = session.checkpoints[-1] if session.checkpoints else Checkpoint(0, b"")
        if last.length <= before <= length:
            return self._runner.share(spare, session.seq, before)
        if last.length:
            return self._saver.restore(session.seq, session.seq, last)
        return self._runner.trim(session.seq, 0)

    def copies(self, other: Session, common: int) -> list[Checkpoint]:
        """Return what a session with `common` tokens in common may begin with, longest first.

        Without a state: its KV, cut there.
        """
        live = [Checkpoint(common, b"")] if not self.cannot_cut or other.kv <= common else []
        return [*live, *(each for each in reversed(other.checkpoints) if each.length <= common)]

    def copy(self, other: Session, session: Session, checkpoint: Checkpoint) -> int:
        """Begin a session with another's KV up to a checkpoint. Return how many tokens it has now."""
        if checkpoint.state and self._saver:
            held = self._saver.restore(other.seq, session.seq, checkpoint)
        else:
            held = self._runner.share(other.seq, session.seq, checkpoint.length)
        session.checkpoints = [each for each in other.checkpoints if each.length <= held]
        return held

    def to_park(self, session: Session, most_bytes: int) -> tuple[Checkpoint, ...]:
        """Return the checkpoints to park with a session: the most useful of them."""
        kept = [each for each in session.checkpoints if each.length < session.kv]
        while _bytes_of(kept) > most_bytes:
            kept.remove(_least_useful(kept))
        return tuple(kept)

    # ---- the state before a pass ---------------------------------------------------------------------

    def hold(self, sessions: Sequence[Session]) -> bool:
        """Hold the states of sessions until `release`. Return whether there are sequences for all of them."""
        self.release()
        held = [session for session in sessions if session.kv]
        if len(held) > len(self._spares):
            return False
        for session, spare in zip(held, self._spares, strict=False):
            self._runner.share(session.seq, spare, session.kv)
            self._before[session] = session.kv, spare
        return True

    def bring_back(self, session: Session) -> int:
        """Put a session back as it was held. Return its length."""
        length, spare = self._before.get(session, (0, 0))
        return self._runner.share(spare, session.seq, length) if length else 0

    def release(self) -> None:
        """Give up the held states."""
        for _, spare in self._before.values():
            self._runner.trim(spare, 0)
        self._before.clear()


def _least_useful(checkpoints: Sequence[Checkpoint]) -> Checkpoint:
    """Return the checkpoint without which the least is read again, but for the last one."""
    if len(checkpoints) < 2:
        return checkpoints[0]
    before = [0, *(each.length for each in checkpoints)]
    gaps = [after.length - before[at] for at, after in enumerate(checkpoints[1:])]
    return checkpoints[gaps.index(min(gaps))]


def _bytes_of(checkpoints: Iterable[Checkpoint]) -> int:
    return sum(len(each.state) for each in checkpoints)


def _smooth(seen: float, new: float) -> float:
    return new if not seen else 0.8 * seen + 0.2 * new
