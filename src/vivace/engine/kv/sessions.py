"""All sessions of an engine: who has which sequence of the runner's KV, and who makes room when it is full.

Owns sequence ids, prefix sharing, and which session is parked. Does not own turns, sampling or files
(`parked_cache`). Invariant: the KV of `session.seq` holds exactly `log[:kv]`.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from vivace.engine.common_length import common_length
from vivace.engine.faults import ENDING, log_fault, only_logged
from vivace.engine.kv.checkpoints import Checkpoints
from vivace.engine.kv.parked_cache import ParkedCache, ParkedKV
from vivace.engine.kv.session import NO_SEQ, Checkpoint, Claim, Session
from vivace.engine.runners.base import (
    DecodingRunner,
    HostMemoryRunner,
    KVFull,
    KVState,
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
MIN_RESTORED_TOKENS = 32  # prefilling fewer is faster than reading a file
MIN_PREFIX_TOKENS = 64  # a shared prefix of this length is kept
PRELOADED_SHARE = 0.125  # of the KV cells, the most for prefixes that are loaded at start


class Sessions:
    def __init__(self, runner: Runner, parked_cache: ParkedCache | None = None) -> None:
        self._runner = runner
        self._copier = runner if isinstance(runner, HostMemoryRunner) else None
        self._parked_cache = parked_cache
        self._by_name: dict[str, Session] = {}
        self._prefixes: list[Session] = []  # loaded at start; nobody's turn, so they are the first to go
        self._loading: list[Session] = []  # their KV is perhaps still on its way from host memory
        sequences = runner.info.sequences
        self.scratch = range(sequences - min(SCRATCH_SEQS, sequences // SCRATCH_SHARE), sequences)
        self._free = list(range(self.scratch[0]))
        self._memory = runner.info.memory
        self.checkpoints = Checkpoints(runner, self._free, self._holders)

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
        self.checkpoints.forget(session)
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
        self.checkpoints.forget(session, length)
        if session.kv > length:
            session.kv = self._runner.trim(session.seq, length)
            if session.kv < length:
                session.kv = self.checkpoints.restore(session, length)

    def assign_sequence(self, session: Session, claim: Claim | None) -> None:
        """Assign a sequence to a session that is about to run. Start a new one with a shared or saved prefix.

        `claim` says which running sessions may be evicted for it; None: none.
        """
        if session.seq == NO_SEQ:
            if not self._free and not self.checkpoints.free_one():
                self._make_room([session], claim)
            session.seq = self._free.pop()
            session.restored_tokens = 0
        if session.kv == 0:  # new, or so far without a token: a warm-up may come with nothing
            self._share_prefix(session)
            self._restore(session)

    def is_loading(self, session: Session) -> bool:
        """Return whether a session's KV is on its way from host memory: others may run meanwhile."""
        if session not in self._loading:
            return False
        if self._copier and session.seq != NO_SEQ and self._copier.is_loading(session.seq):
            return True
        self._loading.remove(session)
        return False

    def finish_loading(self, session: Session) -> None:
        """Wait until a session's KV is there."""
        if self._copier and self.is_loading(session):
            self._copier.finish_loading(session.seq)

    def _holders(self) -> list[Session]:
        """Return the sessions that have a sequence."""
        return [s for s in [*self._prefixes, *self._by_name.values()] if s.seq != NO_SEQ]

    def _share_prefix(self, session: Session) -> None:
        """Share the longest prefix of the log that another session of the same tenant holds."""
        for length, seq, other in self._shareable(session):
            session.kv = self._runner.share(seq, session.seq, length)
            if session.kv:
                with only_logged("A prefix could not be kept"):
                    if other.origin and self._parked_cache:
                        self._parked_cache.touch(other.origin)
                    self._keep_prefix(session, other)
                return

    def _shareable(self, session: Session) -> list[tuple[int, int, Session]]:
        """Return what the log begins with that is in the KV, longest first: length, sequence, whose it is."""
        found: list[tuple[int, int, Session]] = []
        for other in self._holders():
            if other is session or other.tenant != session.tenant:
                continue
            if self.checkpoints.is_needed:
                common = common_length(other.log, session.log)
                session.mark = max(session.mark, min(common, len(session.log) - 1))
                whole = [*other.checkpoints, Checkpoint(other.kv, other.seq)]
                found += [(each.length, each.seq, other) for each in whole if each.length <= common]
            elif other.kv > max((length for length, _, _ in found), default=0) or self._memory != "exact":
                found.append((min(other.kv, common_length(other.log, session.log)), other.seq, other))
        return sorted((each for each in found if each[0]), key=lambda each: -each[0])

    def _keep_prefix(self, session: Session, other: Session) -> None:
        """Keep a prefix on disk that two conversations share: instructions, tools, examples."""
        if self._parked_cache is None or session.is_fork or other in self._prefixes:
            return
        tokens = session.log[: session.kv]
        is_same_conversation = len(tokens) >= other.first_prompt_tokens
        if len(tokens) >= MIN_PREFIX_TOKENS and not is_same_conversation:
            self._parked_cache.keep_prefix(session.tenant, tokens, lambda: self._runner.save(session.seq))

    def _restore(self, session: Session) -> None:
        """Load a longer prefix of the log from memory or disk, if there is one and it fits."""
        if self._memory != "checkpoints" and self._restore_best(session, is_whole=False):
            return
        if self._memory != "exact":
            self._restore_best(session, is_whole=True)

    def _restore_best(self, session: Session, *, is_whole: bool) -> bool:
        """Load the parked KV that helps most; `is_whole`: that need not be cut. Return whether it helped."""
        if self._parked_cache is None:
            return False
        found, state = None, None
        with only_logged("Parked KV could not be read"):
            found = self._parked_cache.find(session.tenant, session.log, is_whole=is_whole)
            if found is None or found.length < session.kv + MIN_RESTORED_TOKENS:
                return False
            state = self._parked_cache.read(found.parked)
        if found is None or state is None:
            return False
        if self._load(session, state, len(found.parked.tokens)):
            session.kv = len(found.parked.tokens)
            self.trim(session, found.length)
            session.restored_tokens = session.kv
        if session.kv:
            return True
        self._share_prefix(session)
        return False

    def _load(self, session: Session, state: KVState, tokens: int) -> bool:
        """Load a state into the session's sequence, in place of its shared KV. Return whether it worked."""
        self._runner.trim(session.seq, 0)
        session.kv = 0
        while True:
            try:
                self._runner.load(session.seq, state)
                self._loading += [session] if self._copier else []
                return True
            except ValueError:  # written by something else: not worth more than a prefill
                return False
            except ENDING:
                raise
            except KVFull:
                if self._has_room_for(tokens):
                    return False  # it is the state that is wrong
                try:
                    self._make_room([session], None)
                except KVFull:
                    return False
            except BaseException as error:  # noqa: BLE001 - a state is worth a prefill, no more
                log_fault("Parked KV could not be loaded", error)
                self._runner.trim(session.seq, 0)
                return False

    def _has_room_for(self, tokens: int) -> bool:
        """Return whether the cells that sessions take leave room for `tokens` more.

        A session with a turn may have a page more than its KV fills: for tokens that are being decoded.
        """
        page = self._runner.info.page_tokens
        held = [each.kv + (page if each.claim else 0) for each in self._holders()]
        return sum(-(-count // page) * page for count in (tokens, *held)) <= self._runner.info.context_tokens

    def preload(self) -> None:
        """Load kept prefixes, the latest first, up to PRELOADED_SHARE of the cells."""
        left = int(self._runner.info.context_tokens * PRELOADED_SHARE)
        prefixes: list[ParkedKV] = []
        with only_logged("The kept prefixes could not be read"):
            prefixes = self._parked_cache.prefixes() if self._parked_cache else []
        for parked in prefixes:
            if len(parked.tokens) > left or len(self._free) < len(self.scratch):
                continue
            left -= len(parked.tokens)
            assert self._parked_cache is not None
            if (state := self._parked_cache.read(parked, counts_as_use=False)) is not None:
                session = Session("", list(parked.tokens), parked.tenant)
                session.seq, session.origin = self._free.pop(), parked
                if self._load(session, state, len(session.log)):
                    session.kv = len(session.log)
                    self._prefixes.append(session)
                else:
                    self._free.append(session.seq)

    def forward(
        self,
        working: Sequence[Session],
        spans: Sequence[Span],
        should_stop: ShouldStop | None = None,
        claim: Claim | None = None,
    ) -> Logits:
        """Run one pass for `working`. Make room for it if there is none; raise KVFull if none can be made."""
        if not self.checkpoints.is_needed or should_stop is None:
            return self.with_room(working, lambda: self._runner.forward(spans, should_stop), claim)
        return self._forward_with_checkpoints(working, spans, should_stop, claim)

    def _forward_with_checkpoints(
        self,
        working: Sequence[Session],
        spans: Sequence[Span],
        should_stop: ShouldStop,
        claim: Claim | None,
    ) -> Logits:
        """Run one pass that may be stopped. What it loses then is restored; what cannot be is not stopped."""
        fed = {span.seq for span in spans}
        read = [session for session in working if session.seq in fed]
        stop = should_stop if all(self.checkpoints.take(session) for session in read) else None
        try:
            return self.with_room(working, lambda: self._runner.forward(spans, stop), claim)
        except Stopped:
            for session in read:
                session.kv = self.checkpoints.restore(session, session.kv)
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
        if session in self._prefixes:
            self._prefixes.remove(session)
        elif self._parked_cache is not None:
            self.trim(session, session.committed_length)  # text that is still being typed is not kept
            if session.kv >= MIN_RESTORED_TOKENS:
                tokens = session.log[: session.kv]
                with only_logged("KV could not be parked"):
                    save = partial(self._runner.save, session.seq)
                    self._parked_cache.park(session.tenant, tokens, save, used=session.used)
        self._release(session)

    def _release(self, session: Session) -> None:
        self.checkpoints.forget(session)
        if session.seq != NO_SEQ:
            self._runner.trim(session.seq, 0)
            self._free.append(session.seq)
        session.seq, session.kv = NO_SEQ, 0
