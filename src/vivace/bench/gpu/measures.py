"""One engine process on the GPU, asked as a server asks it: speed, first tokens, steering, edits.

Owns what is asked and what the clock shows on this side of the socket. Does not start the engine.
"""

import time
from typing import Any

from vivace.bench.engine.engine_process import EngineProcess, Turn
from vivace.bench.figures import median, ratio
from vivace.bench.gpu.material import Edit, Material
from vivace.engine.wire.frames import Append, Generate, Interrupt, Rewind

CONTEXTS = (1024, 4096, 16384)
NEW_TOKENS = (1024, 4096, 8192)
DECODED = 256
EDIT_TOKENS = 500
ROUNDS = 5
STOPPED_TOKENS = 16384  # of the prompt that is stopped while it is read
STOP_STEP_S = 0.013  # each time it is read so much longer before somebody stops it
LEAST_DECODED = 64  # a text that ends before this is too short to be timed

Section = dict[str, Any]


class Asker:
    """Gives every question a tenant of its own, so that nothing is shared that should be measured."""

    def __init__(
        self, engine: EngineProcess, material: Material, *, decoded: int = DECODED, rounds: int = ROUNDS
    ) -> None:
        self.engine, self.material, self.decoded, self.rounds = engine, material, decoded, rounds
        self._tenants = 0

    def session(self) -> Any:
        self._tenants += 1
        return self.engine.session(tenant=f"tenant {self._tenants}")

    def text(self, count: int, offset: int = 0) -> list[int]:
        return self.material.code[offset : offset + count]


def measure_decode(asker: Asker, context: int) -> Section:
    """Tokens a second without drafts, behind so much text; the same text must come every time."""
    for offset in range(0, 4000, 400):
        with asker.session() as session:
            tokens = asker.text(context, offset)
            asker.engine.run(Append(session, "", tokens[:-1]))
            turns = [_decode(asker, session, tokens) for _ in range(1 + asker.rounds)]
        if len(turns[0].tokens) >= min(LEAST_DECODED, asker.decoded):
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


def _decode(asker: Asker, session: str, tokens: list[int]) -> Turn:
    turn = asker.engine.run(Generate(session, "", tokens[-1:], max_tokens=asker.decoded, use_drafts=False))
    asker.engine.send(Rewind(session, len(tokens) - 1))
    return turn


def measure_first_token(asker: Asker, count: int) -> float:
    """Milliseconds from the frame to the first token, behind so many tokens that nobody has read yet."""
    spent = []
    for number in range(asker.rounds):
        with asker.session() as session:
            work = Generate(session, "", asker.text(count, 97 * number), max_tokens=1)
            spent.append(asker.engine.run(work).first_token_ms)
    return median(spent)


def measure_steer(asker: Asker) -> Section:
    """A running turn is interrupted and told something else, in one breath."""
    steers, ends = [], []
    for number in range(asker.rounds + 2):
        with asker.session() as session:
            running = asker.engine.begin(
                Generate(session, "", asker.text(1024, 131 * number), max_tokens=2000, use_drafts=False)
            )
            asker.engine.wait_for_tokens(running, 20)
            asker.engine.send(Interrupt(running.name))
            next_turn = asker.engine.run(Generate(session, "", list(asker.material.steer), max_tokens=2))
            steers.append(next_turn.first_token_ms)
            ends.append((running.ended_s - next_turn.sent_s) * 1e3)
    return {
        "first_token_ms": median(steers),
        "old_turn_ended_ms": median(ends),
        "new_tokens": len(asker.material.steer),
    }


def measure_stop(asker: Asker) -> float:
    """The longest that a turn went on after its interrupt while its prompt was read, in milliseconds."""
    spent = []
    for number in range(asker.rounds):
        with asker.session() as session:
            turn = asker.engine.begin(Append(session, "", asker.text(STOPPED_TOKENS, 97 * number)))
            time.sleep(STOP_STEP_S * (number + 1))
            asked = time.perf_counter()
            asker.engine.send(Interrupt(turn.name))
            spent.append((asker.engine.finish(turn).ended_s - asked) * 1e3)
    return max(spent)


def measure_edits(asker: Asker) -> Section:
    """Real edits, drafts on and off: the decoding of every token, and none of the prefill."""
    on, off = [], []
    for edit in asker.material.edits:
        with asker.session() as session:
            asker.engine.run(Append(session, "", edit.prompt[:-1]))
            on.append(_edit(asker, session, edit, use_drafts=True))
            off.append(_edit(asker, session, edit, use_drafts=False))
    same = [a.tokens == b.tokens for a, b in zip(on, off, strict=True)]
    steps = sum(turn.waterfall.steps for turn in on)
    return {
        "tokens_per_s": _rate(on),
        "without_drafts_tokens_per_s": _rate(off),
        "speedup": ratio(_rate(on), _rate(off)),
        "identical": sum(same) / len(same),
        "tokens_per_pass": ratio(sum(len(turn.tokens) for turn in on), steps),
        "draft_us_per_pass": sum(turn.waterfall.draft_ms for turn in on) * 1e3 / max(1, steps),
        "host_us_per_pass": sum(turn.waterfall.overhead_ms for turn in on) * 1e3 / max(1, steps),
        "draft_accepted": sum(turn.waterfall.draft_accepted for turn in on),
        "draft_rejected": sum(turn.waterfall.draft_rejected for turn in on),
        "tokens": sum(len(turn.tokens) for turn in on),
        "rows": len(on),
        "different_rows": [
            edit.name for edit, is_same in zip(asker.material.edits, same, strict=True) if not is_same
        ],
    }


def _edit(asker: Asker, session: str, edit: Edit, *, use_drafts: bool) -> Turn:
    turn = asker.engine.run(
        Generate(
            session,
            "",
            edit.prompt[-1:],
            max_tokens=EDIT_TOKENS,
            stop=edit.stop,
            prediction=edit.prediction if use_drafts else [],
            use_drafts=use_drafts,
        )
    )
    asker.engine.send(Rewind(session, len(edit.prompt) - 1))
    return turn


def _rate(turns: list[Turn]) -> float:
    return ratio(sum(len(turn.tokens) for turn in turns), sum(turn.whole_s for turn in turns))
