"""How to find and choose the right answer to an edit: prompts, samples and branches, on public tasks.

    prepare --model GGUF --data FOLDER PLAN      where llama.cpp is: the tasks as tokens
    run --model GGUF PLAN ANSWERS                on a GPU, with transformers, without llama.cpp
    judge --data FOLDER ANSWERS                  in the sandbox: which answers are right
    show ANSWERS                                 the tables, the held-out third apart

Owns the prompts that were tried, the batched writing, and the ways of choosing that were compared. Does not
own what the product does with it (`agent.edits`, which is imported only where it is needed: the GPU machine
lacks some of its packages). The figures are in benchmarks/results.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from vivace.agent.prompting import Message, read_prompt
from vivace.eval.edits.tasks import SetName, Task, read_tasks

if TYPE_CHECKING:
    from vivace.agent.edits.find.units import Unit

SETS: tuple[SetName, ...] = ("humanevalfix", "humanevalfix-doc", "editeval")
ROWS = 900  # answers that are written at once
SPARE_TOKENS = 560  # of the product's room beyond the old text that is not given here: loops cost time
PLAIN = (
    "You are a careful programmer. You rewrite a piece of a file so that it does what the task says. You "
    "change only what the task needs and keep everything else exactly as it is: names, comments, order and "
    "formatting. You answer with the whole rewritten piece and nothing else."
)


class Prompt(msgspec.Struct, frozen=True):
    """What stands before the request: the product's examples, or a system message, or both."""

    system: str = ""
    has_examples: bool = False


PROMPTS = {
    "instructions": Prompt(PLAIN),
    "examples": Prompt(has_examples=True),
    "both": Prompt(PLAIN, has_examples=True),
}


class Planned(msgspec.Struct, frozen=True):
    """A task as tokens, by prompt."""

    set: str
    name: str
    max_tokens: int
    prompts: dict[str, list[int]]


class Plan(msgspec.Struct, frozen=True):
    stops: list[int]
    tasks: list[Planned]


class Found(msgspec.Struct):
    """One distinct answer to a task."""

    set: str
    name: str
    prompt: str
    text: str  # behind the opening
    tokens: int
    origins: list[tuple[str, float]]  # greedy, sample or branch; and its log-probability
    code: str = ""  # the whole file
    is_usable: bool = False
    held: int = 0  # examples of the instruction that hold
    is_right: bool = False


# ---- here: tasks to tokens -------------------------------------------------------------------------


def prepare(model: Path, data: Path) -> Plan:
    from vivace.agent.edits.apply.source import source_from_bytes
    from vivace.agent.edits.find.languages import PYTHON
    from vivace.agent.edits.find.outline import list_units
    from vivace.agent.edits.write.rewrite import rewrite_request
    from vivace.models.families.choose import family_for
    from vivace.models.tokenizer import GgufTokenizer

    tokenizer = GgufTokenizer(model)
    family = family_for(tokenizer, str(model))

    def render(messages: Iterable[Message]) -> list[int]:
        from vivace.models.families.base import Message as Entry

        entries = [
            Entry(each["role"], each["content"], is_open=each.get("status") == "in_progress")  # type: ignore[arg-type]
            for each in messages
        ]
        return family.render(entries)

    planned = []
    for (set_name, name), task in read_all(data):
        source = source_from_bytes(Path("solution.py"), task.code.encode())
        request = rewrite_request(source, list_units(source, PYTHON), unit_of(task.code), task.instruction)
        asked = request.messages[len(read_prompt("rewrite")) :]
        prompts = {title: render([*begun(prompt), *asked]) for title, prompt in PROMPTS.items()}
        planned.append(Planned(set_name, name, request.max_tokens - SPARE_TOKENS, prompts))
    return Plan(sorted({*tokenizer.end_tokens, *family.stop_tokens}), planned)


def read_all(data: Path) -> list[tuple[tuple[str, str], Task]]:
    """Return all tasks by set and name."""
    return [((set_name, task.name), task) for set_name in SETS for task in read_tasks(set_name, data)]


def begun(prompt: Prompt) -> list[Message]:
    system = [{"role": "system", "content": prompt.system}] if prompt.system else []
    return [*system, *(read_prompt("rewrite") if prompt.has_examples else ())]


def unit_of(code: str) -> "Unit":
    """Return the only function or class of a file, or the whole file if it has several."""
    from vivace.agent.edits.apply.source import source_from_bytes
    from vivace.agent.edits.find.languages import PYTHON
    from vivace.agent.edits.find.outline import list_units
    from vivace.agent.edits.find.units import file_unit

    source = source_from_bytes(Path("solution.py"), code.encode())
    units = [unit for unit in list_units(source, PYTHON) if "." not in unit.qualified_name]
    return units[0] if len(units) == 1 else file_unit(source)


# ---- there: tokens to answers ----------------------------------------------------------------------


class Job:
    """One answer to be written."""

    def __init__(self, task: Planned, prompt: str, how: str, heat: float, begun: Sequence[int] = ()) -> None:
        self.task, self.prompt, self.how, self.heat = task, prompt, how, heat
        self.begun, self.said = list(begun), list[int]()
        self.nats = 0.0
        self.is_whole = False
        self.tops: list[tuple[list[int], list[float]]] = []  # of each place, if it is greedy

    @property
    def tokens(self) -> list[int]:
        return self.task.prompts[self.prompt] + self.begun

    @property
    def room(self) -> int:
        return self.task.max_tokens - len(self.begun)

    def add(self, token: int, nats: float, *, is_over: bool) -> bool:
        """Add a token; return whether the answer goes on."""
        self.said.append(token)
        self.nats += nats
        self.is_whole = is_over
        return not is_over and len(self.said) < self.room


class Writer:
    """Writes many answers at once with transformers: left-padded, rows dropped as they end."""

    def __init__(self, model: Any, ends: Any) -> None:
        import torch

        self.model, self.ends, self.torch, self.device = model, ends, torch, model.device

    def write(self, jobs: Sequence[Job]) -> None:
        ordered = sorted(jobs, key=lambda job: (len(job.tokens), job.room))
        for begin in range(0, len(ordered), ROWS):
            with self.torch.inference_mode():
                self._write(ordered[begin : begin + ROWS])

    def _write(self, jobs: list[Job]) -> None:
        from transformers import DynamicCache  # type: ignore[import-not-found,unused-ignore]

        torch = self.torch
        ids, mask = self._padded([job.tokens for job in jobs])
        at = (mask.cumsum(-1) - 1).clamp(min=0)
        cache, live = DynamicCache(), dict(enumerate(jobs))
        heat = torch.tensor([job.heat for job in jobs], device=self.device)[:, None]
        out = self.model(
            ids, attention_mask=mask, position_ids=at, past_key_values=cache, use_cache=True, logits_to_keep=1
        )
        at = at[:, -1:]
        while True:
            logits = out.logits[:, -1].float()
            chances = logits.log_softmax(-1)
            noise = -torch.empty_like(logits).exponential_().log()
            chosen = torch.where(heat > 0, logits / heat.clamp(min=0.01) + noise, logits).argmax(-1)
            self._add(live, chosen, chances)
            if len(live) <= len(jobs) // 200:  # the last few would cost as much as all others
                return
            if len(live) < 0.7 * len(chosen):
                index = torch.tensor(list(live), device=self.device)
                cache.batch_select_indices(index)
                mask, at, chosen, heat = mask[index], at[index], chosen[index], heat[index]
                live = dict(enumerate(live.values()))
            mask = torch.cat([mask, torch.ones_like(mask[:, :1])], 1)
            at = at + 1
            out = self.model(
                chosen[:, None], attention_mask=mask, position_ids=at, past_key_values=cache, use_cache=True
            )

    def _add(self, live: dict[int, Job], chosen: Any, chances: Any) -> None:
        """Give every row its token, and drop the rows that are over."""
        tokens, over = chosen.tolist(), self.ends[chosen].tolist()
        nats = chances.gather(1, chosen[:, None])[:, 0].tolist()
        top = chances.topk(4)
        ids, values = top.indices.tolist(), top.values.tolist()
        for row, job in list(live.items()):
            if job.how == "greedy":
                job.tops.append((ids[row], values[row]))
            if not job.add(tokens[row], nats[row], is_over=over[row]):
                del live[row]

    def _padded(self, rows: Sequence[list[int]]) -> tuple[Any, Any]:
        widest = max(map(len, rows))
        ids = self.torch.zeros(len(rows), widest, dtype=self.torch.long)
        mask = self.torch.zeros_like(ids)
        for row, tokens in enumerate(rows):
            ids[row, widest - len(tokens) :] = self.torch.tensor(tokens)
            mask[row, widest - len(tokens) :] = 1
        return ids.to(self.device), mask.to(self.device)


def branches(greedy: Job, count: int) -> list[Job]:
    """Begin again where another token was nearly as likely, the likeliest first: as `write.branches` does."""
    found = []
    for place, (tokens, nats) in enumerate(greedy.tops):
        own = nats[tokens.index(greedy.said[place])]
        others = [(other - own, place, token) for token, other in zip(tokens, nats, strict=True)]
        found += [each for each in others if each[2] != greedy.said[place]]
    jobs = []
    for _, place, token in sorted(found, reverse=True)[:count]:
        job = Job(greedy.task, greedy.prompt, "branch", 0.0, [*greedy.said[:place], token])
        before = zip(greedy.said[:place], greedy.tops, strict=False)
        job.nats = sum(nats[tokens.index(said)] for said, (tokens, nats) in before)
        tokens, nats = greedy.tops[place]
        job.nats += nats[tokens.index(token)]
        jobs.append(job)
    return jobs


def run(plan: Plan, checkpoint: Path, gpu_folder: Path, samples: int, turns: int) -> list[Found]:
    import torch  # type: ignore[import-not-found,unused-ignore]

    from vivace.bench.gpu.peer import load_transformers
    from vivace.engine.runners.cuda.model.vocabulary import GgufVocabulary
    from vivace.engine.runners.cuda.weights.gguf_file import GgufFile

    begun_s = time.perf_counter()
    model = load_transformers(checkpoint, gpu_folder)
    file = GgufFile(checkpoint)
    vocabulary = GgufVocabulary(file.fields, checkpoint.name)
    file.close()
    pieces = [vocabulary.token_bytes(token) for token in range(model.config.vocab_size)]
    ends = torch.tensor([b"```" in piece for piece in pieces], device=model.device)
    ends[torch.tensor(plan.stops, device=model.device)] = True
    torch.manual_seed(1)
    writer = Writer(model, ends)
    jobs = [Job(task, prompt, "greedy", 0.0) for task in plan.tasks for prompt in task.prompts]
    writer.write(jobs)
    print(f"{time.perf_counter() - begun_s:.0f} s: greedy answers", flush=True)
    others = [job for greedy in jobs for job in branches(greedy, turns)]
    others += [
        Job(task, prompt, "sample", 0.8)
        for task in plan.tasks
        for prompt in task.prompts
        for _ in range(samples)
    ]
    random.Random(1).shuffle(others)
    writer.write(others)
    print(f"{time.perf_counter() - begun_s:.0f} s: {len(others)} others", flush=True)
    return distinct([*jobs, *others], pieces)


def distinct(jobs: Iterable[Job], pieces: Sequence[bytes]) -> list[Found]:
    found: dict[tuple[str, str, str, str], Found] = {}
    for job in jobs:
        if job.is_whole:
            tokens = job.begun + job.said
            text = b"".join(pieces[token] for token in tokens[:-1]).decode("utf-8", "replace")
            new = Found(job.task.set, job.task.name, job.prompt, text, len(tokens), [])
            found.setdefault((new.set, new.name, new.prompt, text), new).origins.append((job.how, job.nats))
    return list(found.values())


# ---- here: which are right -------------------------------------------------------------------------


async def judge(found: Sequence[Found], data: Path) -> None:
    from vivace.agent.edits.apply.source import source_from_bytes, splice
    from vivace.agent.edits.check.choose import examples_for
    from vivace.agent.edits.check.tidy import tidy
    from vivace.agent.edits.find.languages import PYTHON
    from vivace.agent.edits.find.outline import list_units
    from vivace.agent.edits.proposal import make_proposal
    from vivace.agent.edits.write.rewrite import rewrite_request
    from vivace.eval.edits.scoring import judge as judge_code

    tasks = dict(read_all(data))
    by_task = defaultdict(list)
    for each in found:
        by_task[each.set, each.name].append(each)
    for number, (key, answers) in enumerate(by_task.items()):
        task = tasks[key]
        source = source_from_bytes(Path("solution.py"), task.code.encode())
        unit = unit_of(task.code)
        opening = rewrite_request(source, list_units(source, PYTHON), unit, task.instruction).opening
        for each in answers:
            text = tidy(source, PYTHON, unit, opening + each.text)
            proposal = make_proposal(
                source, unit, task.instruction, splice(source, unit.first_line, unit.last_line, text)
            )
            each.code = proposal.new_bytes.decode()
            each.is_usable = bool(proposal.hunks) and not proposal.problems
        verdicts = {code: await judge_code(task, code) for code in {each.code for each in answers}}
        await _count_held(answers, examples_for(proposal))
        for each in answers:
            each.is_right = verdicts[each.code][0] == "passed"
        print(f"{number + 1} of {len(by_task)}", end="\r", file=sys.stderr)


async def _count_held(answers: Sequence[Found], examples: list[Any]) -> None:
    from vivace.agent.edits.check.examples import program_for
    from vivace.agent.sandbox.run import Limits, run_sandboxed

    if not examples:
        return
    codes = list({each.code for each in answers})
    program = {"program.py": program_for(codes, examples).encode()}
    limits = Limits(seconds=120, cpu_seconds=100)
    outcome = await run_sandboxed([sys.executable, "-I", "program.py"], files=program, limits=limits)
    held = dict(zip(codes, json.loads(outcome.output.splitlines()[-1]), strict=True))
    for each in answers:
        each.held = held[each.code]


# ---- what came of it -------------------------------------------------------------------------------

Ranking = Callable[[Found], tuple[float, ...]]


def nats(each: Found) -> float:
    return max(value for _, value in each.origins)


RANKINGS: dict[str, Ranking] = {
    "likeliest": lambda each: (nats(each),),
    "likeliest a token": lambda each: (nats(each) / each.tokens,),
    "most frequent": lambda each: (len(each.origins), nats(each) / each.tokens),
    "examples, then likeliest a token": lambda each: (each.held, nats(each) / each.tokens),
}


def show(found: Sequence[Found], held_out: set[tuple[str, str]]) -> None:
    """One line a way: share that is right in each set; tuned, held out, all, and refused."""
    by_task: dict[tuple[str, str], list[Found]] = defaultdict(list)
    for each in found:
        by_task[each.set, each.name].append(each)
    for prompt in PROMPTS:
        show_way(f"{prompt}: first", by_task, prompt, ("greedy",), RANKINGS["likeliest"], held_out)
        for how in ("sample", "branch"):
            for name, ranking in RANKINGS.items():
                show_way(f"{prompt}: {how}, {name}", by_task, prompt, ("greedy", how), ranking, held_out)


def show_way(
    title: str,
    by_task: dict[tuple[str, str], list[Found]],
    prompt: str,
    hows: Sequence[str],
    ranking: Ranking,
    held_out: set[tuple[str, str]],
) -> None:
    cells = []
    for set_name in SETS:
        keys = [key for key in by_task if key[0] == set_name]
        chosen = {}
        for key in keys:
            usable = [
                each
                for each in by_task[key]
                if each.prompt == prompt and each.is_usable and any(how in hows for how, _ in each.origins)
            ]
            chosen[key] = max(usable, key=ranking, default=None)
        for part in ([key for key in keys if key not in held_out], [key for key in keys if key in held_out]):
            right = sum(1 for key in part if (best := chosen[key]) and best.is_right)
            cells.append(f"{100 * right / max(1, len(part)):5.1f}")
        cells.append(f"({sum(best is None for best in chosen.values()):3} refused)")
    print(f"{title:<52}" + " ".join(cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("prepare", "run", "judge", "show"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--model", type=Path, help="the GGUF file (prepare, run)")
    parser.add_argument("--data", type=Path, help="folder of the public tasks (prepare, judge, show)")
    parser.add_argument("--gpu-folder", type=Path, default=Path("gpu"), help="of converted weights (run)")
    parser.add_argument("--samples", type=int, default=7)
    parser.add_argument("--branches", type=int, default=9)
    options = parser.parse_args()
    last: Path = options.files[-1]
    match options.what:
        case "prepare":
            last.write_bytes(msgspec.json.encode(prepare(options.model, options.data)))
        case "run":
            plan = msgspec.json.decode(options.files[0].read_bytes(), type=Plan)
            found = run(plan, options.model, options.gpu_folder, options.samples, options.branches)
            last.write_bytes(msgspec.json.encode(found))
        case "judge":
            found = msgspec.json.decode(last.read_bytes(), type=list[Found])
            asyncio.run(judge(found, options.data))
            last.write_bytes(msgspec.json.encode(found))
        case "show":
            found = msgspec.json.decode(last.read_bytes(), type=list[Found])
            show(found, {key for key, task in read_all(options.data) if task.is_held_out})


if __name__ == "__main__":
    main()
