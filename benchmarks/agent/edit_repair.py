"""Whether it helps to tell a model what was wrong with its answer, and to ask it which answer is right.

    collect --data FOLDER --sample N FILE    with the default model on the warm server: answers and reviews
    damaged --data FOLDER --sample N         the same model repairs a broken first answer, and the old code
    judge --data FOLDER FILE                 in the sandbox: which answers are right
    show FILE                                the tables

Owns the measurement, and the review, which the product does not use: it did not tell right from wrong. The
requests and words of a repair are those of the product (`agent.edits.repair`). What is done is not done
again. The figures are in benchmarks/results.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path

import msgspec

from vivace.agent.edits.apply.source import source_from_bytes, splice
from vivace.agent.edits.check.choose import examples_for
from vivace.agent.edits.check.tidy import tidy
from vivace.agent.edits.find.languages import PYTHON
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.units import file_unit
from vivace.agent.edits.proposal import FileProposal, make_proposal
from vivace.agent.edits.repair.failing import failed_examples
from vivace.agent.edits.repair.told import rewrite_told, what_failed, what_is_wrong
from vivace.agent.edits.write.answer import FenceReader
from vivace.agent.edits.write.branches import write_others
from vivace.agent.edits.write.rewrite import Rewrite, rewrite_request
from vivace.agent.model import Model
from vivace.agent.prompting import begun_answer, user
from vivace.client.responses import ResponsesClient
from vivace.client.warm import ensure_server
from vivace.config import load_settings
from vivace.errors import FileProblem
from vivace.eval.edits.scoring import judge
from vivace.eval.edits.tasks import SetName, Task, choose_tasks, read_tasks

SETS: tuple[SetName, ...] = ("humanevalfix", "humanevalfix-doc", "editeval")


NOTHING_CHANGED = "Your answer is the same as the piece was before. It must be changed."
QUESTION = "Is this right? Does the piece now do what the task says, without a mistake? Answer yes or no."


class Tried(msgspec.Struct):
    """One answer to a task."""

    origin: str  # first, branch, told (behind the first), told-example (behind the best with examples)
    text: str
    nats_per_token: float
    code: str = ""
    problem: str = ""  # why it cannot be used
    failed: int = 0  # examples
    yes: float | None = None  # log-odds of the review
    is_right: bool | None = None


class Case(msgspec.Struct):
    set: SetName
    task: str
    examples: int
    answers: list[Tried]

    def of(self, *origins: str) -> list[Tried]:
        return [each for each in self.answers if each.origin in origins and not each.problem]


class Work:
    """One task: its request, and what becomes of an answer."""

    def __init__(self, task: Task) -> None:
        self.source = source_from_bytes(Path("solution.py"), task.code.encode())
        units = list_units(self.source, PYTHON)
        outer = [unit for unit in units if "." not in unit.qualified_name]
        self.unit = outer[0] if len(outer) == 1 else file_unit(self.source)
        self.instruction = task.instruction
        self.request: Rewrite = rewrite_request(self.source, units, self.unit, task.instruction)

    def proposal(self, answer: str) -> FileProposal:
        reader = FenceReader(self.request.fence, self.request.opening)
        reader.feed(answer)
        reader.finish()
        text = tidy(self.source, PYTHON, self.unit, reader.text)
        new = splice(self.source, self.unit.first_line, self.unit.last_line, text)
        return make_proposal(self.source, self.unit, self.instruction, new)

    def tried(self, origin: str, text: str, nats_per_token: float) -> Tried:
        try:
            proposal = self.proposal(text)
        except FileProblem as error:
            return Tried(origin, text, nats_per_token, problem=error.message)
        code = proposal.new_bytes.decode()
        wrong = what_is_wrong(proposal) or ("" if proposal.hunks else NOTHING_CHANGED)
        return Tried(origin, text, nats_per_token, code, wrong)


def write_first(model: Model, request: Rewrite) -> AsyncGenerator[str]:
    return model.write(
        request.messages, max_tokens=request.max_tokens, stop=request.stop, prediction=request.prediction
    )


async def review(model: Model, request: Rewrite, answer: str) -> float:
    """Return the log-odds that the answer is right, as the model scores yes and no."""
    *asked, begun = request.messages
    whole = {"role": "assistant", "content": f"{begun['content']}{answer}\n{request.fence}"}
    yes, no = await model.score([*asked, whole, user(QUESTION), begun_answer("")], ["yes", "no"])
    return yes - no


async def collect(model: Model, set_name: SetName, task: Task, branches: int) -> Case:
    work = Work(task)
    first = "".join([delta async for delta in write_first(model, work.request)])
    answers = await write_others(model, work.request, first, branches)
    tried = [
        work.tried("branch" if n else "first", each.text, each.nats_per_token)
        for n, each in enumerate(answers)
    ]
    if tried[0].problem and (told := await rewrite_told(model, work.request, first, tried[0].problem)):
        tried.append(work.tried("told", told, 0.0))
    examples = examples_for(work.proposal(first))
    if examples:
        for each in tried:
            each.failed = len(await failed_examples(each.code, examples) or []) if not each.problem else 0
        await add_told_example(model, work, tried, examples)
    for each in tried:
        if not each.problem:
            each.yes = await review(model, work.request, each.text)
    return Case(set_name, task.name, len(examples), tried)


async def add_told_example(model: Model, work: Work, tried: list[Tried], examples: list) -> None:  # type: ignore[type-arg]
    """Tell the best answer of high effort which examples do not hold for it, if there are any."""
    usable = [each for each in tried if not each.problem and each.origin != "told"]
    best = min(usable, key=lambda each: (each.failed, -each.nats_per_token), default=None)
    if best is None or not best.failed:
        return
    failed = await failed_examples(best.code, examples) or []
    if told := await rewrite_told(model, work.request, best.text, what_failed(failed)):
        again = work.tried("told-example", told, best.nats_per_token)
        again.failed = (
            len(await failed_examples(again.code, examples) or []) if not again.problem else len(failed)
        )
        tried.append(again)


async def collect_all(data: Path, sample: int, branches: int, file: Path) -> None:
    done = {(case.set, case.task) for case in read(file)}
    settings = load_settings()
    async with ResponsesClient(ensure_server(settings)) as client:
        by_set = [choose_tasks(read_tasks(set_name, data), sample, None) for set_name in SETS]
        for row in zip(*by_set, strict=True):  # the sets by turns: an interrupted run has some of each
            for set_name, task in zip(SETS, row, strict=True):
                if (set_name, task.name) not in done:
                    case = await collect(Model(client, settings.model), set_name, task, branches)
                    with file.open("ab") as out:
                        out.write(msgspec.json.encode(case) + b"\n")
                    print(set_name, task.name, [each.origin for each in case.answers], file=sys.stderr)


async def repair_damaged(data: Path, sample: int) -> None:
    """Print what comes of repairs of a first answer without its last bracket, and of the old code."""
    settings = load_settings()
    tasks = choose_tasks(read_tasks("humanevalfix-doc", data), sample, None)
    async with ResponsesClient(ensure_server(settings)) as client:
        model = Model(client, settings.model)
        for task in tasks:
            work = Work(task)
            old = task.code.partition(work.request.opening)[2].rstrip("\n")
            if failed := await failed_examples(task.code, examples_for(work.proposal(old))):
                told = await rewrite_told(model, work.request, old, what_failed(failed))
                print(task.name, "examples:", await _verdict(task, work, told), flush=True)
            first = "".join([delta async for delta in write_first(model, work.request)])
            bracket = first.rfind(")")
            broken = first[:bracket] + first[bracket + 1 :]
            if complaint := what_is_wrong(work.proposal(broken)):
                told = await rewrite_told(model, work.request, broken, complaint)
                print(task.name, "syntax:", await _verdict(task, work, told), flush=True)


async def _verdict(task: Task, work: Work, answer: str | None) -> str:
    proposal = work.proposal(answer) if answer is not None else None
    if proposal is None or proposal.problems or not proposal.hunks:
        return "cannot be used"
    return (await judge(task, proposal.new_bytes.decode()))[0]


async def judge_all(data: Path, cases: list[Case]) -> None:
    tasks = {(set_name, task.name): task for set_name in SETS for task in read_tasks(set_name, data)}
    for case in cases:
        verdicts: dict[str, bool] = {}
        for each in case.answers:
            if each.problem or each.is_right is not None:
                continue
            if each.code not in verdicts:
                verdict, _ = await judge(tasks[case.set, case.task], each.code)
                verdicts[each.code] = verdict == "passed"
            each.is_right = verdicts[each.code]


Choosing = Callable[[Case], Tried | None]


def by(key: Callable[[Tried], float]) -> Choosing:
    """Choose by examples, then by `key`."""
    return lambda case: max(
        case.of("first", "branch"), key=lambda each: (-each.failed, key(each)), default=None
    )


def first_or(*origins: str) -> Choosing:
    """Take the first answer if it can be used, else the likeliest of other origins."""
    return lambda case: (
        next(iter(case.of("first")), None)
        or max(case.of(*origins), key=lambda each: each.nats_per_token, default=None)
    )


def told_example(case: Case) -> Tried | None:
    """Take the answer that was told of an example if it holds more of them than the best."""
    best = by(lambda each: each.nats_per_token)(case)
    told = next(iter(case.of("told-example")), None)
    return told if told and best and told.failed < best.failed else best


WAYS: dict[str, Choosing] = {
    "first": first_or(),
    "first, or branches (medium)": first_or("branch"),
    "first, or told": first_or("told"),
    "likeliest a token (high)": by(lambda each: each.nats_per_token),
    "review alone": by(lambda each: each.yes or 0.0),
    **{
        f"likeliest a token and {weight} x review": by(
            lambda each, weight=weight: each.nats_per_token + weight * (each.yes or 0.0)  # type: ignore[misc]
        )
        for weight in (0.01, 0.03, 0.1, 0.3)
    },
    "high, then told the failed examples": told_example,
    "any": lambda case: next((each for each in case.of("first", "branch") if each.is_right), None),
}


def show(cases: Sequence[Case]) -> None:
    print(f"{'':<44}" + "".join(f"{name:>20}" for name in SETS))
    for title, choose in WAYS.items():
        cells = []
        for set_name in SETS:
            chosen = [choose(case) for case in cases if case.set == set_name]
            right = sum(bool(each and each.is_right) for each in chosen)
            cells.append(f"{right:>10} of {len(chosen):<3} {chosen.count(None):>2}-")
        print(f"{title:<44}" + "".join(cells))
    print("Right among all; behind it, how many were refused.")


def read(file: Path) -> list[Case]:
    lines = file.read_bytes().splitlines() if file.exists() else []
    return [msgspec.json.decode(line, type=Case) for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("collect", "damaged", "judge", "show"))
    parser.add_argument("file", type=Path, nargs="?", default=Path("edit-repair.jsonl"))
    parser.add_argument("--data", type=Path, help="folder of the public tasks")
    parser.add_argument("--sample", type=int, default=12)
    parser.add_argument("--branches", type=int, default=9)
    options = parser.parse_args()
    match options.what:
        case "collect":
            asyncio.run(collect_all(options.data, options.sample, options.branches, options.file))
        case "damaged":
            asyncio.run(repair_damaged(options.data, options.sample))
        case "judge":
            cases = read(options.file)
            asyncio.run(judge_all(options.data, cases))
            options.file.write_bytes(b"".join(msgspec.json.encode(case) + b"\n" for case in cases))
        case "show":
            show(read(options.file))


if __name__ == "__main__":
    main()
