"""Long units, written part by part: is the right part chosen, and how many tokens does a changed line cost?

    .venv/bin/python benchmarks/agent/long_units.py FILE [FOLDER] [--model NAME | --tokenizer FILE] [--whole]

FILE has real commits of one file (`commit_edits.jsonl`). FOLDER holds `tasks.jsonl` and `archives/ID.tar.gz`,
as for places.py. A case is a unit of more than 60 lines that a commit or a reference patch changes; it is
named, so that only the part is chosen. A part is right if the patch changes lines of it. Without --model the
choice by words alone is judged; with --tokenizer FILE (a .gguf) it is counted what the units and the right
parts cost a line that the patch changes. With --model the warm server chooses and writes; --whole writes the
unit as one piece, as before. Records are kept, and a case that has one is not run again: stop it (--minutes)
and go on.
"""

import argparse
import asyncio
import json
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing
from difflib import SequenceMatcher
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from places import is_held_out, tasks_in
from vivace.agent.edits.apply.source import SourceFile, source_from_bytes
from vivace.agent.edits.find.languages import language_for
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.part_ranking import shown_parts
from vivace.agent.edits.find.parts import LONG_LINES, Part, parts_of
from vivace.agent.edits.find.units import Unit, implementation_of
from vivace.agent.edits.part_writing import rewrite_parts
from vivace.agent.edits.proposal import FileProposal
from vivace.agent.edits.rewriting import UnitTask, is_usable, rewrite_unit
from vivace.agent.effort import BUDGETS, Effort
from vivace.agent.events.edit import DiffGrew, UnitLocated
from vivace.agent.model import Model
from vivace.agent.prompting import Message
from vivace.client.responses import ResponsesClient
from vivace.client.warm import ensure_server
from vivace.config import load_settings
from vivace.errors import EditRejected
from vivace.eval.edits.changes import lines_changed
from vivace.eval.requests.trees import unpacked
from vivace.models.tokenizer import Tokenizer, load_tokenizer

Change = tuple[int, int, int]  # first and last old line (last < first: inserted before first), lines changed


class Case(msgspec.Struct, frozen=True):
    name: str
    path: str
    text: str
    instruction: str
    unit: str
    first_line: int
    last_line: int
    changes: list[Change]


class Record(msgspec.Struct, frozen=True):
    case: str
    how: str  # parts or whole, and the effort
    right: list[int]  # first lines of the parts that the patch changes
    parts: list[int]  # first lines of all parts that were shown
    words: list[float]  # nats of each
    scores: list[list[float]] = []  # of each turn that scored
    written: list[int] = []  # first lines of what was written, in order
    answers: list[str] = []  # as the model wrote them, each behind its opening
    outcome: str = ""  # usable, unchanged, or a problem
    output_tokens: int = 0
    prefilled_tokens: int = 0
    changed_lines: int = 0
    seconds: float = 0.0

    @property
    def is_held_out(self) -> bool:
        return is_held_out(self.case)


class Recording(Model):
    """A model that remembers its scores."""

    def __init__(self, client: ResponsesClient, name: str) -> None:
        super().__init__(client, name)
        self.scores: list[list[float]] = []

    async def score(self, messages: list[Message], candidates: list[str]) -> list[float]:
        self.scores.append(await super().score(messages, candidates))
        return self.scores[-1]


def cases_of(name: str, path: str, before: str, after: str, instruction: str) -> Iterator[Case]:
    """Yield the long units in which a commit changes lines."""
    source = source_from_bytes(Path(path).relative_to(Path(path).parent), before.encode())
    units = list_units(source, language_for(source.path))
    found: dict[Unit, list[Change]] = {}
    for first, last, count in _changes(before, after):
        rows = (min(first, last), max(first, last))
        around = [unit for unit in units if unit.first_line <= rows[0] and rows[1] <= unit.last_line]
        if smallest := min(around, key=lambda unit: unit.last_line - unit.first_line, default=None):
            found.setdefault(smallest, []).append((first, last, count))
    for unit, changes in found.items():
        if unit.last_line - unit.first_line >= LONG_LINES:
            key = f"{name} {unit.qualified_name}"
            lines = (unit.first_line, unit.last_line)
            yield Case(key, source.path.name, before, instruction, unit.qualified_name, *lines, changes)


def _changes(before: str, after: str) -> Iterator[Change]:
    matcher = SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    for kind, first, last, new_first, new_last in matcher.get_opcodes():
        lines = last - first + new_last - new_first
        if kind != "equal":
            yield first + 1, last, lines


def all_cases(commits: Path, tasks: Path | None) -> Iterator[Case]:
    for line in commits.read_text().splitlines():
        row = json.loads(line)
        yield from cases_of(row["commit"], row["path"], row["before"], row["after"], row["instruction"])
    if tasks:
        for task in tasks_in(tasks, None, None):
            yield from _cases_of_task(tasks, task)


def _cases_of_task(tasks: Path, task: dict[str, Any]) -> Iterator[Case]:
    with tempfile.TemporaryDirectory() as made:
        folder = unpacked(tasks / "archives" / f"{task['id']}.tar.gz", Path(made))
        names = [name for name in task["source_paths"] if (folder / name).is_file()]
        before = {name: (folder / name).read_text() for name in names if language_for(folder / name)}
        patch = task["source_patch"].encode()
        subprocess.run(["git", "apply", "-"], cwd=folder, input=patch, check=True)
        for name, text in before.items():
            if (folder / name).is_file():
                after = (folder / name).read_text()
                yield from cases_of(task["id"], name, text, after, task["statement"])


def opened(case: Case) -> tuple[SourceFile, list[Unit], Unit]:
    source = source_from_bytes(Path(case.path), case.text.encode())
    units = list_units(source, language_for(source.path))
    lines = (case.first_line, case.last_line)
    return source, units, next(each for each in units if (each.first_line, each.last_line) == lines)


def by_words(case: Case) -> Record:
    """Return what words alone say of the parts."""
    source, units, unit = opened(case)
    cut = parts_of(source, language_for(source.path), implementation_of(source, unit))
    shown = shown_parts(source, units, cut, case.instruction)
    right = [part.first_line for part in cut if _is_changed(part, case.changes)]
    order = sorted(zip(shown.nats, shown.parts, strict=True), key=lambda pair: -pair[0])
    return Record(
        case.name,
        "words",
        right,
        [part.first_line for part in shown.parts],
        list(shown.nats),
        written=[part.first_line for _, part in order],
    )


def _is_changed(part: Part, changes: Iterable[Change]) -> bool:
    """Return whether lines of a part change, or are inserted in it or at its edges."""
    return any(
        part.first_line <= max(first, last) and min(first, last) <= part.last_line
        for first, last, _ in changes
    )


def needed_parts(cut: Sequence[Part], changes: Iterable[Change]) -> set[Part]:
    """Return the parts that must be written: all that lose lines, and one for each insertion."""
    needed: set[Part] = set()
    for change in sorted(changes, key=lambda change: change[1] < change[0]):
        touched = [part for part in cut if _is_changed(part, [change])]
        if change[0] <= change[1]:
            needed.update(touched)
        elif not needed & set(touched):
            needed.add(touched[0])
    return needed


def report_costs(cases: Sequence[Case], tokenizer: Tokenizer) -> None:
    """Say what a line that the patches change costs, if the right text is written."""
    whole, parts, lines = [], [], []
    for case in cases:
        source, _, unit = opened(case)
        cut = parts_of(source, language_for(source.path), implementation_of(source, unit))
        needed = needed_parts(cut, case.changes)
        whole.append(len(tokenizer.encode(source.text_of(unit.first_line, unit.last_line))))
        texts = [source.text_of(part.first_line, part.last_line) for part in needed]
        parts.append(sum(len(tokenizer.encode(text)) for text in texts))
        lines.append(sum(count for _, _, count in case.changes))
    for what, tokens in (("whole unit", whole), ("right parts", parts)):
        each = median(one / count for one, count in zip(tokens, lines, strict=True))
        print(f"{what:<12}{sum(tokens) / sum(lines):>8.1f} tokens per changed line, median {each:.1f}")


async def by_model(model: Recording, case: Case, effort: Effort, *, is_whole: bool) -> Record:
    """Let the model choose and write. Return what came of it."""
    source, units, unit = opened(case)
    task = UnitTask(source, language_for(source.path), units, unit, case.instruction)
    known = by_words(case)
    turns, model.scores = len(model.waterfalls), []
    written, answers = list[int](), list[str]()
    outcome, changed = "", 0
    began_s = time.perf_counter()
    steps = (rewrite_unit if is_whole else rewrite_parts)(model, task, BUDGETS[effort])
    try:
        async with aclosing(steps) as events:
            async for event in events:
                if isinstance(event, UnitLocated):
                    written.append(event.unit.first_line)
                    answers.append("")
                elif isinstance(event, DiffGrew):
                    answers[-1:] = ["".join([*answers[-1:], event.delta])]
                elif isinstance(event, FileProposal):
                    after = source.with_bytes(event.new_bytes).text
                    changed = lines_changed(source.text, after)
                    outcome = "usable" if is_usable(event) else " ".join(event.problems) or "unchanged"
    except EditRejected as error:
        outcome = error.message
    times = model.waterfalls[turns:]
    return msgspec.structs.replace(
        known,
        how=f"{'whole' if is_whole else 'parts'} {effort}",
        scores=model.scores,
        written=written,
        answers=answers,
        outcome=outcome,
        output_tokens=sum(turn.output_tokens for turn in times),
        prefilled_tokens=sum(turn.new_tokens for turn in times),
        changed_lines=changed,
        seconds=time.perf_counter() - began_s,
    )


def report(records: Sequence[Record]) -> None:
    titles = ("units", "right 1st", "in two", "usable", "tokens", "lines", "per line", "seconds")
    print(f"{'':<16}" + "".join(f"{title:>11}" for title in titles))
    for how in dict.fromkeys(each.how for each in records):
        print(f"{how:<16}" + _cells([each for each in records if each.how == how]))


def _cells(records: Sequence[Record]) -> str:
    first = sum(bool(each.written) and each.written[0] in each.right for each in records)
    two = sum(any(line in each.right for line in each.written[:2]) for each in records)
    usable = [each for each in records if each.outcome == "usable"]
    tokens = sum(each.output_tokens for each in usable)
    lines = sum(each.changed_lines for each in usable)
    per_line = f"{tokens / lines:.1f}" if lines else "–"
    seconds = sum(each.seconds for each in records) / len(records)
    cells = (len(records), first, two, len(usable), tokens, lines, per_line, f"{seconds:.1f}")
    return "".join(f"{cell:>11}" for cell in cells)


def records_in(kept: Path) -> Iterator[Record]:
    for line in kept.read_bytes().splitlines() if kept.exists() else ():
        yield msgspec.json.decode(line, type=Record)


def keep(kept: Path, record: Record) -> None:
    with kept.open("ab") as file:
        file.write(msgspec.json.encode(record) + b"\n")


async def measure(cases: Sequence[Case], args: argparse.Namespace) -> list[Record]:
    records = list(records_in(args.records))
    how = f"{'whole' if args.whole else 'parts'} {args.effort}"
    known = {each.case for each in records if each.how == how}
    end_s = time.monotonic() + 60 * args.minutes
    settings = load_settings().having(model=args.model)
    async with ResponsesClient(ensure_server(settings)) as client:
        model = Recording(client, settings.model)
        for case in cases:
            if case.name in known or time.monotonic() > end_s:
                continue
            record = await by_model(model, case, args.effort, is_whole=args.whole)
            records.append(record)
            keep(args.records, record)
            print(
                f"{record.seconds:6.1f} s {record.output_tokens:>5} {record.outcome[:40]:<41} {case.name}",
                flush=True,
            )
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commits", type=Path)
    parser.add_argument("tasks", type=Path, nargs="?")
    parser.add_argument("--model")
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--effort", choices=tuple(BUDGETS), default="medium")
    parser.add_argument("--records", type=Path, default=Path("long_units.jsonl"))
    parser.add_argument("--minutes", type=float, default=60.0)
    args = parser.parse_args()
    cases = sorted(all_cases(args.commits, args.tasks), key=lambda case: case.last_line - case.first_line)
    if args.tokenizer:
        report_costs(cases, load_tokenizer("", args.tokenizer))
    if args.model is None:
        report([by_words(case) for case in cases])
    else:
        report(asyncio.run(measure(cases, args)))


if __name__ == "__main__":
    main()
