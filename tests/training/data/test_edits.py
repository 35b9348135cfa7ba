"""Exact requests: the target is what the words say, it parses, and nothing else changes."""

import ast
import random

import pytest

pytest.importorskip("torch")

from vivace.training.data.edits import MAKERS, ask_openly, edit_functions
from vivace.training.data.exact import Lines
from vivace.training.data.pairs import Origin, Pair, write_pair

TEXT = '''import logging


def totals(rows, limit: int = 3, *, name: str = "all") -> dict:
    """Add up rows."""
    found = [row.size for row in rows if row.size > 7]
    label = f"{name} of {limit}"
    result = dict(zip(label, found))
    return result


def clip(value: int, most: int = 5) -> int:
    if value < 0:
        value = abs(value) * 100
    return value - most


def joined(parts, mark):
    first = parts[0].strip()
    rest = len(parts) - 1
    return first + mark * rest
'''
ORIGIN = Origin("some/project", "MIT", "1.0", "train", "sums.py", TEXT)


def made(count: int = 60) -> list[Pair]:
    return [pair for seed in range(count) for pair in edit_functions(ORIGIN, random.Random(seed), 3)]


def test_targets_parse_and_differ() -> None:
    """Of every request: before and after are programs, and not the same one."""
    pairs = made()
    assert len({pair.instruction for pair in pairs}) > 40
    for pair in pairs:
        trees = [ast.dump(ast.parse(text)) for text in (pair.before, pair.after)]
        assert trees[0] != trees[1], pair.instruction
        request, answer = write_pair(pair)
        assert request.messages[-2]["content"].endswith(f"Task: {pair.instruction}")
        assert request.opening + answer == pair.after + request.fence
        assert "{name}" not in pair.instruction


def test_every_kind_of_request_is_made() -> None:
    """Each maker finds something in these three functions."""
    chance = random.Random(1)
    nodes = [node for node in ast.parse(TEXT).body if isinstance(node, ast.FunctionDef)]
    lines = TEXT.splitlines()
    for make in MAKERS:
        found = [
            exact
            for node in nodes
            for _ in range(5)
            for exact in make(node, Lines(lines[node.lineno - 1 : node.end_lineno], node.lineno), chance)
        ]
        assert found, make


@pytest.mark.parametrize(
    ("wanted", "line"),
    [
        ("Rename the parameter value to number.", "def clip(number: int, most: int = 5) -> int:"),
        ("Make mark optional, with None as its default.", "def joined(parts, mark=None):"),
        ("Also return rest: the result is a pair.", "    return first + mark * rest, rest"),
        ("Change the default of most to 6.", "def clip(value: int, most: int = 6) -> int:"),
        ("Make most keyword-only.", "def clip(value: int, *, most: int = 5) -> int:"),
    ],
)
def test_the_target_is_what_the_words_say(wanted: str, line: str) -> None:
    """Some requests and the line that they must lead to."""
    found = [pair for pair in made(600) if pair.instruction == wanted]
    assert found
    assert all(line in pair.after.splitlines() and line not in pair.before.splitlines() for pair in found)


def test_an_open_request_has_the_old_text_as_its_answer() -> None:
    """It is for sampling alone; the kind says so."""
    (pair,) = ask_openly(ORIGIN, random.Random(1))
    assert (pair.kind, pair.after) == ("open", pair.before)
