"""The prompt of a completion: as much of the text around the cursor as is worth reading, as tokens.

Owns how much that is, and that what is cut off stays the same while the user types on: a prompt that begins
like the last one is not prefilled again. Does not own the tokens of a gap (`families.infill`).
"""

import asyncio
import time

from vivace.models.families.infill import TextParser
from vivace.protocol.shapes.refusal import Refusal
from vivace.protocol.shapes.requests import Infill
from vivace.server.backends.native.loaded_model import LoadedModel
from vivace.server.backends.native.output_decoder import OutputDecoder
from vivace.server.backends.native.turn import NativeTurn
from vivace.server.conversation.token_log import Session
from vivace.server.conversation.truncation import check_room

# Characters before and behind the cursor. The suffix stands behind the prefix in the prompt, so it is read
# again for every letter that is typed: on a CPU (80 tokens a second) it must be short.
CPU_CHARS = (4096, 160)
GPU_CHARS = (24_576, 4096)
BLOCK_LINES = 32  # lines are cut off the beginning in blocks of this size
BLOCK_CHARS = 1024  # of a line that is longer than all that is read
LARGE_CHARS = 16 * 1024  # above this a prompt is tokenized beside the event loop


async def write_infill(turn: NativeTurn, model: LoadedModel) -> None:
    """Begin a log with the text around the gap. It shares KV with the last prompt that began like it.

    Whoever types what was suggested is probably suggested the rest of it again: a prediction.
    """
    begun = time.perf_counter()
    infill = turn.request.infill
    assert infill is not None
    process = await model.engine.up()
    kept = around_gap(infill, *(GPU_CHARS if model.is_on_gpu else CPU_CHARS))
    is_large = len(kept.prefix) + len(kept.suffix or "") > LARGE_CHARS
    tokens = await asyncio.to_thread(_tokens, model, kept) if is_large else _tokens(model, kept)
    check_room(len(tokens), process.ready.result().limit_tokens)
    session = Session(tokens, turn.caller.tenant)
    session.source = model.infills.nearest(session)
    turn.work_in(session)
    expected = model.infills.expected(session.source, kept.prefix, model.tokenizer.token_bytes)
    turn.prediction = model.tokenizer.encode(expected)
    model.infills.add(session, kept.prefix)
    turn.prompt_tokens = turn.whole_length = len(tokens)
    if turn.request.is_generating:
        turn.decoder = OutputDecoder(
            model.family, model.tokenizer, model.token_texts, TextParser(), turn.request.stops, is_held=False
        )
    turn.tokenize_s = time.perf_counter() - begun


def _tokens(model: LoadedModel, infill: Infill) -> list[int]:
    encode = model.tokenizer.encode
    if infill.suffix is None:
        return encode(infill.prefix) or encode("\n")
    if model.infill_tokens is None:
        raise Refusal(
            f"{model.name} cannot fill in the middle: its vocabulary has no tokens for that.",
            "Leave out the suffix, or use a model such as qwen2.5-coder.",
            code="invalid_request_error",
            param="suffix",
        )
    return model.infill_tokens.prompt(encode(infill.prefix), encode(infill.suffix))


def around_gap(infill: Infill, before_chars: int, behind_chars: int) -> Infill:
    """Return the text that is near the gap. Text without a gap is a prompt, of which nothing is left out."""
    if infill.suffix is None:
        return infill
    return Infill(end_of(infill.prefix, before_chars), beginning_of(infill.suffix, behind_chars))


def end_of(text: str, most_chars: int) -> str:
    """Return the end of a text, from a line on that stays the same while the text grows a little."""
    if len(text) <= most_chars:
        return text
    start = _line_start(text, most_chars)
    if start is None:  # one long line
        start = len(text) - most_chars
        start += -start % BLOCK_CHARS
    return text[start:]


def _line_start(text: str, most_chars: int) -> int | None:
    """Return where the first block of lines begins from which on the text is short enough."""
    lines, at = 0, 0
    while (found := text.find("\n", at)) >= 0:
        lines, at = lines + 1, found + 1
        if lines % BLOCK_LINES == 0 and len(text) - at <= most_chars:
            return at
    return None


def beginning_of(text: str, most_chars: int) -> str:
    """Return the whole lines that a text begins with, or as much of its first line as is allowed."""
    if len(text) <= most_chars:
        return text
    end = text.rfind("\n", 0, most_chars)
    return text[: end + 1] if end > 0 else text[:most_chars]
