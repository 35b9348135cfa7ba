"""Whether the right answer was among those that were written, and which rule would have chosen it.

    .venv/bin/python benchmarks/agent/request_choice.py RESULTS.jsonl [--effort high] [--half tuning|held-out]

RESULTS is a file of `vivace eval requests`, with answers at this effort and at low. Every answer that was
written is judged in the sandbox; verdicts are kept in RESULTS.choices.json, so a second run is quick. The
rules look at the answers alone: the order in which they come is that of the loop's own choice, which goes by
likelihood where no examples can be run. The first answer is what low effort wrote. Choose a rule on the
tuning half, and look at the held-out one once.
"""

import argparse
import asyncio
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from vivace.agent.effort import EFFORTS, Effort
from vivace.config import load_settings
from vivace.eval.edits.bundle import bundle, unbundle
from vivace.eval.edits.results import Answer, Results
from vivace.eval.edits.run import together
from vivace.eval.requests.judging import judge_request
from vivace.eval.requests.plan import Kept, fetch_trees, read_set
from vivace.eval.requests.requests import Request
from vivace.eval.requests.trees import read_texts


@dataclass(frozen=True)
class Candidate:
    code: str  # as answers are kept
    lines: int  # that change
    verdict: str = ""


@dataclass(frozen=True)
class Case:
    request: Request
    candidates: tuple[Candidate, ...]  # the chosen one first
    first: str  # what low effort wrote; "" if nothing

    @property
    def has_right(self) -> bool:
        return any(each.verdict == "passed" for each in self.candidates)


Rule = Callable[[Case], Candidate]


def smallest(case: Case) -> Candidate:
    return min(case.candidates, key=lambda each: each.lines)


def largest(case: Case) -> Candidate:
    return max(case.candidates, key=lambda each: each.lines)


def first(case: Case) -> Candidate:
    """Return what low effort wrote where it is among the answers, or else the chosen one."""
    return next((each for each in case.candidates if each.code == case.first), case.candidates[0])


def middle(case: Case) -> Candidate:
    """Return the answer whose size is the median."""
    return sorted(case.candidates, key=lambda each: each.lines)[len(case.candidates) // 2]


def first_unless_tiny(case: Case) -> Candidate:
    """Return the first answer, or the likeliest of those that change more where it changes one line."""
    taken = first(case)
    if taken.lines > 1:
        return taken
    return next((each for each in case.candidates if each.lines > 1), taken)


RULES: dict[str, Rule] = {
    "as it chose": lambda case: case.candidates[0],
    "first answer": first,
    "smallest change": smallest,
    "median change": middle,
    "largest change": largest,
    "first, unless one line": first_unless_tiny,
}


def read_cases(results: Results, effort: Effort, requests: Sequence[Request]) -> list[Case]:
    """Return the requests of which more than one answer is known."""
    by_name = {each.name: each for each in requests}
    low = {each.task: each.code or "" for each in results.answers.values() if each.effort == "low"}
    cases = []
    for answer in results.answers.values():
        request = by_name.get(answer.task)
        if request and answer.effort == effort and answer.code and answer.found and answer.found.others:
            cases.append(Case(request, tuple(_candidates(request, answer)), low.get(answer.task, "")))
    return cases


def _candidates(request: Request, answer: Answer) -> list[Candidate]:
    assert answer.code
    assert answer.found
    before = read_texts(request.archive)
    found = [Candidate(answer.code, answer.lines_changed)]
    for each in answer.found.others:
        text = each.applied_to(before.get(each.path, ""))
        lines = each.end - each.first + len(each.lines)
        found.append(Candidate(bundle({each.path: text}), lines))
    return found


async def judged(cases: Sequence[Case], kept: Path) -> list[Case]:
    """Return the cases with verdicts. Those that are known from an earlier run are not found again."""
    known = _read_known(kept)
    waiting = iter([(case, each) for case in cases for each in case.candidates])

    async def work() -> None:
        for case, candidate in waiting:
            key = _key(case, candidate)
            if key not in known:
                known[key] = (await judge_request(case.request, candidate.code))[0]
                _keep_known(kept, known)

    await together(work() for _ in range(os.cpu_count() or 1))
    return [
        Case(
            case.request,
            tuple(Candidate(each.code, each.lines, known[_key(case, each)]) for each in case.candidates),
            case.first,
        )
        for case in cases
    ]


def _read_known(kept: Path) -> dict[str, str]:
    return dict(json.loads(kept.read_text())) if kept.exists() else {}


def _keep_known(kept: Path, known: dict[str, str]) -> None:
    kept.write_text(json.dumps(known))


def _key(case: Case, candidate: Candidate) -> str:
    return f"{case.request.name} {json.dumps(unbundle(candidate.code), sort_keys=True)}"


def report(cases: Sequence[Case]) -> None:
    halves = {
        "tuning": [each for each in cases if not each.request.is_held_out],
        "held out": [each for each in cases if each.request.is_held_out],
    }
    print(f"{'':<26}" + "".join(f"{name:>12}" for name in halves))
    print(f"{'requests with several':<26}" + "".join(f"{len(part):>12}" for part in halves.values()))
    print(f"{'right among the answers':<26}" + "".join(f"{_right(part):>12}" for part in halves.values()))
    for name, rule in RULES.items():
        chosen = [[rule(case).verdict for case in part] for part in halves.values()]
        cells = "".join(f"{part.count('passed'):>8}/{part.count('broke'):<3}" for part in chosen)
        print(f"{name:<26}{cells}  right/broke")


def _right(part: Sequence[Case]) -> int:
    return sum(case.has_right for case in part)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--effort", choices=EFFORTS, default="high")
    parser.add_argument("--half", choices=("tuning", "held-out"))
    parser.add_argument("--data", type=Path)
    args = parser.parse_args()
    kept = Kept(args.data or load_settings().evals_folder)
    requests = [
        each for each in read_set(kept) if args.half in (None, "held-out" if each.is_held_out else "tuning")
    ]
    fetch_trees(requests, kept, print)
    with Results(args.results) as results:
        cases = read_cases(results, cast(Effort, args.effort), requests)
    report(asyncio.run(judged(cases, args.results.with_suffix(".choices.json"))))


if __name__ == "__main__":
    main()
