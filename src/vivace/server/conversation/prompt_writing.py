"""A turn's prompt in its log: the request's items as tokens, at the end of what they continue.

Owns which log that is, and what happens when it grows too long. Does not own what an item says (`prompting`)
or how a family writes it (`families`).
"""

import asyncio
import time

import msgspec

from vivace.protocol.shapes.items import InputItem
from vivace.server.backends.native.loaded_model import LoadedModel
from vivace.server.backends.native.output_decoder import OutputDecoder
from vivace.server.backends.native.turn import NativeTurn
from vivace.server.conversation.library import Library
from vivace.server.conversation.prompting import Prompt, prompt_of
from vivace.server.conversation.token_log import LogContents, Session
from vivace.server.conversation.truncation import check_room, room_for_prompt, shortened

LARGE_CHARS = 16 * 1024  # above this (about 5 ms) a prompt is tokenized beside the event loop


async def write_prompt(turn: NativeTurn, model: LoadedModel, library: Library) -> None:
    """Put the request's items at the end of the log it continues, or of a new one."""
    request, previous = turn.request, turn.previous
    turn.follows = previous is not None and previous.session is not None and previous.model == turn.model
    before: list[InputItem] = []
    if previous and not turn.follows:  # another model's tokens mean nothing here: all is read anew
        before = await library.history(previous)
    begun = time.perf_counter()
    turn.log_contents = previous.log_contents if previous and turn.follows else LogContents()
    prompt = prompt_of(request, turn.log_contents, previous, before)
    predicted = request.prediction.text if request.prediction else ""
    session = previous.continuation() if previous and turn.follows else Session(tenant=turn.caller.tenant)
    turn.work_in(session)

    def tokenize() -> list[int]:
        turn.prediction = model.tokenizer.encode(predicted) if predicted else []
        turn.candidates = [model.tokenizer.encode(text) for text in request.candidates or ()]
        if request.is_generating:
            turn.grammar = model.family.grammar(prompt.spec)
        return model.family.render(
            prompt.entries, tools=prompt.tools, after=session.log, effort=prompt.spec.effort
        )

    size = prompt.characters + len(predicted) + sum(map(len, request.candidates or ()))
    tokens = await asyncio.to_thread(tokenize) if size > LARGE_CHARS else tokenize()
    if request.truncation == "auto" and request.is_generating:
        room = room_for_prompt(await _limit_tokens(model), request.max_output_tokens)
        if len(session.log) + len(tokens) > room:
            session, prompt, tokens = await _begin_shorter(turn, model, library, room)
    if size > LARGE_CHARS:  # what can never fit is not copied around
        limit = await _limit_tokens(model)
        check_room(len(session.log) + len(tokens), limit)
        del turn.prediction[limit:]
    if request.is_provisional:
        turn.provisional_tokens = tokens
    else:
        session.log.extend(tokens)
        turn.log_contents, turn.whole_length = prompt.log_contents, len(session.log)
        _await_answer(turn, model, session, prompt)
    turn.prompt_tokens = len(session.log) + len(turn.provisional_tokens)
    turn.tokenize_s = time.perf_counter() - begun


async def _limit_tokens(model: LoadedModel) -> int:
    return (await model.engine.up()).ready.result().limit_tokens


async def _begin_shorter(
    turn: NativeTurn, model: LoadedModel, library: Library, room: int
) -> tuple[Session, Prompt, list[int]]:
    """Begin a new log with as much of the conversation as there is room for."""
    items = [*await library.history(turn.previous), *turn.request.items]
    request = msgspec.structs.replace(turn.request, input=[])

    def render(items: list[InputItem]) -> tuple[Prompt, list[int]]:
        prompt = prompt_of(request, LogContents(), turn.previous, items)
        return prompt, model.family.render(prompt.entries, tools=prompt.tools, effort=prompt.spec.effort)

    kept = await asyncio.to_thread(shortened, items, lambda items: len(render(items)[1]), room)
    prompt, tokens = render(kept)
    assert turn.session is not None
    turn.session.release(turn)
    turn.follows = False
    session = Session(tenant=turn.caller.tenant)
    turn.work_in(session)
    return session, prompt, tokens


def _await_answer(turn: NativeTurn, model: LoadedModel, session: Session, prompt: Prompt) -> None:
    """End the log with the tokens after which the model answers."""
    request, family, spec = turn.request, model.family, prompt.spec
    if request.is_generating or request.candidates:
        session.log.extend(family.answer(session.log, spec))
    if request.is_generating:
        turn.family, turn.spec = family, spec
        turn.decoder = OutputDecoder(
            family,
            model.tokenizer,
            model.token_texts,
            family.parser(spec, session.log),
            request.stops,
            is_held=turn.grammar is not None,
        )
