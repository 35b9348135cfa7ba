"""From mined commits to examples in tokens, and the report of what was refused and why.

    commits → pairs → without copies of evaluation sets → without repeats → prompts and answers → tokens

Owns that order and the report. What a step does is the other modules'.
"""

import hashlib
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from vivace.models.families.base import Family, Message
from vivace.models.tokenizer import Tokenizer
from vivace.training.data.commits import Commit, pair_of, read_commits
from vivace.training.data.decontaminate import Guard
from vivace.training.data.mutations import break_functions
from vivace.training.data.pairs import Pair, write_pair
from vivace.training.examples import Example, Examples, with_prefix

SAME_EDIT = 2  # of one change of lines, over all projects


@dataclass(frozen=True)
class DataPlan:
    mutations: int = 0  # broken functions to make; they are taken from the same commits' files
    max_tokens: int = 2048  # of an example, behind the prefix
    seed: int = 1


@dataclass
class Report:
    """What came of the rows: the data card's figures."""

    kept: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    licences: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)

    def as_json(self) -> dict[str, Any]:
        return {name: dict(getattr(self, name).most_common()) for name in self.__dataclass_fields__}


def make_pairs(folder: Path, guard: Guard, plan: DataPlan, report: Report) -> Iterator[Pair]:
    """Yield what may be trained on or measured with, each pair once."""
    seen: set[str] = set()
    edits: Counter[str] = Counter()
    for pair in _found(list(read_commits(folder)), plan, report):
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


def _found(commits: Sequence[Commit], plan: DataPlan, report: Report) -> Iterator[Pair]:
    for commit in commits:
        pair = pair_of(commit)
        if isinstance(pair, Pair):
            yield pair
        else:
            report.refused[pair] += 1
    yield from _mutations(commits, plan)


def _mutations(commits: Sequence[Commit], plan: DataPlan) -> Iterator[Pair]:
    chance = random.Random(plan.seed)
    order = [commit for commit in commits if commit.language == "python"]
    chance.shuffle(order)
    left, broken = plan.mutations, set[tuple[str, str, str]]()
    for commit in order:
        for pair in break_functions(commit, chance):
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
    found: list[tuple[Pair, list[int], list[int]]] = []
    for pair in pairs:
        found.append((pair, *tokens_of(pair, tokenizer, family)))
    prefix, prompts = with_prefix([prompt for _, prompt, _ in found])
    rows: dict[str, list[Example]] = {"train": [], "dev": []}
    for (pair, _, answer), prompt in zip(found, prompts, strict=True):
        name = f"{pair.repo}@{pair.origin[:12]} {pair.unit}"
        example = Example(prompt, tuple(answer), name, pair.repo, pair.kind)
        if len(example) > plan.max_tokens:
            report.refused["too long"] += 1
            continue
        report.kept[f"{pair.split} {pair.kind}"] += 1
        report.licences[pair.licence] += 1
        report.tokens[f"{pair.split} {pair.kind}"] += len(example)
        rows[pair.split].append(example)
    return {split: Examples(prefix, tuple(each)) for split, each in rows.items()}


def tokens_of(pair: Pair, tokenizer: Tokenizer, family: Family) -> tuple[list[int], list[int]]:
    """Return the prompt with the begun answer as the server sends it, and what the model is to say."""
    request, answer = write_pair(pair)
    end = min(tokenizer.end_tokens) if len(tokenizer.end_tokens) == 1 else tokenizer.control("<|im_end|>")
    return family.render(entries_of(request.messages)), [*tokenizer.encode(answer), end]


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
