"""A turn's prompt in its log: the request's items as tokens, at the end of what they continue.

Owns which log that is, and what happens when it grows too long. Does not own what an item says (`prompting`)
or how a family writes it (`families`).
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, takewhile

import msgspec

from vivace.engine.wire.frames import Grammar
from vivace.protocol.shapes.items import InputItem, joined
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.server.backends.native.loaded_model import LoadedModel
from vivace.server.backends.native.output_decoder import OutputDecoder
from vivace.server.backends.native.turn import NativeTurn
from vivace.server.backends.native.turn_prompt import TurnPrompt
from vivace.server.conversation.known_tokens import in_known_tokens
from vivace.server.conversation.library import Library
from vivace.server.conversation.prompting import Prompt, prompt_of
from vivace.server.conversation.stable_prompt import system_of
from vivace.server.conversation.token_log import LogContents, Session, StoredResponse, TokenLog
from vivace.server.conversation.truncation import check_room, room_for_prompt, shortened

LARGE_CHARS = 16 * 1024  # above this (about 5 ms) a prompt is made beside the event loop
KEPT_TOKENS = 256  # fewer are read again sooner than it matters
ITEM_CHARS = 64  # what an item takes besides its text


@dataclass(frozen=True)
class _Tokens:
    """A request as tokens."""

    prompt: list[int]
    prediction: list[int]
    candidates: list[list[int]]
    kept: int  # of the prompt's first: other conversations begin with them
    grammar: Grammar | None


async def write_prompt(turn: NativeTurn, model: LoadedModel, library: Library) -> None:
    """Put the request's items at the end of the log it continues, or of a new one."""
    request, previous = turn.request, turn.previous
    follows = previous is not None and previous.session is not None and previous.model == turn.model
    before: list[InputItem] = []
    if previous and not follows:  # another model's tokens mean nothing here: all is read anew
        before = await library.history(previous)
    begun = time.perf_counter()
    session = previous.continuation() if previous and follows else Session(tenant=turn.caller.tenant)
    turn.work_in(session, follows=follows)
    logs = [] if len(session.log) else model.logs_of(session.tenant)
    most = await _room_for_moved(request, model) if logs else 0
    write = partial(_written, request, turn.log_contents, previous, before, model, session, logs, most)
    is_large = is_large_request(request, turn.log_contents, before)
    prompt, written = await asyncio.to_thread(write) if is_large else write()
    tokens = written.prompt
    if request.truncation == "auto" and request.is_generating:
        room = room_for_prompt(await _limit_tokens(model), request.max_output_tokens)
        if len(session.log) + len(tokens) > room:
            session, prompt, tokens = await _begin_shorter(turn, model, library, room)
    if is_large:  # what can never fit is not copied around
        limit = await _limit_tokens(model)
        check_room(len(session.log) + len(tokens), limit)
        del written.prediction[limit:]
    tail = tokens if request.is_provisional else []
    if not request.is_provisional:
        session.log.extend(tokens)
    whole_length = len(session.log)  # an answer that is discarded takes its opening with it
    if not request.is_provisional and (request.is_generating or request.candidates):
        session.log.extend(model.family.answer(session.log, prompt.spec))
    turn.take_prompt(
        TurnPrompt(
            tokens=len(session.log) + len(tail),
            log_contents=turn.log_contents if request.is_provisional else prompt.log_contents,
            tokenize_s=time.perf_counter() - begun,
            provisional_tail=tail,
            kept_tokens=written.kept,
            prediction=written.prediction,
            candidates=written.candidates,
            decoder=_decoder(request, prompt, model, session, written.grammar),
            grammar=written.grammar,
            family=model.family if request.is_generating else None,
            spec=prompt.spec,
        ),
        whole_length,
    )


def _predicted(request: ResponseCreate) -> str:
    return request.prediction.text if request.prediction else ""


def is_large_request(request: ResponseCreate, log_contents: LogContents, before: Sequence[InputItem]) -> bool:
    """Return whether so much is to be read that it is done beside the event loop."""
    size = len(_predicted(request)) + len(request.schema) + sum(map(len, request.candidates or ()))
    size += len(msgspec.json.encode((request.tools, log_contents.inline_tools)))
    if request.instructions and request.instructions != log_contents.instructions:
        size += len(request.instructions)
    for item in chain(before, request.items):
        size += ITEM_CHARS + len(item.text) + len(item.call_text) + len(item.output_text)
        size += len(joined(item.summary))
        size += len(msgspec.json.encode(item.tools)) if item.tools else 0
        if size > LARGE_CHARS:  # ten thousand are not looked at one by one
            return True
    return size > LARGE_CHARS


def _written(
    request: ResponseCreate,
    log_contents: LogContents,
    previous: StoredResponse | None,
    before: Sequence[InputItem],
    model: LoadedModel,
    session: Session,
    logs: Sequence[TokenLog],
    most_tokens: int,
) -> tuple[Prompt, _Tokens]:
    moves_changing = model.moves_changing and not len(session.log)
    prompt = prompt_of(request, log_contents, previous, before, moves_changing=moves_changing)
    predicted, encode = _predicted(request), model.tokenizer.encode
    tokens = model.family.render(
        prompt.entries, tools=prompt.tools, after=session.log, effort=prompt.spec.effort
    )
    tokens = in_known_tokens(tokens, logs, model.bytes_of, most_tokens) if logs else tokens
    return prompt, _Tokens(
        prompt=tokens,
        kept=0 if len(session.log) else _beginning_tokens(prompt, tokens, model),
        prediction=encode(predicted) if predicted else [],
        candidates=[encode(text) for text in request.candidates or ()],
        grammar=model.family.grammar(prompt.spec) if request.is_generating else None,
    )


def _beginning_tokens(prompt: Prompt, tokens: list[int], model: LoadedModel) -> int:
    """Return how many tokens of a new log its client will begin other conversations with; 0 for too few.

    Programs that send tools send the same ones, behind the same instructions, every day.
    """
    if not prompt.tools:
        return 0
    system = list(takewhile(lambda entry: system_of([entry]), prompt.entries))
    key = (*system, prompt.log_contents.tools, prompt.spec.effort)
    if (beginning := model.beginnings.get(key)) is None:
        beginning = model.family.render(system, tools=prompt.tools, effort=prompt.spec.effort)
        model.beginnings.put(key, beginning)
    length = len(beginning)
    if tokens[:length] != beginning:
        length = TokenLog(tokens).shared_with(TokenLog(beginning))
    return length if length >= KEPT_TOKENS else 0


def prompt_length(request: ResponseCreate, model: LoadedModel) -> int:
    """Return how many tokens the prompt of a request that continues nothing would have."""
    prompt = prompt_of(request, LogContents(), None, moves_changing=model.moves_changing)
    tokens = model.family.render(prompt.entries, tools=prompt.tools, effort=prompt.spec.effort)
    return len(tokens) + len(model.family.answer(tokens, prompt.spec))


async def _room_for_moved(request: ResponseCreate, model: LoadedModel) -> int:
    """Return how long a prompt may become by blocks that its client has moved; 0: by none."""
    if not model.arranges:
        return 0
    return room_for_prompt(await _limit_tokens(model), request.max_output_tokens)


async def _limit_tokens(model: LoadedModel) -> int:
    return (await model.engines.up()).limit_tokens


async def _begin_shorter(
    turn: NativeTurn, model: LoadedModel, library: Library, room: int
) -> tuple[Session, Prompt, list[int]]:
    """Begin a new log with as much of the conversation as there is room for."""
    items = [*await library.history(turn.previous), *turn.request.items]
    request = msgspec.structs.replace(turn.request, input=[])

    def render(items: list[InputItem]) -> tuple[Prompt, list[int]]:
        prompt = prompt_of(request, LogContents(), turn.previous, items, moves_changing=model.moves_changing)
        return prompt, model.family.render(prompt.entries, tools=prompt.tools, effort=prompt.spec.effort)

    kept = await asyncio.to_thread(shortened, items, lambda items: len(render(items)[1]), room)
    prompt, tokens = await asyncio.to_thread(render, kept)
    session = Session(tenant=turn.caller.tenant)
    turn.work_in(session, follows=False)
    return session, prompt, tokens


def _decoder(
    request: ResponseCreate, prompt: Prompt, model: LoadedModel, session: Session, grammar: Grammar | None
) -> OutputDecoder | None:
    """Return what reads the answer behind this log; None if nothing is generated."""
    if not request.is_generating:
        return None
    family = model.family
    parser = family.parser(prompt.spec, session.log)
    return OutputDecoder(
        family, model.tokenizer, model.token_texts, parser, request.stops, is_held=grammar is not None
    )
