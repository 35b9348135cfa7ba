"""The prompt of a completion: the text around the cursor, as tokens at the end of a log.

Does not own how much of the text that is (`infill_text`), the tokens of a gap (`families.infill`), or which
sessions are kept (`infill_sessions`).
"""

import asyncio
import time

from vivace.models.families.base import Grammar
from vivace.models.families.infill import TextParser
from vivace.protocol.shapes.refusal import Refusal
from vivace.server.backends.native.loaded_model import LoadedModel
from vivace.server.backends.native.output_decoder import OutputDecoder
from vivace.server.backends.native.turn import NativeTurn
from vivace.server.backends.native.turn_prompt import TurnPrompt
from vivace.server.conversation.infill_text import CPU_WINDOW, GPU_WINDOW, Gap, gap_of
from vivace.server.conversation.token_log import LogContents, Session
from vivace.server.conversation.truncation import check_room

LARGE_CHARS = 16 * 1024  # above this a prompt is tokenized beside the event loop


async def write_infill(turn: NativeTurn, model: LoadedModel) -> None:
    """Begin a log with the text around the gap. It shares KV with the last prompt that began like it.

    Whoever types what was suggested is probably suggested the rest of it again: a prediction.
    """
    begun = time.perf_counter()
    infill = turn.request.infill
    assert infill is not None
    ready = await model.engines.up()
    window = GPU_WINDOW if model.is_on_gpu else CPU_WINDOW
    gap = gap_of(infill, window, model.infills.gaps(turn.caller.tenant), turn.request.stops)
    is_large = len(gap.prefix) + len(gap.behind or "") > LARGE_CHARS
    tokens = await asyncio.to_thread(_tokens, model, gap) if is_large else _tokens(model, gap)
    check_room(len(tokens), ready.limit_tokens)
    session = Session(tokens, turn.caller.tenant)
    session.source = model.infills.nearest(session)
    turn.work_in(session, follows=False)
    expected = model.infills.expected(session.source, gap.prefix, model.tokenizer.token_bytes)
    prediction = model.tokenizer.encode(gap.repeated + expected) if expected else []
    model.infills.add(session, gap)
    is_generating = turn.request.is_generating
    repeated = gap.repeated if is_generating else ""
    turn.take_prompt(
        TurnPrompt(
            tokens=len(tokens),
            log_contents=LogContents(),
            tokenize_s=time.perf_counter() - begun,
            prediction=prediction,
            repeated_tokens=len(model.tokenizer.encode(repeated)) if repeated else 0,
            decoder=_decoder(turn, model, gap) if is_generating else None,
            grammar=_beginning_with(repeated) if repeated else None,
        ),
        whole_length=len(tokens),
    )


def _decoder(turn: NativeTurn, model: LoadedModel, gap: Gap) -> OutputDecoder:
    parser, stops = TextParser(len(gap.repeated)), turn.request.stops
    return OutputDecoder(model.family, model.tokenizer, model.token_texts, parser, stops, is_held=False)


def _beginning_with(text: str) -> Grammar:
    """Have the answer begin with a text that the client has already."""
    return Grammar("regex", "".join(f"\\x{{{ord(letter):x}}}" for letter in text) + "(?s:.*)")


def _tokens(model: LoadedModel, gap: Gap) -> list[int]:
    encode = model.tokenizer.encode
    if gap.behind is None:
        return encode(gap.prefix) or encode("\n")
    if model.infill_tokens is None:
        raise Refusal(
            f"{model.name} cannot fill in the middle: its vocabulary has no tokens for that.",
            "Leave out the suffix, or use a model such as qwen2.5-coder.",
            code="invalid_request_error",
            param="suffix",
        )
    return model.infill_tokens.prompt(encode(gap.before), encode(gap.behind), encode(gap.begun))
