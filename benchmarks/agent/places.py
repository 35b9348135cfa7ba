"""How often the place of a change is found in a real repository, from the text of a problem.

    .venv/bin/python benchmarks/agent/places.py FOLDER [--model NAME] [--half tuning|held-out]
    .venv/bin/python benchmarks/agent/places.py --tree 50000

The second makes a tree of so many files and says how long a search takes: at first, again, and when one file
was changed. FOLDER holds `tasks.jsonl` and `archives/ID.tar.gz`: repositories at a commit, problems as people
file them, and the reference patches. Without --model the ranking alone is judged, in seconds. With it the
warm server scores the best places too, as in a conversation. One half of the tasks, by a hash of the name, is
not looked at while the ranking is tuned. A file is right if the patch changes it, a unit if the patch changes
lines of it; where it only adds between units, the ones above and below and the class around are right.
"""

import argparse
import asyncio
import hashlib
import json
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from vivace.agent.conversation.message.repository import choose_place, rank_files
from vivace.agent.edits.find.locate import rank, share_of_best
from vivace.agent.edits.find.target import Target
from vivace.agent.edits.places.index import FileIndex, index_file
from vivace.agent.edits.places.listing import list_paths
from vivace.agent.edits.places.ranking import rank_places
from vivace.agent.edits.plan.planning import make_plan
from vivace.agent.edits.scope import read_scope
from vivace.agent.model import Model
from vivace.client.responses import ResponsesClient
from vivace.client.warm import ensure_server
from vivace.config import load_settings
from vivace.errors import PlaceUnclear
from vivace.eval.requests.places import right_places
from vivace.eval.requests.trees import unpacked


@dataclass(frozen=True)
class Verdict:
    task: str
    file_rank: int  # 1 for right at once, 0 for not at all
    unit_rank: int
    is_asked: bool
    seconds: float
    found: str

    @property
    def is_held_out(self) -> bool:
        return is_held_out(self.task)


def is_held_out(task: str) -> bool:
    return int(hashlib.sha256(task.encode()).hexdigest(), 16) % 2 == 1


@dataclass(frozen=True)
class Found:
    files: list[str]  # the likeliest first
    units: list[tuple[str, str]]
    is_asked: bool = False  # the user would have been asked which place is meant
    share: float = 1.0  # of all probability that the first unit has


Finder = Callable[[Path, str], Awaitable[Found]]


async def by_ranking(folder: Path, text: str) -> Found:
    ranking = rank_places(folder, list_paths(folder), text)
    files = [str(path) for path, _ in ranking.files]
    return Found(files, [(str(place.path), place.unit.qualified_name) for place in ranking.places])


def by_model(model: Model) -> Finder:
    """Return what finds places as a conversation does: the file, then the unit in it."""

    async def find(folder: Path, text: str) -> Found:
        ranking = rank_places(folder, list_paths(folder), text)
        ranked_files = await rank_files(model, ranking, text)
        files = [each.path for each in ranked_files]
        favoured: tuple[str, ...] = ()
        is_asked = False
        try:
            choice = await choose_place(model, folder, text, None)
            first, favoured = Path(choice.file.path).relative_to(folder), choice.favoured
        except PlaceUnclear:
            first, is_asked = files[0], True
        scope = read_scope(Target(folder / first, None), to_write=False)
        ranked = await rank(model, scope.source, scope.units, text)
        try:
            await make_plan(model, [replace(scope, is_found=True, favoured=favoured)], text)
        except PlaceUnclear:
            is_asked = True
        by_words = [place.unit.qualified_name for place in ranking.places if place.path == first]
        units = dict.fromkeys([*(each.unit.qualified_name for each in ranked), *by_words])
        paths = dict.fromkeys(str(path) for path in (first, *files))
        return Found(list(paths), [(str(first), name) for name in units], is_asked, share_of_best(ranked))

    return find


async def judge(task: dict[str, Any], folder: Path, find: Finder) -> Verdict:
    right = right_places(folder, task["source_patch"])
    began_s = time.perf_counter()
    found = await find(folder, task["statement"])
    seconds = time.perf_counter() - began_s
    file_rank = _rank(path in right for path in found.files)
    unit_rank = _rank(name in right.get(path, ()) for path, name in found.units)
    shown = " ".join(f"{path}:{name}" for path, name in found.units[:3])
    more = f"{'ASKED ' if found.is_asked else ''}{found.share:.0%} {shown}  RIGHT {right}"
    return Verdict(task["id"], file_rank, unit_rank, found.is_asked, seconds, more)


def _rank(hits: Iterable[bool]) -> int:
    return next((number for number, is_hit in enumerate(hits, 1) if is_hit), 0)


def tasks_in(data: Path, half: str | None, sample: int | None) -> Iterator[dict[str, Any]]:
    tasks = [json.loads(line) for line in (data / "tasks.jsonl").read_text().splitlines()]
    chosen = [task for task in tasks if half in (None, "held-out" if is_held_out(task["id"]) else "tuning")]
    chosen.sort(key=lambda task: hashlib.sha256(f"sample {task['id']}".encode()).digest())
    yield from chosen[:sample]


async def measure(
    data: Path, half: str | None, sample: int | None, model: str | None, is_verbose: bool
) -> None:
    if model is None:
        report(
            [await _in_archive(data, task, by_ranking, is_verbose) for task in tasks_in(data, half, sample)]
        )
        return
    settings = load_settings().having(model=model)
    async with ResponsesClient(ensure_server(settings)) as client:
        find = by_model(Model(client, settings.model))
        report([await _in_archive(data, task, find, is_verbose) for task in tasks_in(data, half, sample)])


async def _in_archive(data: Path, task: dict[str, Any], find: Finder, is_verbose: bool) -> Verdict:
    with tempfile.TemporaryDirectory() as made:
        folder = unpacked(data / "archives" / f"{task['id']}.tar.gz", Path(made))
        verdict = await judge(task, folder, find)
    if is_verbose:
        ranks = f"file {verdict.file_rank:>3} unit {verdict.unit_rank:>3} {verdict.seconds:6.2f} s"
        print(f"{ranks} {verdict.task}: {verdict.found}", flush=True)
    return verdict


def report(verdicts: Sequence[Verdict]) -> None:
    titles = ("file 1st", "file in 3", "unit 1st", "unit in 3", "asked", "seconds")
    print(f"{'half':<10}{'tasks':>6}" + "".join(f"{title:>11}" for title in titles))
    for name, part in (
        ("tuning", [each for each in verdicts if not each.is_held_out]),
        ("held out", [each for each in verdicts if each.is_held_out]),
        ("together", verdicts),
    ):
        if part:
            print(f"{name:<10}{len(part):>6}{_cells(part)}")


def _cells(part: Sequence[Verdict]) -> str:
    ranks = [[each.file_rank for each in part], [each.unit_rank for each in part]]
    shares = [sum(0 < rank <= most for rank in each) / len(part) for each in ranks for most in (1, 3)]
    asked = sum(each.is_asked for each in part) / len(part)
    seconds = sum(each.seconds for each in part) / len(part)
    return "".join(f"{share:>11.0%}" for share in [*shares, asked]) + f"{seconds:>11.2f}"


def measure_tree(count: int) -> None:
    """Say how long a search takes in a generated repository of `count` files."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made, "tree")
        changed = make_tree(folder, count)
        text = "`reader_17_3` should refuse an empty row before `total_of_rows` is called; see the header."
        paths, began_s = list_paths(folder), time.perf_counter()
        while not FileIndex(folder, index_file(Path(made), folder)).search(paths, {"row": 1.0}).is_complete:
            pass
        print(f"{'all files read':<18}{time.perf_counter() - began_s:>8.2f} s")
        for what in ("warm", "warm", "one file changed"):
            if what == "one file changed":
                changed.write_text(changed.read_text() + "\n\ndef one_more_row():\n    pass\n")
            began_s = time.perf_counter()
            index = FileIndex(folder, index_file(Path(made), folder))  # as a new process would
            paths = list_paths(folder)
            listed_s = time.perf_counter() - began_s
            first = rank_places(folder, paths, text, index).places[0]
            seconds = time.perf_counter() - began_s
            print(f"{what:<18}{seconds:>8.2f} s (listing {listed_s:.2f} s)  {first.path}:{first.unit.name}")


def make_tree(folder: Path, count: int) -> Path:
    """Make a Git repository of small modules. Return one of them."""
    random = Random(37)
    words = [f"{a}{b}" for a in ("row", "table", "cell", "header", "sum", "page") for b in range(400)]
    for number in range(count):
        file = folder / f"part_{number % 250}" / f"module_{number}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        names = random.sample(words, 12)
        body = "".join(
            f"def reader_{number}_{index}({name}):\n    return total_of_rows({name}, {names[0]})\n\n\n"
            for index, name in enumerate(names)
        )
        file.write_text(f'"""Module {number}: {names[1]} and {names[2]}."""\n\n\n{body}')
    for command in (("init", "-q"), ("add", "-A")):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--tree", type=int, metavar="FILES", help="Measure the time of a search instead.")
    parser.add_argument("--model")
    parser.add_argument("--half", choices=("tuning", "held-out"))
    parser.add_argument("--sample", type=int)
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    if args.tree:
        measure_tree(args.tree)
        return
    if args.folder is None:
        parser.error("FOLDER or --tree is needed")
    asyncio.run(measure(args.folder, args.half, args.sample, args.model, args.verbose))


if __name__ == "__main__":
    main()
