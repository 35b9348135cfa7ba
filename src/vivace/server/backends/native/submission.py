"""A turn on one engine process: the frames that are sent and received for it, and how it ends there.

Owns the frames of a turn. Does not own what becomes of it when the engine died (`backend`), nor its prompt
(`prompt_writing`).

Nobody waits for an engine that hangs: a turn that is interrupted on it ends at once. Tokens that come later
are no part of the log, so nobody uses the session until the engine has let go of it; then it is rewound to
the log.
"""

import asyncio

from vivace.engine.wire.frames import (
    Append,
    Failed,
    Finished,
    Generate,
    Interrupt,
    Reading,
    Rewind,
    Sampling,
    Score,
    Tokens,
    Waterfall,
)
from vivace.server.backends.native.engines.group import Seat
from vivace.server.backends.native.engines.process import TurnFrame
from vivace.server.backends.native.loaded_model import LoadedModel
from vivace.server.backends.native.turn import NativeTurn

ALL_THAT_FITS = 1 << 30
LOGPROBS_ASKED = 0  # of the likeliest, if log-probabilities are included and no number is given
INTERRUPT_S = 1.0  # an engine that was told to end a turn and has not after this is not waited for

End = Finished | Failed | None  # of a turn on an engine; None: the engine died


class Submission:
    def __init__(self, turn: NativeTurn, model: LoadedModel, seat: Seat) -> None:
        assert turn.session is not None, "its prompt comes first"
        self.end: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        self._turn = turn
        self.session = turn.session
        self._model = model
        self._engine, self._process = seat
        self._is_given_up = False

    def begin(self) -> None:
        turn, session = self._turn, self.session
        self._process.attach(turn.id, self._on_frame)
        self._model.open_session(session, self._process, is_whole=turn.request.is_provisional)
        self._process.send(_work(turn, self._model))
        turn.enter_engine(self._interrupt, self._pause)

    def _on_frame(self, frame: TurnFrame | None) -> None:
        """Handle a frame of the turn. This is a boundary: an error ends this turn, not the others."""
        if self._is_given_up:
            self._leave(frame)
        elif self.end.done():
            return
        elif isinstance(frame, Reading):
            self._turn.tell_reading(frame)
        elif not isinstance(frame, Tokens):
            self.end.set_result(frame)
        else:
            if frame.cached_tokens >= 0:
                self._turn.cached_tokens = frame.cached_tokens
            try:
                is_stopped = self._turn.add_tokens(frame.tokens, frame.logprobs)
            except Exception as error:  # noqa: BLE001 - the turn fails by it
                self._model.close_session(self.session)  # which ends the turn there
                self.end.set_exception(error)
                return
            if is_stopped:  # the engine saw it too, or died before
                self._process.send(Interrupt(self._turn.id))

    def _pause(self) -> None:
        self._process.send(Interrupt(self._turn.id))

    def _interrupt(self) -> None:
        self._process.send(Interrupt(self._turn.id))
        if self._engine.is_ready:
            asyncio.get_running_loop().call_later(INTERRUPT_S, self._give_up)
        else:
            self._give_up()

    def _give_up(self) -> None:
        """End the turn without the engine. Until the engine lets go, nobody else writes into its session."""
        if not self.end.done():
            self._is_given_up = True
            if self.session.writer is self._turn:
                self.session.writer = self
            self.end.set_result(early(self._turn, "interrupted"))

    def _leave(self, frame: TurnFrame | None) -> None:
        """Let go of the session: the engine answers again or is dead, and may have more than the log."""
        session = self.session
        if session.writer is not self or isinstance(frame, Tokens | Reading):
            return
        if isinstance(frame, Finished):
            self._process.send(Rewind(session.name, len(session.log)))
        elif isinstance(frame, Failed):
            self._model.close_session(session)
        session.release(self)


def early(turn: NativeTurn, reason: str) -> Finished:
    """Return the end of a turn that the engine did not end: never begun, complete, or given up."""
    return Finished(turn.id, reason, Waterfall())


def reason_it_is_complete(turn: NativeTurn, model: LoadedModel) -> str:
    """Return why the turn is complete although the engine died before it said so; "" if it is not."""
    assert turn.session is not None
    last = turn.session.log.since(len(turn.session.log) - 1)
    ends = {*model.tokenizer.end_tokens, *model.family.stop_tokens}
    if turn.interrupted:
        return "interrupted"
    if turn.is_stopped or (turn.output_tokens and last[0] in ends):
        return "stop"
    if turn.output_tokens >= _max_tokens(turn):
        return "length"
    return ""


def _work(turn: NativeTurn, model: LoadedModel) -> Append | Score | Generate:
    """Return what the engine is to do, with the tokens that it does not have yet."""
    request, session, prompt = turn.request, turn.session, turn.prompt
    assert session is not None
    assert prompt is not None, "it comes first"
    if request.is_provisional:
        return Append(session.name, turn.id, prompt.provisional_tail, request.tier, is_provisional=True)
    tokens = session.take_unsent()
    if request.candidates:
        return Score(session.name, turn.id, tokens, prompt.candidates, request.tier)
    if not request.is_generating:
        return Append(session.name, turn.id, tokens, request.tier, kept_tokens=prompt.kept_tokens)
    return Generate(
        session=session.name,
        turn=turn.id,
        tokens=tokens,
        max_tokens=max(1, _max_tokens(turn) - turn.output_tokens),
        sampling=_sampling(turn),
        stop=request.stops,
        stop_tokens=list(model.family.stop_tokens),
        grammar=prompt.grammar,
        prediction=prompt.prediction,
        tier=request.tier,
        prior_output_tokens=turn.output_tokens,
        kept_tokens=prompt.kept_tokens,
    )


def _max_tokens(turn: NativeTurn) -> int:
    repeated = turn.prompt.repeated_tokens if turn.prompt else 0
    return (turn.request.max_output_tokens or ALL_THAT_FITS) + repeated


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
