"""Our own engine behind the Responses API: requests become tokens, tokens become text.

Owns the way of a turn: its prompt goes to the end of a log, the log to the engine, and what comes back to
the end of the log. Does not own events (`protocol.writer`), processes (`engine_link`) or logs (`token_log`).

When the engine dies, a turn submits itself again from its log: the client sees a pause, and then the
rest of the same text. When it dies a second time under the same turn, the turn fails.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from vivace.config import Settings
from vivace.engine.frames import Append, Failed, Finished, Generate, Interrupt, Sampling, Score, Tokens
from vivace.errors import RequestRefused, VivaceError
from vivace.models.template import Message
from vivace.protocol.refusal import Refusal, mistake
from vivace.protocol.requests import InputItem, ResponseCreate
from vivace.protocol.status import EngineStatus
from vivace.server.backends.engine_life import EngineLife, TurnFrame
from vivace.server.backends.model_slot import LoadedModel, ModelSlot, find_model
from vivace.server.backends.token_log import ResponseStore, Session, StoredResponse
from vivace.server.backends.turn import Turn

ALL_THAT_FITS = 1 << 30
LARGE_CHARS = 16 * 1024  # above this (about 5 ms) a prompt is tokenized beside the event loop
STOP_TURNS_S = 3.0
MAX_DEATHS = 2

log = logging.getLogger(__name__)


class NativeBackend:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.store = ResponseStore()
        self._slot = ModelSlot(settings)
        self._turns: dict[Turn, asyncio.Task[None]] = {}
        self._preload: asyncio.Task[None] | None = None
        self._is_closing = False

    def start(self) -> None:
        """Load the model of the settings before anyone asks."""
        self._preload = asyncio.create_task(self._load_default())

    @property
    def is_ready(self) -> bool:
        loaded = self._slot.loaded
        return loaded is not None and loaded.engine.life is not None

    def begin(self, request: ResponseCreate, response_id: str) -> Turn:
        """Accept a request, or raise why not. The turn then runs by itself until it is over."""
        if self._is_closing:
            raise Refusal("The server is shutting down.", "Try again.", code="shutting_down", status=503)
        previous = self._previous(request)
        model = request.model or (previous.model if previous else self._settings.model)
        if previous and previous.model != model:
            raise Refusal(
                f"{request.previous_response_id} was made by {previous.model}; {model} cannot continue it.",
                "Send the whole input, or the same model.",
                code="model_mismatch",
                param="model",
            )
        find_model(self._settings, model)
        turn = Turn(response_id, request, model, previous)
        self._turns[turn] = task = asyncio.create_task(self._drive(turn))
        turn.on_interrupt = self._canceller(turn)
        task.add_done_callback(lambda _: self._bury(turn))
        return turn

    async def stop_turns(self) -> None:
        """Accept no more turns, and end those that run."""
        self._is_closing = True
        for turn in list(self._turns):
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

    def _previous(self, request: ResponseCreate) -> StoredResponse | None:
        if not request.previous_response_id:
            return None
        if found := self.store.get(request.previous_response_id):
            return found
        raise Refusal(
            f"There is no response {request.previous_response_id} here.",
            "It may be from before a restart: send the whole input.",
            code="previous_response_not_found",
            status=404,
            param="previous_response_id",
        )

    async def _load_default(self) -> None:
        try:
            async with self._slot.hold(self._settings.model) as model:
                await model.engine.up()
        except VivaceError as error:
            log.warning("%s is not loaded: %s", self._settings.model, error.message)

    async def _drive(self, turn: Turn) -> None:
        """A turn from its acceptance to its end. Cancelled only while the engine knows nothing of it."""
        try:
            async with self._slot.hold(turn.model) as model:
                await self._write_prompt(turn, model)
                while not turn.is_over:
                    life = await model.engine.up()
                    reply = await self._submit(turn, model, life)
                    self._conclude(turn, model, life, reply)
        except VivaceError as error:
            turn.fail(error)
        except Exception:
            log.exception("%s failed", turn.id)
            if not turn.is_over:
                turn.fail(mistake())

    def _canceller(self, turn: Turn) -> Callable[[], None]:
        """How to interrupt a turn of which the engine knows nothing."""

        def cancel() -> None:
            self._turns[turn].cancel()

        return cancel

    def _bury(self, turn: Turn) -> None:
        del self._turns[turn]
        if not turn.is_over:  # cancelled, perhaps before its first step
            self._keep(turn)
            turn.end_early("interrupted")

    async def _write_prompt(self, turn: Turn, model: LoadedModel) -> None:
        """Put the request's messages at the end of the log it continues, or of a new one."""
        begun = time.perf_counter()
        before = turn.previous.tokens() if turn.previous else []
        messages = _messages(turn)
        predicted = turn.request.prediction.text if turn.request.prediction else ""

        def tokenize() -> list[int]:
            turn.prediction = model.tokenizer.encode(predicted)
            return model.template.render(messages, after=before)

        is_large = sum(len(message.text) for message in messages) + len(predicted) > LARGE_CHARS
        tokens = await asyncio.to_thread(tokenize) if is_large else tokenize()
        if turn.request.generate or turn.request.candidates:
            tokens += model.template.answer(before + tokens)
        turn.session = turn.previous.continuation() if turn.previous else Session()
        turn.session.is_busy = True
        turn.session.log.extend(tokens)
        turn.prompt_tokens = len(turn.session.log)
        turn.tokenize_s = time.perf_counter() - begun

    def _submit(
        self, turn: Turn, model: LoadedModel, life: EngineLife
    ) -> "asyncio.Future[Finished | Failed | None]":
        """Hand the turn to this engine process; the future is its end there, None if the process died."""
        assert turn.session is not None
        reply: asyncio.Future[Finished | Failed | None] = asyncio.get_running_loop().create_future()

        def hear(frame: TurnFrame | None) -> None:
            if not isinstance(frame, Tokens):
                if not reply.done():
                    reply.set_result(frame)
                return
            for token in frame.tokens:
                turn.hear(token, model.tokenizer.piece(token))
            if turn.stream.is_stopped:  # the engine has seen it too, unless it lost the beginning in a death
                life.send(Interrupt(turn.id))

        life.attach(turn.id, hear)
        model.seat(turn.session, life)
        life.send(self._work(turn, model, turn.session))
        turn.submitted = turn.submitted or time.perf_counter()
        turn.on_interrupt = lambda: life.send(Interrupt(turn.id))
        return reply

    def _work(self, turn: Turn, model: LoadedModel, session: Session) -> Append | Score | Generate:
        request, tokens = turn.request, session.news()
        if request.candidates:
            candidates = [model.tokenizer.encode(text) for text in request.candidates]
            return Score(session.name, turn.id, tokens, candidates)
        if not request.generate:
            return Append(session.name, turn.id, tokens)
        return Generate(
            session=session.name,
            turn=turn.id,
            tokens=tokens,
            max_tokens=(request.max_output_tokens or ALL_THAT_FITS) - turn.output_tokens,
            sampling=_sampling(turn),
            stop=request.stops,
            prediction=turn.prediction,
        )

    def _conclude(
        self, turn: Turn, model: LoadedModel, life: EngineLife, reply: Finished | Failed | None
    ) -> None:
        """End the turn, or leave it to be submitted again."""
        assert turn.session is not None
        turn.on_interrupt = self._canceller(turn)
        if isinstance(reply, Finished):
            self._keep(turn)
            turn.end(reply)
        elif isinstance(reply, Failed):
            model.unseat(turn.session, life)  # how much of the log it has taken is not known
            turn.fail(RequestRefused(reply.message, code=reply.code))
        else:
            self._mourn(turn, model)

    def _mourn(self, turn: Turn, model: LoadedModel) -> None:
        """The engine died under this turn."""
        turn.deaths += 1
        if reason := _reason_it_is_complete(turn, model):
            self._keep(turn)
            turn.end_early(reason)
        elif turn.deaths >= MAX_DEATHS:
            raise RequestRefused(
                "The engine died twice under this turn.",
                "See the server's log.",
                code="engine_died",
                status=503,
            )

    def _keep(self, turn: Turn) -> None:
        """Remember where the response ended, so that it can be continued."""
        if turn.session:
            said_before = turn.previous.instructions if turn.previous else None
            instructions = turn.request.instructions or said_before
            self.store.put(turn.id, StoredResponse(turn.session, turn.model, instructions))


def _sampling(turn: Turn) -> Sampling:
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
    )


def _messages(turn: Turn) -> list[Message]:
    """What is new in this request. Instructions that the log has already are not repeated."""
    request, messages = turn.request, []
    said_before = turn.previous.instructions if turn.previous else None
    if request.instructions and request.instructions != said_before:
        messages.append(Message("system", request.instructions))
    messages += [_message(item, is_last=item is request.items[-1]) for item in request.items]
    return messages


def _message(item: InputItem, *, is_last: bool) -> Message:
    assert item.role is not None
    role = "system" if item.role == "developer" else item.role
    is_open = is_last and role == "assistant" and item.status == "in_progress"
    return Message(role, item.text, is_open)


def _reason_it_is_complete(turn: Turn, model: LoadedModel) -> str:
    """Why nothing more is to come, although the engine died before it could say so."""
    assert turn.session is not None
    last = turn.session.log.since(len(turn.session.log) - 1)
    if turn.is_interrupted:
        return "interrupted"
    if turn.stream.is_stopped or (turn.output_tokens and last[0] in model.tokenizer.end_tokens):
        return "stop"
    if turn.output_tokens >= (turn.request.max_output_tokens or ALL_THAT_FITS):
        return "length"
    return ""
