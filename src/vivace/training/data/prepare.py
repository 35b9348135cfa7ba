"""From mined commits and packages to examples in tokens, and the report of what was refused and why.

    commits, packages → pairs → without copies of evaluation sets → without repeats → requests → tokens

Owns that order and the report. What a step does is the other modules'.
"""

import hashlib
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, NamedTuple, cast

from vivace.models.families.base import Family, Message
from vivace.models.tokenizer import Tokenizer
from vivace.training.data.changes import changed_tokens
from vivace.training.data.commits import Commit, pair_of, read_commits
from vivace.training.data.decontaminate import Guard
from vivace.training.data.edits import ask_openly, edit_functions
from vivace.training.data.mutations import break_functions
from vivace.training.data.packages import read_packages
from vivace.training.data.pairs import Origin, Pair, write_pair
from vivace.training.data.plan import DataPlan
from vivace.training.examples import Example, Examples, with_prefix

SAME_EDIT = 2  # of one change of lines, over all projects
ALONE_SHARE = 0.7  # of what is made of packages: functions in small files of their own
MAX_TURNS = 3  # through all files
HELD_OUT = frozenset({"schedule", "slugify", "humanize", "itsdangerous", "bottle"})  # tests of ours use them


@dataclass
class Report:
    """What came of the rows: the data card's figures."""

    kept: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    licences: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)

    def as_json(self) -> dict[str, Any]:
        return {name: dict(getattr(self, name).most_common()) for name in self.__dataclass_fields__}


def make_pairs(
    folder: Path | None, guard: Guard, plan: DataPlan, report: Report, packages: Path | None = None
) -> Iterator[Pair]:
    """Yield what may be trained on or measured with, each pair once. `packages`: a folder of wheels."""
    seen: set[str] = set()
    edits: Counter[str] = Counter()
    commits = list(read_commits(folder)) if folder else []
    made = _of_packages(packages, guard, plan) if packages else _mutations(commits, plan)
    for pair in chain(_of_commits(commits, report), made):
        if why := guard.reason(pair):
            report.refused[f"copy: {why}"] += 1
        elif (key := _digest(pair.before + pair.after)) in seen:
            report.refused["seen before"] += 1
        elif (edit := _edit_of(pair)) and edits[edit] >= SAME_EDIT:
            report.refused["same edit"] += 1
        else:
            seen.add(key)
            edits[edit] += 1
            yield pair


def _of_commits(commits: Sequence[Commit], report: Report) -> Iterator[Pair]:
    for commit in commits:
        pair = pair_of(commit)
        if isinstance(pair, Pair):
            yield pair
        else:
            report.refused[pair] += 1


def _of_packages(folder: Path, guard: Guard, plan: DataPlan) -> Iterator[Pair]:
    """Yield pairs of each kind in turn until there are enough: two thirds from functions alone."""
    held_out = frozenset(name.rsplit("/", 1)[-1].removeprefix("python-") for name in guard.projects)
    found = list(read_packages(folder, held_out | HELD_OUT, plan.seed))
    chance = random.Random(plan.seed)
    chance.shuffle(found)
    for is_alone, share in ((True, ALONE_SHARE), (False, 1 - ALONE_SHARE)):
        origins = [origin for origin, alone in found if alone is is_alone]
        makers: tuple[tuple[int, Callable[[Origin], Iterator[Pair]]], ...] = (
            (plan.mutations, lambda origin: break_functions(origin, chance, 1)),
            (plan.edits, lambda origin: edit_functions(origin, chance, 1)),
            (plan.opens, lambda origin: ask_openly(origin, chance)),
        )
        for number, make in makers:
            chance.shuffle(origins)
            turns = chain.from_iterable(repeat(origins, MAX_TURNS))
            yield from islice((pair for origin in turns for pair in make(origin)), round(number * share))


def _mutations(commits: Sequence[Commit], plan: DataPlan) -> Iterator[Pair]:
    chance = random.Random(plan.seed)
    order = [commit for commit in commits if commit.language == "python"]
    chance.shuffle(order)
    left, broken = plan.mutations, set[tuple[str, str, str]]()
    for commit in order:
        for pair in break_functions(commit.origin, chance):
            key = (pair.repo, pair.path, pair.unit)
            if left and key not in broken:
                broken.add(key)
                left -= 1
                yield pair
        if not left:
            return


def make_examples(
    pairs: Iterable[Pair], tokenizer: Tokenizer, family: Family, plan: DataPlan, report: Report
) -> dict[str, Examples]:
    """Return the examples of each split, in tokens, behind one prefix."""
    found: list[tuple[Pair, list[int], Answer]] = []
    for pair in pairs:
        prompt, answer = tokens_of(pair, tokenizer, family)
        found.append((pair, prompt, answer))
    prefix, prompts = with_prefix([prompt for _, prompt, _ in found])
    rows: dict[str, list[Example]] = {"train": [], "dev": []}
    for (pair, _, answer), behind in zip(found, prompts, strict=True):
        changed = changed_tokens(answer.old, answer.new)
        example = Example(behind, tuple(answer.new), pair.name, pair.repo, pair.kind, changed)
        if len(example) > plan.max_tokens:
            report.refused["too long"] += 1
            continue
        report.kept[f"{pair.split} {pair.kind}"] += 1
        report.licences[pair.licence] += 1
        report.tokens[f"{pair.split} {pair.kind}"] += len(example)
        rows[pair.split].append(example)
    return {split: Examples(prefix, tuple(each)) for split, each in rows.items()}


class Answer(NamedTuple):
    old: list[int]  # what the old unit would be as an answer
    new: list[int]


def tokens_of(pair: Pair, tokenizer: Tokenizer, family: Family) -> tuple[list[int], Answer]:
    """Return the prompt with the begun answer as the server sends it, and what the model is to say."""
    request, answer = write_pair(pair)
    old = pair.before.removeprefix(request.opening) + request.fence
    end = min(tokenizer.end_tokens) if len(tokenizer.end_tokens) == 1 else tokenizer.control("<|im_end|>")
    answers = Answer(*([*tokenizer.encode(text), end] for text in (old, answer)))
    return family.render(entries_of(request.messages)), answers


def entries_of(messages: Sequence[dict[str, str]]) -> list[Message]:
    """Return the edit loop's messages as a family renders them."""
    return [
        Message(cast(Any, each["role"]), each["content"], is_open=each.get("status") == "in_progress")
        for each in messages
    ]


def _edit_of(pair: Pair) -> str:
    """Return what the pair's edit has of changed lines, without their layout; empty if nothing is telling."""
    if pair.kind != "commit":
        return ""
    old, new = (Counter(map(str.strip, text.splitlines())) for text in (pair.before, pair.after))
    lines = [*sorted((old - new).elements()), "→", *sorted((new - old).elements())]
    return _digest("\n".join(lines))


def _digest(text: str) -> str:
    return hashlib.sha256(re.sub(r"\s+", " ", text).encode()).hexdigest()
