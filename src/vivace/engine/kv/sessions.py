"""All sessions of an engine: who has which sequence of the runner's KV, and who makes room when it is full.

Owns sequence ids, and which session is parked. Does not own what a new session begins with (`beginnings`),
turns, sampling or files (`parked_cache`). Invariant: the KV of `session.seq` holds exactly `log[:kv]`.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from vivace.engine.common_length import common_length
from vivace.engine.faults import ENDING, log_fault, only_logged
from vivace.engine.kv.beginnings import MIN_RESTORED_TOKENS, Beginnings
from vivace.engine.kv.checkpoints import Checkpoints
from vivace.engine.kv.parked_cache import ParkedCache
from vivace.engine.kv.session import NO_SEQ, Claim, Session
from vivace.engine.runners.base import (
    DecodingRunner,
    HostMemoryRunner,
    KVFull,
    Logits,
    OutOfMemory,
    Runner,
    SamplingSpec,
    ShouldStop,
    Span,
    Stopped,
)
from vivace.errors import UsageError

T = TypeVar("T")

SCRATCH_SEQS = 16  # the most sequences that are kept free for scoring candidates
SCRATCH_SHARE = 4  # and no more than one in four


class Sessions:
    def __init__(self, runner: Runner, parked_cache: ParkedCache | None = None) -> None:
        self._runner = runner
        self._copier = runner if isinstance(runner, HostMemoryRunner) else None
        self._parked_cache = parked_cache
        self._by_name: dict[str, Session] = {}
        sequences = runner.info.sequences
        self.scratch = range(sequences - min(SCRATCH_SEQS, sequences // SCRATCH_SHARE), sequences)
        self._free = list(range(self.scratch[0]))
        self.checkpoints = Checkpoints(runner, self.scratch, self._holders)
        self._beginnings = Beginnings(
            runner, parked_cache, self.checkpoints, self._free, self._holders, self._make_room
        )

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._by_name.values())

    def get(self, name: str) -> Session:
        try:
            return self._by_name[name]
        except KeyError:
            raise UsageError(f"There is no session {name}.") from None

    def open(self, name: str, log: list[int], tenant: str = "") -> Session:
        if name in self._by_name:
            raise UsageError(f"Session {name} is open already.")
        key = self._parked_cache.key(tenant) if self._parked_cache else tenant
        session = self._by_name[name] = Session(name, log, key)
        self.checkpoints.prepare(session)
        return session

    def extend(self, session: Session, tokens: Sequence[int], *, is_provisional: bool = False) -> None:
        """Add tokens to the committed log. What a provisional tail shares with them keeps its KV."""
        committed_length = session.committed_length
        kept = committed_length + common_length(session.log[committed_length:], tokens)
        if kept < len(session.log):
            session.truncate(kept)
            self.trim(session, min(session.kv, kept))
        session.log += tokens[kept - committed_length :]
        session.tail_start = committed_length if is_provisional else None
        if not is_provisional:
            session.first_prompt_tokens = session.first_prompt_tokens or len(session.log)

    def fork(self, name: str, source: str, length: int) -> Session:
        parent = self.get(source)
        if not 0 <= length <= parent.committed_length:
            raise UsageError(
                f"Session {source} has {parent.committed_length} tokens; cannot fork at {length}."
            )
        session = self.open(name, parent.log[:length])  # it shares KV with its first turn: `assign_sequence`
        session.tenant, session.is_fork = parent.tenant, True
        return session

    def check_rewind(self, name: str, length: int) -> None:
        committed_length = self.get(name).committed_length
        if not 0 <= length <= committed_length:
            raise UsageError(f"Session {name} has {committed_length} tokens; cannot rewind to {length}.")

    def rewind(self, name: str, length: int) -> None:
        self.check_rewind(name, length)
        session = self.get(name)
        session.truncate(length)
        session.tail_start = None
        self.trim(session, length)

    def close(self, name: str) -> None:
        self._release(self._by_name.pop(name))

    def drop(self, name: str) -> None:
        """Remove a session whose state may differ from what the server assumes, if it is there."""
        if session := self._by_name.pop(name, None):
            self._release(session)

    def discard_kv(self, session: Session) -> None:
        """Discard a session's KV, whose contents are not known. Its whole log is prefilled again."""
        self.checkpoints.release()
        session.checkpoints = []
        if session.seq != NO_SEQ:
            self._runner.trim(session.seq, 0)
        session.kv = 0

    def check_runner(self, fault: BaseException) -> None:
        """Raise `fault` if the runner cannot compute a pass of one token: then it is not the turn's own."""
        try:
            for seq in self.scratch:
                self._runner.trim(seq, 0)
            probe = Span(self.scratch[0], 0, [0], want=1)
            self._runner.forward([probe])
            if isinstance(self._runner, DecodingRunner):
                self._runner.trim(probe.seq, 0)
                self._runner.prefill(probe, SamplingSpec(), None)
                self._runner.trim(probe.seq, 0)
                self._runner.decode(probe, SamplingSpec(), 0, lambda: None)
        except (KVFull, OutOfMemory):
            pass
        except ENDING:
            raise
        except BaseException as error:  # noqa: BLE001 - raised as what it is: the engine's end
            log_fault("The runner fails in whatever it is asked", error)
            raise fault from None
        self._runner.trim(self.scratch[0], 0)

    def park(self, name: str) -> None:
        """Move a session's KV from the runner to the parked cache."""
        session = self.get(name)
        if session.claim:
            raise UsageError(f"Session {name} has a turn; it cannot be parked.")
        self._evict(session)

    def park_all(self, limit_s: float) -> None:
        """Park every session, those used last first, as far as `limit_s` allows."""
        end = time.perf_counter() + limit_s
        for session in sorted(self._by_name.values(), key=lambda session: -session.used):
            if time.perf_counter() >= end:
                return
            self._evict(session)

    def kv_tokens(self) -> int:
        """Return the tokens in the KV. Shared ones count once for each session that holds them."""
        return sum(session.kv for session in self._holders())

    @property
    def host_bytes(self) -> int:
        """Return the host memory that saved KV takes."""
        return self._copier.host_bytes_used if self._copier else 0

    def trim(self, session: Session, length: int) -> None:
        """Cut a session's KV to a length, or to the last checkpoint before it where that cannot be done."""
        if session.kv > length:
            session.kv = self.checkpoints.cut(session, length)
            session.reread_tokens += length - session.kv

    def assign_sequence(self, session: Session, claim: Claim | None) -> None:
        """Assign a sequence to a session that is about to run. Start a new one with a shared or saved prefix.

        `claim` says which running sessions may be evicted for it; None: none.
        """
        if session.seq == NO_SEQ:
            if not self._free:
                self._make_room([session], claim)
            session.seq = self._free.pop()
            session.restored_tokens = 0
        if session.kv == 0:  # new, or so far without a token: a warm-up may come with nothing
            self._beginnings.find(session)

    def keep_beginning(self, session: Session) -> None:
        """Keep on disk what a session has in the KV now: other sessions will begin with it."""
        self._beginnings.keep(session)

    def preload(self) -> None:
        self._beginnings.preload(most_sequences=len(self._free) - len(self.scratch))

    def is_loading(self, session: Session) -> bool:
        """Return whether a session's KV is on its way from host memory: others may run meanwhile."""
        if session not in self._beginnings.loading:
            return False
        if self._copier and session.seq != NO_SEQ and self._copier.is_loading(session.seq):
            return True
        self._beginnings.loading.remove(session)
        return False

    def finish_loading(self, session: Session) -> None:
        """Wait until a session's KV is there."""
        if self._copier and self.is_loading(session):
            self._copier.finish_loading(session.seq)

    def _holders(self) -> list[Session]:
        """Return the sessions that have a sequence."""
        return [s for s in [*self._beginnings.prefixes, *self._by_name.values()] if s.seq != NO_SEQ]

    def forward(
        self,
        working: Sequence[Session],
        spans: Sequence[Span],
        should_stop: ShouldStop | None = None,
        claim: Claim | None = None,
    ) -> Logits:
        """Run one pass for `working`. Make room for it if there is none; raise KVFull if none can be made."""
        if not self.checkpoints.cannot_cut:
            return self.with_room(working, lambda: self._runner.forward(spans, should_stop), claim)
        is_decoding = all(len(span.tokens) == 1 for span in spans)  # not worth the copy of a state to stop it
        if is_decoding or (should_stop is None and all(span.want <= 1 for span in spans)):
            return self.with_room(working, lambda: self._runner.forward(spans), claim)
        return self._forward_and_back(working, spans, should_stop, claim)

    def _forward_and_back(
        self,
        working: Sequence[Session],
        spans: Sequence[Span],
        should_stop: ShouldStop | None,
        claim: Claim | None,
    ) -> Logits:
        """Run one pass that may be stopped, or whose drafts may be wrong, and hold the states before it."""
        fed = {span.seq for span in spans}
        read = [session for session in working if session.seq in fed]
        stop = should_stop if self.checkpoints.hold(read) else None
        try:
            return self.with_room(working, lambda: self._runner.forward(spans, stop), claim)
        except Stopped:
            for session in read:
                session.kv = self.checkpoints.bring_back(session)
            self.checkpoints.release()
            raise
        except BaseException:  # held on, they would take cells, and scores would write into their sequences
            self.checkpoints.release()
            raise

    def with_room(self, working: Sequence[Session], run: Callable[[], T], claim: Claim | None = None) -> T:
        """Return what `run` returns. Make room and call it again as often as it finds none."""
        while True:
            try:
                return run()
            except KVFull:
                self._make_room(working, claim)

    def _make_room(self, working: Iterable[Session], claim: Claim | None) -> None:
        """Evict another session: the least recently used idle one, or else one whose turn has a weaker claim.

        The weakest claim is evicted first. If any turn could evict any other, two that do not fit together
        would evict each other for ever.
        """
        others = [s for s in self._holders() if s not in working]
        idle = [s for s in others if s.claim is None]
        weaker = [(s.claim, s) for s in others if s.claim and claim and s.claim > claim]
        if idle:
            self._evict(min(idle, key=lambda s: s.used))
        elif weaker:
            self._evict(max(weaker, key=lambda each: each[0])[1])
        else:
            raise KVFull

    def _evict(self, session: Session) -> None:
        """Remove a session's KV, and park it if it is long enough. Its log stays."""
        if session in self._beginnings.prefixes:
            self._beginnings.prefixes.remove(session)
        elif self._parked_cache is not None:
            self.trim(session, session.committed_length)  # text that is still being typed is not kept
            if session.kv >= MIN_RESTORED_TOKENS:
                tokens, save = session.log[: session.kv], partial(self._runner.save, session.seq)
                with only_logged("KV could not be parked"):
                    kept = self.checkpoints.to_park(session, self._parked_cache.checkpoint_bytes)
                    self._parked_cache.park(session.tenant, tokens, save, session.used, kept)
        self._release(session)

    def _release(self, session: Session) -> None:
        session.checkpoints = []
        if session.seq != NO_SEQ:
            self._runner.trim(session.seq, 0)
            self._free.append(session.seq)
        session.seq, session.kv = NO_SEQ, 0
