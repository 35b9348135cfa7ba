"""What a session that goes on costs: its second turn, and a steer in the middle of one.

New tokens are counted here, not taken from the engine: the message, what frames it in the chat template, and
one more, for the last token that was said has never been fed.
"""

from vivace.bench.engine.context import BenchContext, Section
from vivace.bench.engine.engine_process import EngineProcess, Turn
from vivace.bench.engine.prompts import FOLLOW_UP, LONG_ANSWER, STEER
from vivace.bench.figures import median, ratio
from vivace.engine.wire.frames import Generate, Rewind

NEVER_FED = 1
SAID_TOKENS = 16  # in the first turn


def measure_warm_turn(context: BenchContext, engine: EngineProcess) -> Section:
    """Measure the second turn of a conversation."""
    prompt = context.prompts.message(LONG_ANSWER)
    with context.cold_session(engine) as session:
        first = engine.run(Generate(session, "", prompt, max_tokens=SAID_TOKENS, use_drafts=False))
        log = prompt + first.tokens
        added = context.prompts.message(FOLLOW_UP, after=log)
        second = engine.run(Generate(session, "", added, max_tokens=1))
    return {
        "prefilled_tokens": second.waterfall.new_tokens,
        "new_tokens": len(added) + NEVER_FED,
        "cached_tokens": second.waterfall.cached_tokens,
        "first_token_ms": second.first_token_ms,
    }


def measure_steer(context: BenchContext, engine: EngineProcess) -> Section:
    """Steer at random moments, and give the same message to an idle engine for comparison.

    A steer is an interrupt, and at its end the tokens that close the turn, the message and the opening of the
    answer. Its latency is from the interrupt sent to the first new token here, in units of one decode step
    plus the time to the first token of the same tokens at rest (their prefill).
    """
    prompt = context.prompts.message(LONG_ANSWER)
    latencies, units, steps, prefilled, new = [], [], [], [], []
    for number in range(context.effort.steers):
        context.progress.note(f"steer {number + 1} of {context.effort.steers}")
        with context.cold_session(engine) as session:
            said, latency_ms, steered, added = _steer(context, engine, session, prompt)
            at_rest = _at_rest(engine, session, prompt + said.tokens, added)
        latencies.append(latency_ms)
        steps.append(said.token_ms)
        units.append(ratio(latency_ms, said.token_ms + at_rest.first_token_ms))
        prefilled.append(steered.waterfall.new_tokens)
        new.append(len(added) + NEVER_FED)
    return {
        "prefilled_tokens": max(prefilled),
        "new_tokens": max(new),
        "latency_steps": median(units),
        "latency_steps_worst": max(units),
        "latency_ms": median(latencies),
        "decode_step_ms": median(steps),
        "rounds": len(units),
    }


def _steer(
    context: BenchContext, engine: EngineProcess, session: str, prompt: list[int]
) -> tuple[Turn, float, Turn, list[int]]:
    """Return the interrupted turn, the latency, the turn that followed, and its new tokens."""
    said = engine.begin(Generate(session, "", prompt, max_tokens=400, use_drafts=False))
    engine.wait_for_tokens(said, 6)
    engine.watch(context.prompts.random.random() * 2 * said.token_ms / 1e3)  # anywhere inside of a step
    stopped_ms = engine.interrupt(said)
    added = context.prompts.message(STEER, after=prompt + said.tokens)
    steered = engine.run(Generate(session, "", added, max_tokens=1))
    latency_ms = stopped_ms + (steered.arrived_s[0] - said.ended_s) * 1e3
    return said, latency_ms, steered, added


def _at_rest(engine: EngineProcess, session: str, log: list[int], added: list[int]) -> Turn:
    """Give the same tokens at the same place to an engine that is idle."""
    engine.send(Rewind(session, len(log) - NEVER_FED))
    return engine.run(Generate(session, "", log[-NEVER_FED:] + added, max_tokens=1))
