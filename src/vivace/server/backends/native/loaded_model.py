"""One loaded model: its engines, its tokenizer and family, and which sessions they have open.

Owns how a model's name becomes a file, and the frames that open, park and close sessions. Does not own which
models are loaded (`model_pool`), processes (`engines.supervisor`) or turns.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from vivace.config import Settings
from vivace.engine.wire.frames import Close, Fork, Loading, Open, Park, Tier
from vivace.engine.wire.job import compute_alike, make_job
from vivace.errors import UsageError
from vivace.models import store
from vivace.models.catalog import pinned
from vivace.models.families.base import Family
from vivace.models.families.choose import family_for
from vivace.models.families.infill import InfillTokens, infill_tokens
from vivace.models.tokenizer import SCRIPTED, Tokenizer, load_tokenizer
from vivace.protocol.shapes.events import WaitProgress
from vivace.protocol.shapes.refusal import Refusal, model_not_found
from vivace.server.backends.native.engines.group import EngineGroup, Seat
from vivace.server.backends.native.engines.process import EngineProcess
from vivace.server.backends.native.engines.supervisor import EngineHooks
from vivace.server.backends.native.infill_sessions import InfillSessions
from vivace.server.backends.native.output_decoder import TokenTexts
from vivace.server.conversation.stable_prompt import KnownBeginnings, tells_tools_between
from vivace.server.conversation.token_log import Session, TokenLog
from vivace.server.watch.metrics import Metrics

log = logging.getLogger(__name__)
MAX_OPEN_SESSIONS = 32
PARKING_S = 10.0  # for an engine that ends to put the KV of idle sessions on disk

OnLoading = Callable[[WaitProgress], None]


def find_model(settings: Settings, name: str) -> Path | None:
    """Return the model's file (None for a scripted one), or raise a `Refusal` that says how to get it."""
    if name.startswith(SCRIPTED):
        if not settings.allow_scripted:
            raise model_not_found(name, "Scripted models are for tests: set allow_scripted to use one.")
        return None
    try:
        if store.is_present(settings, name):
            return store.model_path(settings, name)
    except UsageError as error:
        raise Refusal(error.message, error.hint, code="model_not_found", status=404, param="model") from error
    raise Refusal(
        f"The model {name} is not on this machine.",
        f"Get it with `vivace models pull {name}`.",
        code="model_not_found",
        status=404,
        param="model",
    )


def present_models(settings: Settings) -> list[str]:
    return [card.name for card in store.present_cards(settings)]


class LoadedModel:
    """A model with its engine; what it says and how is there once `load` is done."""

    tokenizer: Tokenizer
    family: Family
    token_texts: TokenTexts

    def __init__(self, settings: Settings, name: str, metrics: Metrics, on_loading: OnLoading) -> None:
        self.name = name
        self._on_loading = on_loading
        self._path = find_model(settings, name)
        job = make_job(settings, name, self._path)
        self.engines = EngineGroup(job, settings, EngineHooks(metrics.engine_restarted, self._take_loading))
        self._open: OrderedDict[str, Session] = OrderedDict()
        self.infills = InfillSessions()
        self.infill_tokens: InfillTokens | None = None  # None: it cannot fill gaps
        self.arranges = settings.stable_prompts  # prompts, so that less is read again
        self.beginnings = KnownBeginnings()
        self.moves_changing = False  # what changes of a system text, behind the tools

    def is_outdated(self, settings: Settings) -> bool:
        """Return whether an engine started now would load other weights, or compute in another way."""
        return not compute_alike(self.engines.job, make_job(settings, self.name, self._path))

    @property
    def is_on_gpu(self) -> bool:
        return any(process.ready.result().device != "cpu" for process in self.engines.processes)

    @property
    def loading(self) -> WaitProgress | None:
        """Return how far the model is loaded; None where it answers, or nothing is known."""
        return self.progress(self.engines.loading)

    def progress(self, news: Loading | None) -> WaitProgress | None:
        return WaitProgress("loading", self.name, news.read_bytes, news.total_bytes) if news else None

    def _take_loading(self, _: Loading) -> None:
        if progress := self.loading:
            self._on_loading(progress)

    def seat(self, session: Session, tier: Tier) -> AbstractAsyncContextManager[Seat]:
        """Give an engine for a turn of this session: where its KV is, or that of what it begins with."""
        near = [other for other in self._open.values() if other.tenant == session.tenant]
        return self.engines.seat(session, tier, near)

    def logs_of(self, tenant: str) -> list[TokenLog]:
        """Return the logs of the tenant's open sessions, the one used last first."""
        return [session.log for session in reversed(self._open.values()) if session.tenant == tenant]

    def bytes_of(self, token: int) -> bytes:
        """Return the bytes of a token that is text; b"" for a control token."""
        return b"" if token in self.family.controls else self.tokenizer.token_bytes(token)

    async def load(self) -> None:
        """Load tokenizer and family. The engine process loads its model at the same time."""
        self.tokenizer = await asyncio.to_thread(load_tokenizer, self.name, self._path)
        by_file = self._path is not None and not pinned(self.name)  # its chat template says which
        self.family = family_for(self.tokenizer, str(self._path) if by_file else self.name)
        for note in self.family.notes:
            log.info("%s: %s", self.name, note)
        self.token_texts = TokenTexts(self.family, self.tokenizer)
        self.infill_tokens = infill_tokens(self.tokenizer)
        self.moves_changing = self.arranges and tells_tools_between(self.family, self.tokenizer)

    def open_session(self, session: Session, process: EngineProcess, *, is_whole: bool) -> None:
        """Open the session on this engine process, with its whole log or without any of it."""
        self._open[session.name] = session
        self._open.move_to_end(session.name)
        if session.open_in is not process and _can_fork(session, process, is_whole=is_whole):
            assert session.source is not None
            source, length = session.source
            process.send(Fork(session.name, source.name, length))
            session.open_in, session.sent_tokens = process, length
        elif session.open_in is not process:
            length = len(session.log) if is_whole else 0
            process.send(Open(session.name, session.log.first(length), session.tenant))
            session.open_in, session.sent_tokens = process, length
            self._park_oldest(process)

    def close_session(self, session: Session) -> None:
        """Let the engine forget a session; its log stays with us."""
        self._open.pop(session.name, None)
        if isinstance(session.open_in, EngineProcess):
            session.open_in.send(Close(session.name))
        session.open_in = None

    def end_infill(self, session: Session) -> None:
        """Keep the session of a completion for the next one, and close those that nobody will need."""
        for outdated in self.infills.outdated(session):
            self.close_session(outdated)

    async def close(self) -> None:
        """End the engines, which park their sessions first."""
        await self.engines.close(PARKING_S)

    def _park_oldest(self, process: EngineProcess) -> None:
        """Put the KV of sessions beyond the limit on disk, from where their next turn has it."""
        for session in [each for each in self._open.values() if each.open_in not in self.engines.processes]:
            if not session.is_busy:  # its engine is gone, and its KV with it
                self.close_session(session)
        there = [session for session in self._open.values() if session.open_in is process]
        idle = [session for session in there if not session.is_busy]  # least recently used first
        for session in idle[: max(0, len(there) - MAX_OPEN_SESSIONS)]:
            process.send(Park(session.name))
            self.close_session(session)


def _can_fork(session: Session, process: EngineProcess, *, is_whole: bool) -> bool:
    """Return whether this engine process has what the session is a fork of."""
    source = session.source
    if source is None or is_whole or source.session.open_in is not process:
        return False
    return source.session.sent_tokens >= source.length
