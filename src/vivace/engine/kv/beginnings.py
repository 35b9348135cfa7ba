"""What a session that has no KV begins with: a prefix of its log that another session has, or that is parked.

Owns where it is looked for, prefixes that are kept on disk for later conversations, and those that are loaded
at start. Does not own sequences, nor who makes room (`sessions`).
"""

from collections.abc import Callable, Iterable
from functools import partial

from vivace.engine.common_length import common_length
from vivace.engine.faults import ENDING, log_fault, only_logged
from vivace.engine.kv.checkpoints import Checkpoints
from vivace.engine.kv.parked_cache import ParkedCache, ParkedKV
from vivace.engine.kv.session import Claim, Session
from vivace.engine.runners.base import Checkpoint, HostMemoryRunner, KVFull, KVState, Runner

MIN_RESTORED_TOKENS = 32  # prefilling fewer is faster than reading a file
NAMED_COVERED = 0.97  # a named prefix is not kept if an existing one covers this share of it
MIN_PREFIX_TOKENS = 64  # a shared prefix of this length is kept
PRELOADED_SHARE = 0.125  # of the KV cells, the most for prefixes that are loaded at start


class Beginnings:
    """`free` has the sequences that nobody uses; `make_room` evicts another session, or raises KVFull."""

    def __init__(
        self,
        runner: Runner,
        parked_cache: ParkedCache | None,
        checkpoints: Checkpoints,
        free: list[int],
        holders: Callable[[], list[Session]],
        make_room: Callable[[Iterable[Session], Claim | None], None],
    ) -> None:
        self._runner = runner
        self._copies_beside = isinstance(runner, HostMemoryRunner)
        self._parked_cache = parked_cache
        self._checkpoints = checkpoints
        self._free = free
        self._holders = holders
        self._make_room = make_room
        self.prefixes: list[Session] = []  # loaded at start; nobody's turn, so they are the first to go
        self.loading: list[Session] = []  # their KV is perhaps still on its way from host memory

    def find(self, session: Session) -> None:
        """Begin with the longest prefix of the log that is in the KV, or with a longer one that is parked."""
        common = self._share(session)
        common = max(common, self._restore(session))
        again = min(common, len(session.log) - 1) - session.kv
        session.reread_tokens += again if again >= MIN_RESTORED_TOKENS else 0

    def _share(self, session: Session) -> int:
        """Share the longest prefix that another session of the same tenant holds.

        Return how many tokens of the log any of them holds: it may be that not all can be shared.
        """
        found: list[tuple[int, Checkpoint, Session]] = []
        longest = 0
        for other in self._holders():
            if other is session or other.tenant != session.tenant or other.kv <= longest:
                continue
            if (
                not self._checkpoints.is_needed
                and other.log[longest : longest + 1] != session.log[longest : longest + 1]
            ):
                continue  # 32 logs of 10,000 tokens take 10 ms: most part where the longest so far does
            common = min(other.kv, common_length(other.log, session.log))
            if self._checkpoints.is_needed:
                session.mark = max(session.mark, min(common, len(session.log) - 1))
                copies = self._checkpoints.copies(other, common)
                found += [(each.length, each, other) for each in copies if each.length]
            elif common > longest:
                longest, found = common, [(common, Checkpoint(common, b""), other)]
        for _, checkpoint, other in sorted(found, key=lambda each: -each[0]):
            session.kv = self._checkpoints.copy(other, session, checkpoint)
            if session.kv:
                with only_logged("A prefix could not be kept"):
                    if other.origin and self._parked_cache:
                        self._parked_cache.touch(other.origin)
                    self._keep_prefix(session, other)
                break
        return max(longest, session.mark)  # a mark is where another's log goes on differently

    def _keep_prefix(self, session: Session, other: Session) -> None:
        """Keep a prefix on disk that two conversations share: instructions, tools, examples."""
        if self._parked_cache is None or session.is_fork or other in self.prefixes:
            return
        tokens = session.log[: session.kv]
        is_same_conversation = len(tokens) >= other.first_prompt_tokens
        if len(tokens) >= MIN_PREFIX_TOKENS and not is_same_conversation:
            self._parked_cache.keep_prefix(session.tenant, tokens, lambda: self._runner.save(session.seq))

    def keep(self, session: Session) -> None:
        """Keep what the session has in the KV now: it was said that others begin with it."""
        if self._parked_cache and session.kv >= MIN_PREFIX_TOKENS:
            tokens, cache = session.log[: session.kv], self._parked_cache
            with only_logged("A prefix could not be kept"):
                checkpoints = self._checkpoints.to_park(session, cache.checkpoint_bytes)
                save = partial(self._runner.save, session.seq)
                cache.keep_prefix(session.tenant, tokens, save, NAMED_COVERED, checkpoints)

    def _restore(self, session: Session) -> int:
        """Load a longer prefix of the log from memory or disk, if there is one and it fits.

        Return how many tokens of the log are parked.
        """
        if self._parked_cache is None:
            return 0
        found, saved = None, None
        with only_logged("Parked KV could not be read"):
            found = self._parked_cache.find(session.tenant, session.log)
            if found and self._checkpoints.is_needed:
                session.mark = max(session.mark, min(found.common, len(session.log) - 1))
            if found is None or found.length < session.kv + MIN_RESTORED_TOKENS:
                return found.common if found else 0
            saved = self._parked_cache.read(found.parked)
        if found is None or saved is None:
            return 0
        if self._load(session, saved.state, len(found.parked.tokens)):
            session.kv = len(found.parked.tokens)
            session.checkpoints = list(saved.checkpoints)
            if session.kv > found.length:
                session.kv = self._checkpoints.cut(session, found.length)
            self._checkpoints.keep_limit()
            session.restored_tokens = session.kv
        if not session.kv:
            self._share(session)
        return found.common

    def _load(self, session: Session, state: KVState, tokens: int) -> bool:
        """Load a state into the session's sequence, in place of its shared KV. Return whether it worked."""
        self._runner.trim(session.seq, 0)
        session.kv = 0
        while True:
            try:
                self._runner.load(session.seq, state)
                self.loading += [session] if self._copies_beside else []
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

    def preload(self, most_sequences: int) -> None:
        """Load kept prefixes, the latest first, up to PRELOADED_SHARE of the cells."""
        left = int(self._runner.info.context_tokens * PRELOADED_SHARE)
        prefixes: list[ParkedKV] = []
        with only_logged("The kept prefixes could not be read"):
            prefixes = self._parked_cache.prefixes() if self._parked_cache else []
        for parked in prefixes:
            if len(parked.tokens) > left or len(self.prefixes) > most_sequences:
                continue
            left -= len(parked.tokens)
            assert self._parked_cache is not None
            if (saved := self._parked_cache.read(parked, counts_as_use=False)) is not None:
                session = Session("", list(parked.tokens), parked.tenant)
                session.seq, session.origin = self._free.pop(), parked
                if self._load(session, saved.state, len(session.log)):
                    session.kv = len(session.log)
                    self.prefixes.append(session)
                else:
                    self._free.append(session.seq)
