"""How soon an interrupt is obeyed: sent at random moments of decoding, of verifying drafts and of a prefill.

The time is from the interrupt sent to the turn's end here. A turn that ended before it could be interrupted
is done again, and does not count.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from vivace.bench.engine.context import BenchContext, Section
from vivace.bench.engine.engine_process import EngineProcess, Turn
from vivace.bench.engine.prompts import LONG_ANSWER
from vivace.bench.figures import median, percentile
from vivace.bench.rows import EditCase
from vivace.engine.wire.frames import Append, Generate, Rewind

PREFILL_TOKENS = 4000  # or half of what the model can hold
MAX_WAIT_S = 0.8
MAX_TRIES = 3  # for each interrupt that is wanted

Running = Callable[[], AbstractContextManager[Turn]]  # a turn in the middle of its work


def measure_interrupts(context: BenchContext, engine: EngineProcess) -> Section:
    longest = max(context.cases, key=lambda case: case.unit_tokens)
    with context.cold_session(engine) as session:
        engine.run(Append(session, "", longest.prompt[:-1]))
        kinds: dict[str, Running] = {
            "decode": lambda: _decoding(context, engine),
            "verify": lambda: _verifying(engine, session, longest),
            "prefill": lambda: _prefilling(context, engine),
        }
        found = {kind: _interrupt_often(context, engine, kind, running) for kind, running in kinds.items()}
    everything = [each for times in found.values() for each in times]
    return {
        "latency_ms_p95": percentile(everything, 0.95),
        "latency_ms_median": median(everything),
        "latency_ms_max": max(everything),
        "n": len(everything),
        **{f"{kind}_latency_ms_p95": percentile(times, 0.95) for kind, times in found.items() if times},
    }


def _interrupt_often(
    context: BenchContext, engine: EngineProcess, kind: str, running: Running
) -> list[float]:
    times: list[float] = []
    for _ in range(MAX_TRIES * context.effort.interrupts):
        context.progress.note(f"in {kind}, {len(times) + 1} of {context.effort.interrupts}")
        with running() as turn:
            engine.watch(context.prompts.random.random() * MAX_WAIT_S)
            latency_ms = engine.interrupt(turn)
        if turn.reason == "interrupted":
            times.append(latency_ms)
        if len(times) == context.effort.interrupts:
            break
    return times


@contextmanager
def _decoding(context: BenchContext, engine: EngineProcess) -> Iterator[Turn]:
    prompt = context.prompts.message(LONG_ANSWER)
    with context.cold_session(engine) as session:
        turn = engine.begin(Generate(session, "", prompt, max_tokens=400, use_drafts=False))
        yield engine.wait_for_tokens(turn, 1)


@contextmanager
def _verifying(engine: EngineProcess, session: str, case: EditCase) -> Iterator[Turn]:
    """Begin an edit with drafts in a session that holds all of the prompt but its last token."""
    last = case.prompt[-1:]
    work = Generate(session, "", last, max_tokens=400, stop=case.stop, prediction=case.prediction)
    yield engine.wait_for_tokens(engine.begin(work), 1)
    engine.send(Rewind(session, len(case.prompt) - 1))


@contextmanager
def _prefilling(context: BenchContext, engine: EngineProcess) -> Iterator[Turn]:
    prompt = context.prompts.fresh(min(PREFILL_TOKENS, engine.limit_tokens // 2))
    with context.cold_session(engine) as session:
        yield engine.begin(Generate(session, "", prompt, max_tokens=1))
