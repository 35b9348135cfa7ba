"""Examples: tokens of prompts and answers, as they lie in a file.

Owns the file. All prompts begin with the same tokens (the prompt's own examples): these are kept once, as the
prefix. Written by torch, read without running anything that a file says. Does not own what is in a prompt.
"""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.errors import FileProblem

FORMAT = "vivace examples 2"


@dataclass(frozen=True)
class Example:
    prompt: tuple[int, ...]  # behind the prefix
    answer: tuple[int, ...]
    name: str  # what it is from: project, commit, unit
    group: str  # which figures it counts in: its project
    kind: str
    changed: tuple[bool, ...] = ()  # of the answer's tokens, which do not repeat the old text; empty: all

    def __len__(self) -> int:
        return len(self.prompt) + len(self.answer)


@dataclass(frozen=True)
class Examples:
    prefix: tuple[int, ...]
    rows: tuple[Example, ...]

    def of_kinds(self, *kinds: str) -> "Examples":
        return Examples(self.prefix, tuple(row for row in self.rows if row.kind in kinds))


def with_prefix(prompts: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Return the tokens that all prompts begin with, and what is left of each: at least one token."""
    if not prompts:
        return (), []
    first, last = min(map(tuple, prompts)), max(map(tuple, prompts))  # differ at least as early as any two
    least = min(map(len, prompts)) - 1
    same = next((at for at in range(least) if first[at] != last[at]), least)
    shared = first[:same]
    return shared, [tuple(prompt[len(shared) :]) for prompt in prompts]


def save_examples(examples: Examples, path: Path) -> None:
    rows = examples.rows
    tokens = [token for row in rows for token in (*row.prompt, *row.answer)]
    stored: dict[str, Any] = {
        "format": FORMAT,
        "prefix": torch.tensor(examples.prefix, dtype=torch.int32),
        "tokens": torch.tensor(tokens, dtype=torch.int32),
        "prompts": torch.tensor([len(row.prompt) for row in rows], dtype=torch.int32),
        "answers": torch.tensor([len(row.answer) for row in rows], dtype=torch.int32),
        "changed": torch.tensor([each for row in rows for each in _changed(row)], dtype=torch.bool),
        "names": [row.name for row in rows],
        "groups": [row.group for row in rows],
        "kinds": [row.kind for row in rows],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(stored, path)


def load_examples(path: Path) -> Examples:
    try:
        stored = torch.load(path, weights_only=True)
    except (OSError, RuntimeError, pickle.UnpicklingError, EOFError) as error:
        raise _unreadable(path, (str(error) or "it is empty").splitlines()[0]) from error
    if not isinstance(stored, dict) or stored.get("format") != FORMAT:
        raise _unreadable(path, "it is of another format")
    tokens = stored["tokens"].tolist()
    prompts, answers = stored["prompts"].tolist(), stored["answers"].tolist()
    ends = list(accumulate(count for pair in zip(prompts, answers, strict=True) for count in pair))
    starts = [0, *ends]
    changed, is_changed = stored["changed"].tolist(), [0, *accumulate(answers)]
    texts = zip(stored["names"], stored["groups"], stored["kinds"], strict=True)
    rows = tuple(
        Example(
            tuple(tokens[starts[2 * at] : ends[2 * at]]),
            tuple(tokens[ends[2 * at] : ends[2 * at + 1]]),
            *text,
            _told(changed[is_changed[at] : is_changed[at + 1]]),
        )
        for at, text in enumerate(texts)
    )
    return Examples(tuple(stored["prefix"].tolist()), rows)


def _changed(row: Example) -> tuple[bool, ...]:
    return row.changed or (True,) * len(row.answer)


def _told(changed: list[bool]) -> tuple[bool, ...]:
    return () if all(changed) else tuple(changed)


def _unreadable(path: Path, why: str) -> FileProblem:
    return FileProblem(f"{path} cannot be read: {why}.", "Make it with `python -m vivace.training prepare`.")
