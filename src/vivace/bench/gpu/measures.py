"""One engine process on the GPU, driven as a server drives it: speed, first tokens, steering, edits.

Owns what is sent and the times on this side of the socket. Does not start the engine.
"""

import time
from typing import Any

from vivace.bench.engine.engine_process import EngineClient, Turn
from vivace.bench.figures import median, ratio
from vivace.bench.gpu.material import Edit, Material
from vivace.engine.wire.frames import Append, Generate, Interrupt, Rewind, Sampling

CONTEXTS = (1024, 4096, 16384)
NEW_TOKENS = (1024, 4096, 8192)
DECODED = 256
ROUNDS = 5
STOPPED_TOKENS = 16384  # of the prompt that is stopped while it is read
STOP_STEP_S = 0.013  # how much later the interrupt comes in each round
MIN_DECODED_TOKENS = 64  # a text that ends before this is too short to be timed

Section = dict[str, Any]


class GpuBench:
    """An engine and what to ask it. Every session has a tenant of its own: no prefix is shared."""

    def __init__(
        self,
        engine: EngineClient,
        material: Material,
        *,
        decoded: int = DECODED,
        rounds: int = ROUNDS,
        edit_sampling: Sampling | None = None,
    ) -> None:
        self.engine, self.material, self.decoded, self.rounds = engine, material, decoded, rounds
        self.edit_sampling = edit_sampling or Sampling()
        self._tenants = 0

    def session(self) -> Any:
        self._tenants += 1
        return self.engine.session(tenant=f"tenant {self._tenants}")

    def text(self, count: int, offset: int = 0) -> list[int]:
        return self.material.code[offset : offset + count]


def measure_decode(bench: GpuBench, context: int) -> Section:
    """Measure tokens a second without drafts behind `context` tokens. The text must be the same each time."""
    for offset in range(0, 4000, 400):
        with bench.session() as session:
            tokens = bench.text(context, offset)
            bench.engine.run(Append(session, "", tokens[:-1]))
            turns = [_decode(bench, session, tokens) for _ in range(1 + bench.rounds)]
        if len(turns[0].tokens) >= min(MIN_DECODED_TOKENS, bench.decoded):
            break
    timed = turns[1:]  # the first has everything in the caches for the others
    work = [turn.waterfall for turn in timed]
    return {
        "tokens_per_s": 1e3 / median([turn.token_ms for turn in timed]),
        "tokens": len(turns[0].tokens),
        "host_us_per_token": median([each.overhead_ms * 1e3 / max(1, each.steps) for each in work]),
        "host_share": median([ratio(each.overhead_ms, each.decode_ms) for each in work]),
        "is_same_every_time": len({tuple(turn.tokens) for turn in turns}) == 1,
    }


def _decode(bench: GpuBench, session: str, tokens: list[int]) -> Turn:
    turn = bench.engine.run(Generate(session, "", tokens[-1:], max_tokens=bench.decoded, use_drafts=False))
    bench.engine.send(Rewind(session, len(tokens) - 1))
    return turn


def measure_first_token(bench: GpuBench, count: int) -> float:
    """Return milliseconds from the frame to the first token of a new prompt of `count` tokens."""
    spent = []
    for number in range(bench.rounds):
        with bench.session() as session:
            work = Generate(session, "", bench.text(count, 97 * number), max_tokens=1)
            spent.append(bench.engine.run(work).first_token_ms)
    return median(spent)


def measure_steer(bench: GpuBench) -> Section:
    """Interrupt a running turn and send the next one at once."""
    steers, ends = [], []
    for number in range(bench.rounds + 2):
        with bench.session() as session:
            running = bench.engine.begin(
                Generate(session, "", bench.text(1024, 131 * number), max_tokens=2000, use_drafts=False)
            )
            bench.engine.wait_for_tokens(running, 20)
            bench.engine.send(Interrupt(running.name))
            next_turn = bench.engine.run(Generate(session, "", list(bench.material.steer), max_tokens=2))
            steers.append(next_turn.first_token_ms)
            ends.append((running.ended_s - next_turn.sent_s) * 1e3)
    return {
        "first_token_ms": median(steers),
        "old_turn_ended_ms": median(ends),
        "new_tokens": len(bench.material.steer),
    }


def measure_stop(bench: GpuBench) -> float:
    """Return the longest time, in milliseconds, from an interrupt during prefill to the turn's end."""
    spent = []
    for number in range(bench.rounds):
        with bench.session() as session:
            turn = bench.engine.begin(Append(session, "", bench.text(STOPPED_TOKENS, 97 * number)))
            time.sleep(STOP_STEP_S * (number + 1))
            asked = time.perf_counter()
            bench.engine.send(Interrupt(turn.name))
            spent.append((bench.engine.finish(turn).ended_s - asked) * 1e3)
    return max(spent)


def measure_edits(bench: GpuBench, *, has_first_token: bool = True) -> Section:
    """Measure real edits with and without drafts: decoding only, no prefill.

    Without the first token where the host chooses it among random logits, which are all alike: milliseconds.
    """
    on, off = [], []
    for edit in bench.material.edits:
        with bench.session() as session:
            bench.engine.run(Append(session, "", edit.prompt[:-1]))
            on.append(_edit(bench, session, edit, use_drafts=True))
            off.append(_edit(bench, session, edit, use_drafts=False))
    same = [a.tokens == b.tokens for a, b in zip(on, off, strict=True)]
    steps = sum(turn.waterfall.steps for turn in on)
    with_drafts, without = (_rate(turns, has_first_token=has_first_token) for turns in (on, off))
    return {
        "tokens_per_s": with_drafts,
        "without_drafts_tokens_per_s": without,
        "speedup": ratio(with_drafts, without),
        "identical": sum(same) / len(same),
        "tokens_per_pass": ratio(sum(len(turn.tokens) for turn in on), steps),
        "draft_us_per_pass": sum(turn.waterfall.draft_ms for turn in on) * 1e3 / max(1, steps),
        "host_us_per_pass": sum(turn.waterfall.overhead_ms for turn in on) * 1e3 / max(1, steps),
        "draft_accepted": sum(turn.waterfall.draft_accepted for turn in on),
        "draft_rejected": sum(turn.waterfall.draft_rejected for turn in on),
        "tokens": sum(len(turn.tokens) for turn in on),
        "rows": len(on),
        "different_rows": [
            edit.name for edit, is_same in zip(bench.material.edits, same, strict=True) if not is_same
        ],
    }


def _edit(bench: GpuBench, session: str, edit: Edit, *, use_drafts: bool) -> Turn:
    turn = bench.engine.run(
        Generate(
            session,
            "",
            edit.prompt[-1:],
            max_tokens=edit.max_tokens,
            sampling=bench.edit_sampling,
            stop=edit.stop,
            prediction=edit.prediction if use_drafts else [],
            use_drafts=use_drafts,
        )
    )
    bench.engine.send(Rewind(session, len(edit.prompt) - 1))
    return turn


def _rate(turns: list[Turn], *, has_first_token: bool = True) -> float:
    tokens, seconds = sum(len(turn.tokens) for turn in turns), sum(turn.whole_s for turn in turns)
    if has_first_token:
        return ratio(tokens, seconds)
    return ratio(tokens - len(turns), seconds - sum(turn.first_token_ms for turn in turns) / 1e3)
