"""Our own engine behind the Responses API: requests become tokens, tokens become text and calls.

Owns the way of a turn: its prompt goes to the end of a log (`prompt_writing`), the log to the engine, what
comes back to the end of the log (`submission`). Does not own events (`protocol/writing`), processes
(`engines.supervisor`), logs (`token_log`), or what is known of earlier responses (`library`).

When the engine dies, a turn submits itself again from its log: the client sees a pause, and then the
rest of the same text. When it dies a second time under the same turn, the turn fails.
"""

import asyncio
import logging

import msgspec

from vivace.config import Settings
from vivace.engine.wire.frames import Failed, Finished, StatsReply
from vivace.errors import RequestRefused, VivaceError
from vivace.models import store
from vivace.protocol.shapes.events import WaitProgress
from vivace.protocol.shapes.refusal import Refusal, mistake, model_not_found, previous_not_found
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.protocol.shapes.status import EngineStatus, OneEngine
from vivace.server.backends.base import NO_HOOKS, TurnHooks
from vivace.server.backends.native.loaded_model import LoadedModel, find_model, present_models
from vivace.server.backends.native.model_pool import ModelPool
from vivace.server.backends.native.submission import End, Submission, early, reason_it_is_complete
from vivace.server.backends.native.turn import NativeTurn
from vivace.server.caller import Caller
from vivace.server.conversation.infill_prompt import write_infill
from vivace.server.conversation.library import Library
from vivace.server.conversation.prompt_writing import prompt_length, write_prompt
from vivace.server.conversation.token_log import LogContents, StoredResponse
from vivace.server.watch.metrics import Metrics

STOP_TURNS_S = 3.0
MAX_DEATHS = 2
INTERRUPTED = ("interrupted", "steered", "cancelled")  # reasons of the user's for a turn's end

log = logging.getLogger(__name__)


class NativeBackend:
    def __init__(self, settings: Settings, library: Library, metrics: Metrics | None = None) -> None:
        self._settings = settings
        self._library = library
        self._pool = ModelPool(settings, metrics or Metrics(), self._tell_loading)
        self._turns: dict[NativeTurn, asyncio.Task[None]] = {}
        self._preload: asyncio.Task[None] | None = None
        self._is_closing = False

    def start(self) -> None:
        """Load the model of the settings before anyone asks, if it is one of ours."""
        if not self._settings.is_elsewhere(self._settings.model):
            self._preload = asyncio.create_task(self._load_default())

    @property
    def is_ready(self) -> bool:
        """Return whether the model of the settings, or else the one used last, would answer now."""
        loaded = self._pool.get(self._settings.model) or self._pool.latest
        if loaded is None:  # an engine is not waited for where another server answers
            return self._settings.is_elsewhere(self._settings.model)
        return loaded.engines.is_ready

    def models(self) -> list[str]:
        """Return the models on this machine, the default first."""
        return list(dict.fromkeys([self._settings.model, *present_models(self._settings)]))

    def serves(self, model: str, caller: Caller) -> bool:
        try:
            self._check_model(model, caller)
        except Refusal:
            return False
        return True

    async def discover(self) -> None:
        """Do nothing: what is on this machine is always known."""

    def begin(
        self, request: ResponseCreate, response_id: str, caller: Caller, hooks: TurnHooks = NO_HOOKS
    ) -> NativeTurn:
        """Accept a request, or raise why not. The turn then runs by itself until it is over."""
        if self._is_closing:
            raise Refusal("The server is shutting down.", "Try again.", code="shutting_down", status=503)
        previous = None
        if request.previous_response_id:
            previous = self._library.peek(request.previous_response_id, caller)
            if previous is None:
                raise previous_not_found(request.previous_response_id)
        asked = store.full_name(self._settings, request.model) if request.model else ""
        model = asked or (previous.model if previous else self._settings.model)
        self._check_model(model, caller)
        turn = NativeTurn(response_id, request, model, caller, previous, hooks)
        self._turns[turn] = task = turn.run(self._drive(turn))
        task.add_done_callback(lambda _: self._cleanup(turn))
        return turn

    async def count_tokens(self, request: ResponseCreate) -> int | None:
        find_model(self._settings, request.model or "")  # or raise why it is not here
        async with self._pool.hold(request.model or "") as model:
            return await asyncio.to_thread(prompt_length, request, model)

    async def stop_turns(self) -> None:
        """Accept no more turns, and end those that run."""
        self._is_closing = True
        for turn in list(self._turns):
            if turn.watch:
                turn.watch.aborting("shutdown")
            turn.interrupt()
        if self._turns:
            _, stuck = await asyncio.wait(self._turns.values(), timeout=STOP_TURNS_S)
            for task in stuck:
                task.cancel()

    async def close(self) -> None:
        await self.stop_turns()
        if self._preload:
            self._preload.cancel()
            await asyncio.wait([self._preload])
        await self._pool.close()

    async def status(self) -> EngineStatus:
        loaded = self._pool.latest
        engines = await _engines_of(loaded) if loaded else []
        processes = loaded.engines.processes if loaded else []
        ready = processes[0].ready.result() if processes else None
        stats = [reply for _, reply in engines if reply]
        return EngineStatus(
            model=loaded.name if loaded else self._settings.model,
            is_ready=loaded.engines.is_ready if loaded else self.is_ready,
            pid=ready.pid if ready else None,
            threads=ready.threads if ready else 0,
            load_ms=ready.load_ms if ready else 0.0,
            turns=sum(each.turns for each in stats),
            sessions=sum(each.sessions for each in stats),
            kv_tokens=sum(each.kv_tokens for each in stats),
            kv_cells=sum(each.kv_cells for each in stats),
            session_tokens=ready.limit_tokens if ready else 0,
            trained_tokens=ready.trained_tokens if ready else 0,
            parked_bytes=max((each.parked_bytes for each in stats), default=0),  # they share a folder
            parked_memory_bytes=sum(each.parked_memory_bytes for each in stats),
            tokens_prefilled=sum(each.tokens_prefilled for each in stats),
            tokens_generated=sum(each.tokens_generated for each in stats),
            device=ready.device if ready else "cpu",
            why_no_gpu=ready.why_no_gpu if ready else "",
            place=ready.place if ready else "",
            loaded=self._pool.names,
            engines=[engine for engine, _ in engines],
            loading=loaded.loading if loaded else None,
        )

    def _check_model(self, name: str, caller: Caller) -> None:
        """Raise a `Refusal` unless the model is here and this caller may use it."""
        if not caller.is_owner and name not in self.models():
            raise model_not_found(name)
        find_model(self._settings, name)

    async def apply_tuning(self) -> bool:
        """Restart the engine if tuning found a better way to run its model; return whether it did.

        Running turns end first, and new ones wait for the new engine.
        """
        return await self._pool.renew()

    async def _load_default(self) -> None:
        try:
            async with self._pool.hold(self._settings.model) as model:
                await model.engines.up()
        except VivaceError as error:
            log.warning("%s is not loaded: %s", self._settings.model, error.message)

    def _tell_loading(self, progress: WaitProgress) -> None:
        for turn in self._turns:
            if turn.model == progress.model:
                turn.tell_loading(progress)

    async def _drive(self, turn: NativeTurn) -> None:
        """Run a turn from its acceptance to its end. Cancelled only while no engine knows the turn."""
        try:
            async with self._pool.hold(turn.model) as model:
                await (
                    write_infill(turn, model)
                    if turn.request.infill
                    else write_prompt(turn, model, self._library)
                )
                while not turn.is_over and await self._submit(turn, model):
                    pass
        except VivaceError as error:
            turn.fail(error)
        except Exception:
            log.exception("%s failed", turn.id)
            if not turn.is_over:
                turn.fail(mistake())

    async def _submit(self, turn: NativeTurn, model: LoadedModel) -> bool:
        """Give the turn to an engine, and conclude it. Return False if it was interrupted before that."""
        assert turn.session is not None, "its prompt comes first"
        async with model.seat(turn.session, turn.request.tier) as seat:
            if turn.interrupted:  # and whoever waited on the way here has not passed it on
                return False
            turn.pass_thinking()
            submission = Submission(turn, model, seat)
            submission.begin()
            end = await submission.end
        if turn.request.infill:
            model.end_infill(submission.session)
        self._conclude(turn, model, end)
        return True

    def _cleanup(self, turn: NativeTurn) -> None:
        del self._turns[turn]
        if not turn.is_over:  # cancelled, perhaps before its first step
            self._end(turn, early(turn, "interrupted"))

    def _conclude(self, turn: NativeTurn, model: LoadedModel, end: End) -> None:
        """End the turn, or leave it to be submitted again."""
        assert turn.session is not None
        turn.leave_engine()
        if isinstance(end, Finished) and end.reason == "interrupted" and turn.goes_on:
            turn.pass_thinking(end)
        elif isinstance(end, Finished):
            self._end(turn, end)
        elif isinstance(end, Failed):
            model.close_session(turn.session)  # how much of the log it has taken is not known
            turn.fail(RequestRefused(end.message, code=end.code))
        else:
            self._on_engine_death(turn, model)

    def _on_engine_death(self, turn: NativeTurn, model: LoadedModel) -> None:
        """End the turn or let it be submitted again: the engine died under it."""
        turn.deaths += 1
        if reason := reason_it_is_complete(turn, model):
            self._end(turn, early(turn, reason))
        elif turn.deaths >= MAX_DEATHS:
            raise RequestRefused(
                "The engine died twice under this turn.",
                "See the server's log.",
                code="engine_died",
                status=503,
            )

    def _end(self, turn: NativeTurn, finished: Finished) -> None:
        reason = turn.finish(finished.reason)
        self._keep(turn, reason)
        turn.end(reason, finished)

    def _keep(self, turn: NativeTurn, reason: str) -> None:
        """Remember where the response ended, so that it can be continued."""
        if turn.session and not turn.request.infill:
            turn.stored_response = self._library.keep(
                StoredResponse(
                    turn.id,
                    tenant=turn.caller.tenant,
                    connection=turn.caller.connection,
                    is_stored=turn.request.is_stored,
                    model=turn.model,
                    log_contents=_contents_after(turn, reason),
                    session=turn.session,
                    length=turn.kept_length(reason),
                    parent=turn.previous,
                    follows=turn.follows,
                    input=turn.request.items,
                )
            )


async def _engines_of(model: LoadedModel) -> list[tuple[OneEngine, StatsReply | None]]:
    """Return how each engine of the model is, with what it said if it answers."""
    engines = list(model.engines)  # another may be started meanwhile
    found = []
    for engine, stats in zip(engines, await model.engines.stats(), strict=False):
        ready = engine.process.ready.result() if engine.process else None
        one = OneEngine(
            pid=ready.pid if ready else None,
            place=ready.place if ready else "",
            is_ready=engine.is_ready,
            turns=stats.turns if stats else 0,
            sessions=stats.sessions if stats else 0,
            kv_tokens=stats.kv_tokens if stats else 0,
            kv_cells=stats.kv_cells if stats else 0,
            loading=model.progress(engine.loading),
        )
        found.append((one, stats))
    return found


def _contents_after(turn: NativeTurn, reason: str) -> LogContents:
    """Return what the log has when the turn is over. A provisional tail leaves the log as it was."""
    is_interrupted = (
        turn.log_contents.is_interrupted if turn.request.is_provisional else reason in INTERRUPTED
    )
    return msgspec.structs.replace(turn.log_contents, is_interrupted=is_interrupted)
