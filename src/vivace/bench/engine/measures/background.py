"""What a realtime turn loses to background work, which always gets one step in twenty.

The background turn decodes while the realtime turn does; the same with a background turn that reads a long
prompt is reported beside it. Alone and in company take turns.
"""

from vivace.bench.engine.context import BenchContext, Section
from vivace.bench.engine.engine_process import EngineProcess, Turn
from vivace.bench.engine.prompts import LONG_ANSWER
from vivace.bench.figures import median, ratio
from vivace.engine.wire.frames import Generate

READING_TOKENS = 4000  # or half of what the model can hold
SETTLE_S = 0.3  # between two looks whether the background turn is in the middle of its work


def measure_background(context: BenchContext, engine: EngineProcess) -> Section:
    alone, decoding, reading, meanwhile = [], [], [], []
    for number in range(context.effort.background_rounds):
        context.progress.note(f"round {number + 1} of {context.effort.background_rounds}")
        alone.append(_realtime(context, engine).token_ms)
        spoken, beside = _beside(context, engine, context.prompts.message(LONG_ANSWER), is_reading=False)
        decoding.append(spoken.token_ms)
        meanwhile.append(beside)
        long_prompt = context.prompts.fresh(min(READING_TOKENS, engine.limit_tokens // 2))
        reading.append(_beside(context, engine, long_prompt, is_reading=True)[0].token_ms)
    return {
        "realtime_slowdown": ratio(median(decoding), median(alone)),
        "realtime_slowdown_beside_prefill": ratio(median(reading), median(alone)),
        "alone_token_ms": median(alone),
        "beside_decode_token_ms": median(decoding),
        "beside_prefill_token_ms": median(reading),
        "background_tokens_meanwhile": median(meanwhile),
        "realtime_tokens": context.effort.background_tokens,
        "rounds": len(alone),
    }


def _realtime(context: BenchContext, engine: EngineProcess) -> Turn:
    prompt = context.prompts.message(LONG_ANSWER)
    most = context.effort.background_tokens
    with context.cold_session(engine) as session:
        return engine.run(Generate(session, "", prompt, max_tokens=most, use_drafts=False))


def _beside(
    context: BenchContext, engine: EngineProcess, prompt: list[int], *, is_reading: bool
) -> tuple[Turn, int]:
    """Run a realtime turn beside a background turn. Return it and the other's tokens meanwhile."""
    with context.cold_session(engine) as session:
        work = Generate(session, "", prompt, max_tokens=2000, use_drafts=False, tier="background")
        background = engine.begin(work)
        engine.watch(SETTLE_S)
        while not background.tokens and not is_reading:
            engine.watch(SETTLE_S)
        said = len(background.tokens)
        spoken = _realtime(context, engine)
        said = len(background.tokens) - said
        if not background.is_over:
            engine.interrupt(background)
    return spoken, said
