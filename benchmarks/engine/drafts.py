"""How much drafts save, by simulation: the model is taken to write exactly what the commit's author wrote.

    .venv/bin/python benchmarks/engine/drafts.py [--data FOLDER] [--model NAME] [--acceptance]

A pass over n tokens costs what a table says, so this needs no weights and no quiet machine, only the model's
tokenizer. It compares sources of drafts on the same text, and shows that drafts cost next to nothing where
the output resembles nothing. `--acceptance` counts how often each source is right: the priors of the engine.
"""

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from vivace.agent.edits.apply.source import source_from_bytes
from vivace.agent.edits.find.languages import language_for
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.units import file_unit
from vivace.agent.edits.write.rewrite import Rewrite, rewrite_request
from vivace.bench.rows import Row, as_messages, changed_lines, read_rows, smallest_unit
from vivace.config import load_settings
from vivace.engine.common_length import common_length
from vivace.engine.speculation import Drafter, History, StepCosts
from vivace.engine.speculation.acceptance import MATCH_LENGTHS, AcceptanceRates, DraftSource
from vivace.engine.speculation.costs import estimate_costs
from vivace.models.download import ensure
from vivace.models.families.qwen25 import Qwen25
from vivace.models.progress import Silent
from vivace.models.tokenizer import Tokenizer, load_tokenizer

UNIT_TOKENS, FILE_TOKENS = 400, 2000
LIMIT = 63  # tokens of a draft
SEED = 3
NOISE = (0.02, 0.05, 0.15)  # edits a token
COSTS: dict[str, dict[int, float]] = {  # ms of a pass by its tokens, 1.5B
    "x86 AMX, Q8_0": {1: 54, 2: 87, 4: 90, 8: 131, 16: 127, 32: 260, 64: 448},
    "ARM N1, Q8_0": {1: 60, 4: 109, 8: 213, 16: 335, 32: 650},
    "x86 AVX-512, Q4_K_M": {1: 190, 2: 330, 4: 450, 8: 960, 16: 1140, 32: 1950, 64: 3650},
    "like a GPU": {1: 1, 2: 1.02, 4: 1.04, 8: 1.06, 16: 1.2, 32: 1.4, 64: 2},
}


class Case(NamedTuple):
    log: list[int]
    prediction: list[int]
    output: list[int]


class Source(Protocol):
    def propose(self, limit: int) -> list[int]: ...

    def observe(self, tokens: Sequence[int]) -> None: ...


Make = Callable[[StepCosts, History, list[int]], Source]


class Total(NamedTuple):
    speedup: float
    tokens_per_pass: float
    own_ms: float  # processor time of finding drafts, a pass


class PromptLookup:
    """The peers' way: the first place in the log with the last 4, 3 or 2 tokens, and 10 tokens from there."""

    def __init__(self, costs: StepCosts, history: History, prediction: list[int]) -> None:
        del costs, prediction
        self._history = history

    def propose(self, limit: int) -> list[int]:
        log = self._history.tail(len(self._history))
        text = np.array(log, np.int32)
        for size in (4, 3, 2):
            windows = np.lib.stride_tricks.sliding_window_view(text[:-1], size)
            found = np.flatnonzero((windows == text[-size:]).all(axis=1))
            if len(found):
                start = int(found[0]) + size
                return log[start : start + min(10, limit)]
        return []

    def observe(self, tokens: Sequence[int]) -> None:
        pass


def log_only(costs: StepCosts, history: History, prediction: list[int]) -> Source:
    del prediction
    return Drafter(costs, history)


SOURCES: dict[str, Make] = {
    "prompt lookup, 2-4 → 10": PromptLookup,
    "suffix match only": log_only,
    "cursor and suffix": Drafter,
}


# ---- the texts ---------------------------------------------------------------------------------------


class Texts:
    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._template = Qwen25(tokenizer)

    def unit(self, row: Row) -> Case | None:
        """Return the rewrite of the smallest function or class that holds the change, or None."""
        path = Path(row.path)
        before = source_from_bytes(path, row.before.encode())
        after = source_from_bytes(path, row.after.encode())
        units = list_units(before, language_for(path))
        unit = smallest_unit(units, *changed_lines(row.before, row.after))
        new_lines = changed_lines(row.after, row.before)
        new = smallest_unit(list_units(after, language_for(path)), *new_lines)
        if unit is None or new is None or unit.qualified_name != new.qualified_name:
            return None
        request = rewrite_request(before, units, unit, row.instruction)
        case = self._case(request, after.text_of(new.first_line, new.last_line))
        return case if case and max(len(case.output), len(case.prediction)) <= UNIT_TOKENS else None

    def file(self, row: Row) -> Case | None:
        """Return the rewrite of the whole file, up to FILE_TOKENS tokens, or None."""
        source = source_from_bytes(Path(row.path), row.before.encode())
        units = list_units(source, language_for(source.path))
        request = rewrite_request(source, units, file_unit(source), row.instruction)
        case = self._case(request, row.after)
        return case._replace(output=case.output[:FILE_TOKENS]) if case else None

    def _case(self, request: Rewrite, new: str) -> Case | None:
        if not new.startswith(request.opening):
            return None
        output = self._tokenizer.encode(new.removeprefix(request.opening) + request.fence)
        log = self._template.render(as_messages(request.messages))
        return Case(log, self._tokenizer.encode(request.prediction), output)


def noisy(case: Case, rate: float, words: list[int], rng: random.Random) -> Case:
    """Return the prediction with random runs of tokens left out, inserted or replaced."""
    output: list[int] = []
    at = 0
    while at < len(case.prediction):
        if rng.random() < rate:
            length, change = rng.choice((1, 1, 2, 3, 5, 8, 12)), rng.randrange(3)
            output += [rng.choice(words) for _ in range(length)] if change else []
            at += length if change != 1 else 0
        output += case.prediction[at : at + 1]
        at += 1
    return case._replace(output=output)


def families(units: list[Case], whole: list[Case]) -> Iterator[tuple[str, list[Case]]]:
    rng = random.Random(SEED)
    words = [token for case in units for token in case.output]
    yield "commits, the unit", units
    yield "commits, the file", whole
    for rate in NOISE:
        yield f"unit, {rate:.0%} noise", [noisy(case, rate, words, rng) for case in units]
    others = units[1:] + units[:1]
    pairs = list(zip(units, others, strict=True))
    yield "another unit's text", [case._replace(output=other.output) for case, other in pairs]
    scrambled = [case._replace(output=rng.choices(words, k=len(case.output))) for case in units]
    yield "random tokens", scrambled


# ---- the simulation ----------------------------------------------------------------------------------


def play(
    case: Case, make: Make, costs: StepCosts, believed: StepCosts | None = None
) -> tuple[int, float, float]:
    """Return passes, their milliseconds by the table, and the source's own seconds for the whole output.

    The source goes by `believed` where that is given, which learns of each pass as an engine's costs do.
    """
    history = History(case.log)
    source = make(believed or costs, history, case.prediction)
    done, passes, spent_ms, own_s = 0, 0, 0.0, 0.0
    while done < len(case.output):
        begun = time.thread_time()
        draft = source.propose(LIMIT)
        own_s += time.thread_time() - begun
        rest = case.output[done : done + len(draft) + 1]
        said = rest[: common_length(draft, rest) + 1]
        begun = time.thread_time()
        history.extend(said)
        source.observe(said)
        own_s += time.thread_time() - begun
        pass_ms = costs.ms(len(draft) + 1)
        if believed:
            believed.observe(len(draft) + 1, pass_ms)
        passes, done, spent_ms = passes + 1, done + len(said), spent_ms + pass_ms
    return passes, spent_ms, own_s


def total(cases: list[Case], make: Make, points: dict[int, float]) -> Total:
    tokens = sum(len(case.output) for case in cases)
    played = [play(case, make, StepCosts(points)) for case in cases]
    passes, spent_ms, own_s = (sum(column) for column in zip(*played, strict=True))
    return Total(tokens * points[1] / spent_ms, tokens / passes, 1e3 * own_s / passes)


def first_turn_speed(cases: list[Case], points: dict[int, float]) -> float:
    """Return the speed of first turns, whose costs are estimated, as a share of that with known costs."""
    known = sum(play(case, Drafter, StepCosts(points))[1] for case in cases)
    return known / sum(play(case, Drafter, StepCosts(points), estimate_costs(points[1]))[1] for case in cases)


def print_table(units: list[Case], whole: list[Case]) -> None:
    print(f"{'':<22}{'':<26}" + "".join(f"{name:>20}" for name in COSTS))
    print(f"{'output':<22}{'drafts':<26}" + f"{'faster  tokens/pass':>20}" * len(COSTS) + f"{'own ms':>9}")
    for name, cases in families(units, whole):
        for label, make in SOURCES.items():
            totals = [total(cases, make, points) for points in COSTS.values()]
            cells = "".join(f"{each.speedup:>12.2f}{each.tokens_per_pass:>8.1f}" for each in totals)
            print(f"{name:<22}{label:<26}{cells}{totals[0].own_ms:>9.3f}", flush=True)
    shares = "".join(f"{first_turn_speed(units, points):>12.3f}{'':8}" for points in COSTS.values())
    print(f"{'commits, the unit':<22}{'share, costs estimated':<26}{shares}")


class Counting(AcceptanceRates):
    """Acceptance rates that also count right and wrong tokens by source and match length."""

    def __init__(self, counts: Counter[tuple[DraftSource, int, bool]]) -> None:
        super().__init__()
        self._counts = counts

    def update(self, kind: DraftSource, run: int, right: int, *, was_wrong: bool) -> None:
        for offset in range(right + was_wrong):
            least = max(least for least in MATCH_LENGTHS if least <= run + offset)
            self._counts[kind, least, offset < right] += 1
        super().update(kind, run, right, was_wrong=was_wrong)


def print_acceptance(units: list[Case], whole: list[Case]) -> None:
    """Count with plain passes, where one token judges every candidate, with and without a prediction."""
    counts: Counter[tuple[DraftSource, int, bool]] = Counter()

    def make(costs: StepCosts, history: History, prediction: list[int]) -> Source:
        drafter = Drafter(costs, history, prediction)
        drafter._acceptance = Counting(counts)
        return drafter

    for _, cases in families(units, whole):
        for seen in (cases, [case._replace(prediction=[]) for case in cases]):
            total(seen, make, {1: 1.0, 2: 2.0, 64: 64.0})
    print(f"{'run':<8}" + "".join(f"{run:>14}" for run in MATCH_LENGTHS))
    for kind in DraftSource:
        pairs = [(counts[kind, run, True], counts[kind, run, False]) for run in MATCH_LENGTHS]
        cells = (f"{right / max(1, right + wrong):.3f} ({right + wrong})" for right, wrong in pairs)
        print(f"{kind.name.lower():<8}" + "".join(f"{cell:>14}" for cell in cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with commit_edits.jsonl")
    parser.add_argument("--model")
    parser.add_argument("--acceptance", action="store_true")
    args = parser.parse_args()
    settings = load_settings().having(model=args.model)
    texts = Texts(load_tokenizer(settings.model, ensure(settings, settings.model, Silent())))
    found = read_rows(args.data)
    units = [case for row in found.rows if (case := texts.unit(row))]
    whole = [case for row in found.rows if (case := texts.file(row))]
    half = 0 if args.acceptance else 1  # the priors come from the even ones
    units, whole = units[half::2], whole[half::2]
    print(f"{found.source}; tokens as in {settings.model}; seed {SEED}")
    print("The engine's prior acceptance rates were counted on the even units and files;")
    print(f"this is from the {'odd' if half else 'even'} ones: {len(units)} units, {len(whole)} files.\n")
    (print_acceptance if args.acceptance else print_table)(units, whole)


if __name__ == "__main__":
    main()
