"""Sessions: a token log each, and how much of it is in the runner's KV.

Owns logs, sequence ids, whose KV is shared, and what is parked when the KV is full. Does not own turns,
sampling or files (`disk_cache`). Invariant: the KV of `session.seq` holds exactly `log[:kv]`.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from vivace.engine.common_length import common_length
from vivace.engine.faults import ENDING, log_fault, only_logged
from vivace.engine.kv.disk_cache import DiskCache, Parked
from vivace.engine.runners.base import (
    DecodingRunner,
    KVFull,
    Logits,
    OutOfMemory,
    Runner,
    SamplingSpec,
    ShouldStop,
    Span,
)
from vivace.engine.speculation.suffix import History
from vivace.errors import UsageError

T = TypeVar("T")

NO_SEQ = -1
SCRATCH_SEQS = 16  # sequences kept free for scoring candidates
MIN_RESTORED_TOKENS = 32  # fewer are prefilled sooner than a file is read
MIN_PREFIX_TOKENS = 64  # a beginning that sessions share is kept on disk from this length on
PRELOADED_SHARE = 0.125  # of the KV cells, at most, for the prefixes that are loaded at start


Claim = tuple[bool, float]  # of a turn on its KV: background after realtime, then by age. Smaller is stronger


class Session:
    def __init__(self, name: str, log: list[int], tenant: str = "") -> None:
        self.name = name
        self.tenant = tenant
        self.log = log
        self.tail_start: int | None = None  # where the provisional tail begins, if there is one
        self.kv = 0
        self.seq = NO_SEQ
        self.restored_tokens = 0  # how much of `kv` came from disk when it was last seated
        self.first_prompt_tokens = 0  # the log when its first turn began
        self.origin: Parked | None = None  # the file that a prefix was loaded from
        self.used = 0.0  # when its last turn began or ended
        self.claim: Claim | None = None  # of the turn that runs or waits on it: there is never a second one
        self.is_fork = False
        self._history: History | None = None

    @property
    def pending(self) -> int:
        """Tokens of the log that are not in the KV yet."""
        return len(self.log) - self.kv

    @property
    def committed_length(self) -> int:
        """How much of the log is not a provisional tail."""
        return len(self.log) if self.tail_start is None else self.tail_start

    def history(self) -> History:
        """Return the index that drafts are found with, brought up to date with the log."""
        if self._history is None:
            self._history = History(self.log)
        else:
            self._history.extend(self.log[len(self._history) :])
        return self._history

    def cut(self, length: int) -> None:
        del self.log[length:]
        if self._history is not None and len(self._history) > length:
            self._history.truncate(length)


class Sessions:
    def __init__(self, runner: Runner, disk_cache: DiskCache | None = None) -> None:
        self._runner = runner
        self._disk_cache = disk_cache
        self._by_name: dict[str, Session] = {}
        self._prefixes: list[Session] = []  # loaded at start; nobody's turn, so they are the first to go
        self._free = list(range(runner.info.sequences - SCRATCH_SEQS))
        self.scratch = range(runner.info.sequences - SCRATCH_SEQS, runner.info.sequences)

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
        key = self._disk_cache.key(tenant) if self._disk_cache else tenant
        session = self._by_name[name] = Session(name, log, key)
        return session

    def extend(self, session: Session, tokens: Sequence[int], *, is_provisional: bool = False) -> None:
        """Add tokens to the committed log. What a provisional tail shares with them keeps its KV."""
        committed_length = session.committed_length
        kept = committed_length + common_length(session.log[committed_length:], tokens)
        if kept < len(session.log):
            session.cut(kept)
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
        session.cut(length)
        session.tail_start = None
        self.trim(session, length)

    def close(self, name: str) -> None:
        self._release(self._by_name.pop(name))

    def drop(self, name: str) -> None:
        """Forget a session that may not be what the server takes it for, if it is there."""
        if session := self._by_name.pop(name, None):
            self._release(session)

    def discard_kv(self, session: Session) -> None:
        """Have a session's whole log prefilled again: what is in its KV is not known."""
        if session.seq != NO_SEQ:
            self._runner.trim(session.seq, 0)
        session.kv = 0

    def check_runner(self, fault: BaseException) -> None:
        """Raise `fault` if the runner computes nothing any more: then it was not a turn's own."""
        try:
            for seq in self.scratch:
                self._runner.trim(seq, 0)
            probe = Span(self.scratch[0], 0, [0], want=1)
            self._runner.forward([probe])
            if isinstance(self._runner, DecodingRunner):
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
        """Move a session's KV to disk."""
        session = self.get(name)
        if session.claim:
            raise UsageError(f"Session {name} has a turn; it cannot be parked.")
        self._evict(session)

    def park_all(self, limit_s: float) -> None:
        """Move the KV of every session to disk, those used last first, as far as `limit_s` allows."""
        end = time.perf_counter() + limit_s
        for session in sorted(self._by_name.values(), key=lambda session: -session.used):
            if time.perf_counter() >= end:
                return
            self._evict(session)

    def kv_tokens(self) -> int:
        """Return the tokens in the KV. Shared ones count once for each session that holds them."""
        return sum(session.kv for session in self._holders())

    def trim(self, session: Session, length: int) -> None:
        if session.kv > length:
            self._runner.trim(session.seq, length)
            session.kv = length

    def assign_sequence(self, session: Session, claim: Claim | None) -> None:
        """Give a session that is about to work a sequence. A new one begins with KV that is there already.

        `claim` says from which running sessions it may take room; None: from none.
        """
        if session.seq == NO_SEQ:
            if not self._free:
                self._make_room([session], claim)
            session.seq = self._free.pop()
            session.restored_tokens = 0
        if session.kv == 0:  # new, or so far without a token: a warm-up may come with nothing
            self._adopt_prefix(session)
            self._restore(session)

    def _holders(self) -> list[Session]:
        """Return the sessions that have a sequence."""
        return [s for s in [*self._prefixes, *self._by_name.values()] if s.seq != NO_SEQ]

    def _adopt_prefix(self, session: Session) -> None:
        """Share the longest prefix of the log that another session of the same tenant holds."""
        best, length = None, 0
        for other in self._holders():
            if other is not session and other.tenant == session.tenant and other.kv > length:
                common = min(other.kv, common_length(other.log, session.log))
                if common > length:
                    best, length = other, common
        if best is not None:
            self._runner.share(best.seq, session.seq, length)
            session.kv = length
            with only_logged("A prefix could not be kept on disk"):
                if best.origin and self._disk_cache:
                    self._disk_cache.touch(best.origin)
                self._keep_prefix(session, best)

    def _keep_prefix(self, session: Session, other: Session) -> None:
        """Keep on disk what two sessions begin with and then leave: instructions, tools, examples."""
        if self._disk_cache is None or session.is_fork or other in self._prefixes:
            return
        tokens = session.log[: session.kv]
        is_same_talk = len(tokens) >= other.first_prompt_tokens
        if len(tokens) >= MIN_PREFIX_TOKENS and not is_same_talk:
            self._disk_cache.keep_prefix(session.tenant, tokens, lambda: self._runner.save(session.seq))

    def _restore(self, session: Session) -> None:
        """Load a longer prefix of the log from disk, if there is one and it fits."""
        if self._disk_cache is None:
            return
        found, state = None, None
        with only_logged("Parked KV could not be read"):
            found = self._disk_cache.find(session.tenant, session.log)
            if found is None or found.length < session.kv + MIN_RESTORED_TOKENS:
                return
            state = self._disk_cache.read(found.parked)
        if found is None or state is None:
            return
        if self._load(session, state, len(found.parked.tokens)):
            session.kv = len(found.parked.tokens)
            self.trim(session, found.length)
            session.restored_tokens = found.length
        else:
            self._adopt_prefix(session)

    def _load(self, session: Session, state: bytes, tokens: int) -> bool:
        """Load a state into the session's sequence, in place of what it shares; return whether it worked."""
        self._runner.trim(session.seq, 0)
        session.kv = 0
        while True:
            try:
                self._runner.load(session.seq, state)
                return True
            except ValueError:  # written by something else: not worth more than a prefill
                return False
            except ENDING:
                raise
            except KVFull:
                if self.kv_tokens() + tokens <= self._runner.info.context_tokens:
                    return False  # there is room: it is the state that is wrong
                try:
                    self._make_room([session], None)
                except KVFull:
                    return False
            except BaseException as error:  # noqa: BLE001 - a state is worth a prefill, no more
                log_fault("Parked KV could not be loaded", error)
                self._runner.trim(session.seq, 0)
                return False

    def preload(self) -> None:
        """Load the kept prefixes, the latest first, as long as they take a small share of the cells."""
        left = int(self._runner.info.context_tokens * PRELOADED_SHARE)
        prefixes: list[Parked] = []
        with only_logged("The kept prefixes could not be read"):
            prefixes = self._disk_cache.prefixes() if self._disk_cache else []
        for parked in prefixes:
            if len(parked.tokens) > left or len(self._free) < len(self.scratch):
                continue
            left -= len(parked.tokens)
            assert self._disk_cache is not None
            if (state := self._disk_cache.read(parked, is_use=False)) is not None:
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
        return self.with_room(working, lambda: self._runner.forward(spans, should_stop), claim)

    def with_room(self, working: Sequence[Session], run: Callable[[], T], claim: Claim | None = None) -> T:
        """Return what `run` returns. Make room and call it again as often as it finds none."""
        while True:
            try:
                return run()
            except KVFull:
                self._make_room(working, claim)

    def _make_room(self, working: Iterable[Session], claim: Claim | None) -> None:
        """Take the KV of another session: the idle one not used for longest, or else one that runs.

        A turn takes only from turns with a weaker claim, the weakest first. If any could take from any, two
        that do not fit together would take from each other for ever.
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
        """Take a session's KV away: parked on disk if that is worth a file. Its log stays."""
        if session in self._prefixes:
            self._prefixes.remove(session)
        elif self._disk_cache is not None:
            self.trim(session, session.committed_length)  # text that is still being typed is not kept
            if session.kv >= MIN_RESTORED_TOKENS:
                tokens = session.log[: session.kv]
                with only_logged("KV could not be parked"):
                    save = partial(self._runner.save, session.seq)
                    self._disk_cache.park(session.tenant, tokens, save, used=session.used)
        self._release(session)

    def _release(self, session: Session) -> None:
        if session.seq != NO_SEQ:
            self._runner.trim(session.seq, 0)
            self._free.append(session.seq)
        session.seq, session.kv = NO_SEQ, 0
