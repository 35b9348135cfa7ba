"""Keeps evaluation out of training: by project, by name, by normalised body, by runs of 13 tokens.

Owns what counts as a copy. A pair is refused if its project is a task's, if its function has the name of a
task's function, if the body of one of its functions is a task's with other names and layout, or if it shares
runs of tokens with a task: more than 15% of its own, or most of the task's.
"""

import ast
import hashlib
import json
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from vivace.errors import FileProblem
from vivace.training.data.pairs import Pair

RUN = 13
MAX_SHARE = 0.15  # of a pair's runs that stand in tasks
MAX_FOUND = 0.6  # of one task's runs that stand in a pair
MIN_STATEMENTS = 2  # of a body that is compared; `return self.x` is everybody's
_TOKEN = re.compile(r"\w+|[^\w\s]")
# The fields of known sets that hold code, names of functions and projects, by file name.
_CODE = (
    "declaration",
    "canonical_solution",
    "buggy_solution",
    "input",
    "output",
    "context",
    "test",
    "before",
)
_JOINED = (("declaration", "canonical_solution"), ("declaration", "buggy_solution"))


class Guard:
    """What must not be trained on."""

    def __init__(self) -> None:
        self.projects: set[str] = set()
        self.names: set[str] = set()
        self.bodies: set[str] = set()
        self._runs: dict[int, set[int]] = defaultdict(set)  # run → texts that have it
        self._sizes: list[int] = []  # runs of each text

    def add_text(self, text: str) -> None:
        """Refuse copies of a text: code, a test or an instruction."""
        self.bodies |= set(body_keys(text))
        if runs := runs_of(text):
            for run in runs:
                self._runs[run].add(len(self._sizes))
            self._sizes.append(len(runs))

    def reason(self, pair: Pair) -> str:
        """Return why a pair must not be trained on; empty if it may."""
        if pair.repo.lower() in self.projects:
            return "project"
        if pair.unit.rsplit(".", 1)[-1] in self.names:
            return "name"
        before = pair.before
        if any(key in self.bodies for text in (before, pair.after) for key in body_keys(text)):
            return "body"
        return next((why for text in (before, pair.after) if (why := self._shared(text))), "")

    def _shared(self, text: str) -> str:
        runs = runs_of(text)
        known = [self._runs[run] for run in runs if run in self._runs]
        if len(known) > MAX_SHARE * len(runs):
            return "runs of the pair"
        found = Counter(number for texts in known for number in texts)
        is_copy = any(count >= MAX_FOUND * self._sizes[number] for number, count in found.items())
        return "runs of a task" if is_copy else ""


def read_guard(folder: Path) -> Guard:
    """Return the guard of all sets (`*.jsonl`) in a folder and the folders in it."""
    guard = Guard()
    files = sorted(folder.rglob("*.jsonl"))
    if not files:
        raise FileProblem(f"No evaluation sets are in {folder}.", "Name the folder of all sets: --evals.")
    for path in files:
        for line in path.read_text("utf-8").splitlines():
            if line.strip():
                _add_row(guard, json.loads(line))
    return guard


def _add_row(guard: Guard, row: dict[str, Any]) -> None:
    if isinstance(repo := row.get("repo"), str):
        guard.projects.add(repo.lower())
    if isinstance(name := row.get("entry_point"), str):
        guard.names.add(name)
    texts = [row[name] for name in _CODE if isinstance(row.get(name), str)]
    texts += ["".join(row[name] for name in names) for names in _JOINED if all(name in row for name in names)]
    for text in texts:
        guard.add_text(text)


def runs_of(text: str) -> set[int]:
    """Return each run of 13 tokens as a number. Of a shorter text there is none."""
    tokens = _TOKEN.findall(text)
    return {
        int.from_bytes(hashlib.blake2b(" ".join(tokens[at : at + RUN]).encode(), digest_size=8).digest())
        for at in range(len(tokens) - RUN + 1)
    }


def body_keys(text: str) -> Iterator[str]:
    """Yield a key for each Python function in a text: its body without names, docstrings and layout."""
    for node in ast.walk(tree) if (tree := _tree(text)) else ():
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            if sum(isinstance(each, ast.stmt) for one in body for each in ast.walk(one)) >= MIN_STATEMENTS:
                yield _key(body, node.args)


def _key(body: Iterable[ast.stmt], arguments: ast.arguments) -> str:
    numbers: dict[str, int] = {}
    for each in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        numbers.setdefault(each.arg, len(numbers))
    dumped = " ".join(ast.dump(each) for each in body)

    def renamed(found: re.Match[str]) -> str:
        return f"id='{numbers.setdefault(found[1], len(numbers))}'"

    plain = re.sub(r"id='(\w+)'", renamed, dumped)
    return hashlib.sha256(plain.encode()).hexdigest()


def _tree(text: str) -> ast.Module | None:
    """Parse a text, or a method out of its class."""
    lines = text.splitlines()
    first = next((line for line in lines if line.strip()), "")
    indented = text if first == first.lstrip() else "if True:\n" + text
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(indented)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
