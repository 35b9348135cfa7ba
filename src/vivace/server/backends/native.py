"""Our own engine behind the Responses API: requests become tokens, tokens become text and calls.

Owns the way of a turn: its prompt goes to the end of a log, the log to the engine, and what comes back to
the end of the log. Does not own events (`protocol.writer`), processes (`engine_link`), logs (`token_log`), or
what is known of earlier responses (`library`).

When the engine dies, a turn submits itself again from its log: the client sees a pause, and then the
rest of the same text. When it dies a second time under the same turn, the turn fails.
"""

import asyncio
import logging
import time
from collections.abc import Callable

import msgspec

from vivace.config import Settings
from vivace.engine.frames import (
    Append,
    Failed,
    Finished,
    Generate,
    Grammar,
    Interrupt,
    Sampling,
    Score,
    Tokens,
    Waterfall,
)
from vivace.errors import RequestRefused, VivaceError
from vivace.protocol.items import InputItem
from vivace.protocol.refusal import Refusal, mistake
from vivace.protocol.requests import ResponseCreate
from vivace.protocol.status import EngineStatus
from vivace.server.backends.base import Caller
from vivace.server.backends.engine_life import EngineLife, TurnFrame
from vivace.server.backends.model_slot import LoadedModel, ModelSlot, find_model, present_models
from vivace.server.backends.prompting import Prompt, prompt_of
from vivace.server.backends.speech import Speech
from vivace.server.backends.token_log import Known, Session, Told
from vivace.server.backends.truncation import check_room, room_for_prompt, shortened
from vivace.server.backends.turn import NativeTurn
from vivace.server.library import Library
from vivace.server.metrics import Metrics

ALL_THAT_FITS = 1 << 30
LARGE_CHARS = 16 * 1024  # above this (about 5 ms) a prompt is tokenized beside the event loop
STOP_TURNS_S = 3.0
MAX_DEATHS = 2
LOGPROBS_ASKED = 0  # of the likeliest, if log-probabilities are included and no number is given

log = logging.getLogger(__name__)


class NativeBackend:
    def __init__(self, settings: Settings, library: Library, metrics: Metrics | None = None) -> None:
        self._settings = settings
        self._library = library
        self._slot = ModelSlot(settings, metrics or Metrics())
        self._turns: dict[NativeTurn, asyncio.Task[None]] = {}
        self._preload: asyncio.Task[None] | None = None
        self._is_closing = False

    def start(self) -> None:
        """Load the model of the settings before anyone asks."""
        self._preload = asyncio.create_task(self._load_default())

    @property
    def is_ready(self) -> bool:
        loaded = self._slot.loaded
        return loaded is not None and loaded.engine.is_ready

    def models(self) -> list[str]:
        """The models that are on this machine, the one that is used first."""
        return list(dict.fromkeys([self._settings.model, *present_models(self._settings)]))

    def serves(self, model: str) -> bool:
        try:
            find_model(self._settings, model)
        except Refusal:
            return False
        return True

    async def discover(self) -> None:
        """What is on this machine is always known."""

    def begin(self, request: ResponseCreate, response_id: str, caller: Caller) -> NativeTurn:
        """Accept a request, or raise why not. The turn then runs by itself until it is over."""
        if self._is_closing:
            raise Refusal("The server is shutting down.", "Try again.", code="shutting_down", status=503)
        previous = None
        if request.previous_response_id:
            previous = self._library.peek(request.previous_response_id, caller)
            if previous is None:
                raise not_found(request.previous_response_id)
        model = request.model or (previous.model if previous else self._settings.model)
        find_model(self._settings, model)
        turn = NativeTurn(response_id, request, model, caller, previous)
        self._turns[turn] = task = asyncio.create_task(self._drive(turn))
        turn.on_interrupt = self._canceller(turn)
        task.add_done_callback(lambda _: self._bury(turn))
        return turn

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
        await self._slot.close()

    async def status(self) -> EngineStatus:
        loaded = self._slot.loaded
        link = loaded.engine if loaded else None
        ready = link.life.ready.result() if link and link.life else None
        stats = await link.stats() if link else None
        return EngineStatus(
            model=loaded.name if loaded else self._settings.model,
            is_ready=self.is_ready,
            pid=ready.pid if ready else None,
            threads=ready.threads if ready else 0,
            load_ms=ready.load_ms if ready else 0.0,
            turns=stats.turns if stats else 0,
            sessions=stats.sessions if stats else 0,
            kv_tokens=stats.kv_tokens if stats else 0,
            kv_cells=stats.kv_cells if stats else 0,
            session_tokens=ready.limit_tokens if ready else 0,
            trained_tokens=ready.trained_tokens if ready else 0,
            parked_bytes=stats.parked_bytes if stats else 0,
            tokens_prefilled=stats.tokens_prefilled if stats else 0,
            tokens_generated=stats.tokens_generated if stats else 0,
        )

    async def _load_default(self) -> None:
        try:
            async with self._slot.hold(self._settings.model) as model:
                await model.engine.up()
        except VivaceError as error:
            log.warning("%s is not loaded: %s", self._settings.model, error.message)

    async def _drive(self, turn: NativeTurn) -> None:
        """A turn from its acceptance to its end. Cancelled only while the engine knows nothing of it."""
        try:
            async with self._slot.hold(turn.model) as model:
                await self._write_prompt(turn, model)
                while not turn.is_over:
                    life = await model.engine.up()
                    if turn.interrupted:  # and whoever waited on the way here has not passed it on
                        return
                    reply = await self._submit(turn, model, life)
                    self._conclude(turn, model, life, reply)
        except VivaceError as error:
            turn.fail(error)
        except Exception:
            log.exception("%s failed", turn.id)
            if not turn.is_over:
                turn.fail(mistake())

    def _canceller(self, turn: NativeTurn) -> Callable[[], None]:
        """How to interrupt a turn of which the engine knows nothing."""

        def cancel() -> None:
            self._turns[turn].cancel()

        return cancel

    def _bury(self, turn: NativeTurn) -> None:
        del self._turns[turn]
        if not turn.is_over:  # cancelled, perhaps before its first step
            self._end(turn, _early(turn, "interrupted"))

    async def _write_prompt(self, turn: NativeTurn, model: LoadedModel) -> None:
        """Put the request's items at the end of the log it continues, or of a new one."""
        request, previous = turn.request, turn.previous
        turn.follows = previous is not None and previous.session is not None and previous.model == turn.model
        before: list[InputItem] = []
        if previous and not turn.follows:  # another model's tokens mean nothing here: all is read anew
            before = await self._library.history(previous)
        begun = time.perf_counter()
        turn.told = previous.told if previous and turn.follows else Told()
        prompt = prompt_of(request, turn.told, previous, before)
        predicted = request.prediction.text if request.prediction else ""
        session = previous.continuation() if previous and turn.follows else Session(tenant=turn.caller.tenant)
        turn.take(session)

        def tokenize() -> list[int]:
            turn.prediction = model.tokenizer.encode(predicted) if predicted else []
            turn.candidates = [model.tokenizer.encode(text) for text in request.candidates or ()]
            if request.is_generating and (grammar := model.family.grammar(prompt.wish)):
                turn.grammar = Grammar(grammar.kind, grammar.text)
            return model.family.render(
                prompt.entries, tools=prompt.tools, after=session.log, effort=prompt.wish.effort
            )

        size = prompt.characters + len(predicted) + sum(map(len, request.candidates or ()))
        tokens = await asyncio.to_thread(tokenize) if size > LARGE_CHARS else tokenize()
        if request.truncation == "auto" and request.is_generating:
            room = room_for_prompt(await self._limit_tokens(model), request.max_output_tokens)
            if len(session.log) + len(tokens) > room:
                session, prompt, tokens = await self._begin_shorter(turn, model, room)
        if size > LARGE_CHARS:  # what can never fit is not copied around
            limit = await self._limit_tokens(model)
            check_room(len(session.log) + len(tokens), limit)
            del turn.prediction[limit:]
        if request.is_provisional:
            turn.typed = tokens
        else:
            session.log.extend(tokens)
            turn.told, turn.whole_length = prompt.told, len(session.log)
            self._await_answer(turn, model, session, prompt)
        turn.prompt_tokens = len(session.log) + len(turn.typed)
        turn.tokenize_s = time.perf_counter() - begun

    async def _limit_tokens(self, model: LoadedModel) -> int:
        return (await model.engine.up()).ready.result().limit_tokens

    async def _begin_shorter(
        self, turn: NativeTurn, model: LoadedModel, room: int
    ) -> tuple[Session, Prompt, list[int]]:
        """A new log with as much of the conversation as there is room for."""
        items = [*await self._library.history(turn.previous), *turn.request.items]
        request = msgspec.structs.replace(turn.request, input=[])

        def render(items: list[InputItem]) -> tuple[Prompt, list[int]]:
            prompt = prompt_of(request, Told(), turn.previous, items)
            return prompt, model.family.render(prompt.entries, tools=prompt.tools, effort=prompt.wish.effort)

        kept = await asyncio.to_thread(shortened, items, lambda items: len(render(items)[1]), room)
        prompt, tokens = render(kept)
        assert turn.session is not None
        turn.session.release(turn)
        turn.follows = False
        session = Session(tenant=turn.caller.tenant)
        turn.take(session)
        return session, prompt, tokens

    def _await_answer(self, turn: NativeTurn, model: LoadedModel, session: Session, prompt: Prompt) -> None:
        """Let the log end where the model speaks."""
        request, family, wish = turn.request, model.family, prompt.wish
        if request.is_generating or request.candidates:
            session.log.extend(family.answer(session.log, wish))
        if request.is_generating:
            turn.speech = Speech(family, model.tokenizer, wish, session.log, request.stops)

    def _submit(
        self, turn: NativeTurn, model: LoadedModel, life: EngineLife
    ) -> "asyncio.Future[Finished | Failed | None]":
        """Hand the turn to this engine process; the future is its end there, None if the process died."""
        session = turn.session
        assert session is not None
        reply: asyncio.Future[Finished | Failed | None] = asyncio.get_running_loop().create_future()

        def hear(frame: TurnFrame | None) -> None:
            """The boundary of a turn on the engine's stream, which many turns share."""
            if reply.done():
                return
            if not isinstance(frame, Tokens):
                reply.set_result(frame)
                return
            try:
                turn.hear(frame.tokens, frame.chances)
            except Exception as error:  # noqa: BLE001 - the turn fails by it
                model.unseat(session, life)  # which ends the turn there
                reply.set_exception(error)
                return
            if turn.speech and turn.speech.is_stopped:  # the engine has seen it too, unless it died meanwhile
                life.send(Interrupt(turn.id))

        life.attach(turn.id, hear)
        model.seat(session, life, is_whole=bool(turn.typed))
        life.send(self._work(turn, model, session))
        turn.submitted = turn.submitted or time.perf_counter()
        if turn.watch:
            turn.watch.started()
        turn.on_interrupt = lambda: life.send(Interrupt(turn.id))
        return reply

    def _work(self, turn: NativeTurn, model: LoadedModel, session: Session) -> Append | Score | Generate:
        request = turn.request
        if request.is_provisional:
            return Append(session.name, turn.id, turn.typed, request.tier, is_provisional=True)
        tokens = session.news()
        if request.candidates:
            return Score(session.name, turn.id, tokens, turn.candidates, request.tier)
        if not request.is_generating:
            return Append(session.name, turn.id, tokens, request.tier)
        return Generate(
            session=session.name,
            turn=turn.id,
            tokens=tokens,
            max_tokens=(request.max_output_tokens or ALL_THAT_FITS) - turn.output_tokens,
            sampling=_sampling(turn),
            stop=request.stops,
            stop_tokens=list(model.family.stop_tokens),
            grammar=turn.grammar,
            prediction=turn.prediction,
            tier=request.tier,
            spoken=turn.output_tokens,
        )

    def _conclude(
        self, turn: NativeTurn, model: LoadedModel, life: EngineLife, reply: Finished | Failed | None
    ) -> None:
        """End the turn, or leave it to be submitted again."""
        assert turn.session is not None
        turn.on_interrupt = self._canceller(turn)
        if isinstance(reply, Finished):
            self._end(turn, reply)
        elif isinstance(reply, Failed):
            model.unseat(turn.session, life)  # how much of the log it has taken is not known
            turn.fail(RequestRefused(reply.message, code=reply.code))
        else:
            self._mourn(turn, model)

    def _mourn(self, turn: NativeTurn, model: LoadedModel) -> None:
        """The engine died under this turn."""
        turn.deaths += 1
        if reason := _reason_it_is_complete(turn, model):
            self._end(turn, _early(turn, reason))
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
        if turn.session:
            turn.known = self._library.keep(
                Known(
                    turn.id,
                    tenant=turn.caller.tenant,
                    connection=turn.caller.connection,
                    is_stored=turn.request.is_stored,
                    model=turn.model,
                    told=turn.told,
                    session=turn.session,
                    length=turn.kept_length(reason),
                    parent=turn.previous,
                    follows=turn.follows,
                    input=turn.request.items,
                )
            )


def _early(turn: NativeTurn, reason: str) -> Finished:
    """It is over without a word from the engine: never begun, or all was said when the engine died."""
    return Finished(turn.id, reason, Waterfall())


def not_found(response_id: str) -> Refusal:
    return Refusal(
        f"There is no response {response_id} here.",
        "It was not stored, or is too old: send the whole input.",
        code="previous_response_not_found",
        param="previous_response_id",
    )


def _sampling(turn: NativeTurn) -> Sampling:
    request = turn.request
    return Sampling(
        temperature=request.temperature or 0.0,
        top_p=1.0 if request.top_p is None else request.top_p,
        top_k=request.top_k,
        min_p=request.min_p,
        repetition_penalty=request.repetition_penalty,
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        logit_bias=request.logit_bias,
        seed=turn.seed,
        top_logprobs=(request.top_logprobs or LOGPROBS_ASKED) if request.wants_logprobs else None,
    )


def _reason_it_is_complete(turn: NativeTurn, model: LoadedModel) -> str:
    """Why nothing more is to come, although the engine died before it could say so."""
    assert turn.session is not None
    last = turn.session.log.since(len(turn.session.log) - 1)
    ends = {*model.tokenizer.end_tokens, *model.family.stop_tokens}
    if turn.interrupted:
        return "interrupted"
    if turn.speech and (turn.speech.is_stopped or (turn.output_tokens and last[0] in ends)):
        return "stop"
    if turn.output_tokens >= (turn.request.max_output_tokens or ALL_THAT_FITS):
        return "length"
    return ""
