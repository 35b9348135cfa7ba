"""Copies of evaluation tasks that are planted among the pairs are found, however they are dressed."""

import json
from pathlib import Path

import pytest

from vivace.errors import FileProblem
from vivace.training.data.decontaminate import Guard, read_guard
from vivace.training.data.pairs import Pair

DECLARATION = "def longest_even_run(numbers):\n    '''Return the longest run of even numbers.'''\n"
SOLUTION = """    best = current = 0
    for number in numbers:
        if number % 2 == 0:
            current += 1
            best = max(best, current)
        else:
            current = 0
    return best
"""
BUGGY = SOLUTION.replace("current += 1", "current += 2")
FREE = "def plan_route(stops):\n    route = sorted(stops)\n    route.reverse()\n    return route\n"


@pytest.fixture
def guard(tmp_path: Path) -> Guard:
    fix = {"declaration": DECLARATION, "canonical_solution": SOLUTION, "buggy_solution": BUGGY}
    fix |= {"entry_point": "longest_even_run", "test": "assert longest_even_run([2, 4, 1]) == 2"}
    (tmp_path / "fix.jsonl").write_text(json.dumps(fix) + "\n")
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "tasks.jsonl").write_text(json.dumps({"repo": "Held/Out"}) + "\n")
    return read_guard(tmp_path)


def planted(before: str, after: str, unit: str = "plan_route", repo: str = "some/project") -> Pair:
    count = before.count("\n")
    return Pair(
        repo, "MIT", "c0ffee", "train", "commit", "a.py", before, unit, 1, count, "Reverse the stops", after
    )


def test_an_honest_pair_is_kept(guard: Guard) -> None:
    """What shares nothing with a task may be trained on."""
    assert guard.reason(planted(FREE, FREE.replace("sorted", "list"))) == ""


def test_a_tasks_project_is_refused(guard: Guard) -> None:
    """Whatever the pair is, and however its name is spelled."""
    assert guard.reason(planted(FREE, FREE, repo="held/out")) == "project"


def test_a_tasks_name_is_refused(guard: Guard) -> None:
    """A function or a method of that name may be the task in other words."""
    assert guard.reason(planted(FREE, FREE, unit="Runs.longest_even_run")) == "name"


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_renamed_copy_is_refused(guard: Guard, side: str) -> None:
    """Other names, no docstring and other layout: the body is the same one."""
    copy = SOLUTION.replace("best", "top").replace("current", "here").replace("number", "each")
    copy = "def evens(eachs):\n" + copy.replace("0\n", "0  # nothing yet\n")
    texts = (copy, FREE) if side == "before" else (FREE, copy)
    assert guard.reason(planted(*texts)) == "body"


def test_a_copied_method_is_refused(guard: Guard) -> None:
    """Indented as in a class it is still the body."""
    inside = "".join(f"    {line}\n" for line in ("def evens(numbers):\n" + SOLUTION).splitlines())
    assert guard.reason(planted(inside, inside)) == "body"


def test_a_copy_with_a_change_is_refused(guard: Guard) -> None:
    """Runs of tokens show it when the tree differs."""
    copy = "def evens(numbers):\n" + SOLUTION.replace("return best", "return best or None")
    assert guard.reason(planted(copy, copy)) == "runs of the pair"


def test_a_copy_inside_of_something_long_is_refused(guard: Guard) -> None:
    """Most of the task is there, although it is little of the pair."""
    other = "".join(f"    value_{n} = first_{n} + second_{n} * {n} - third_{n}[{n}]\n" for n in range(200))
    copy = "def evens(numbers):\n" + other + SOLUTION.replace("return best", "return best or None")
    assert guard.reason(planted(copy, copy)) == "runs of a task"


def test_a_guard_without_sets_is_refused(tmp_path: Path) -> None:
    """A wrong folder must not look like clean data."""
    with pytest.raises(FileProblem, match="No evaluation sets"):
        read_guard(tmp_path)


def test_accessors_are_everybodys() -> None:
    """A body of one statement is no copy."""
    guard = Guard()
    guard.add_text("class A:\n    def size(self):\n        return self.kept\n")
    one = "def size(self):\n    return self.kept\n"
    assert guard.reason(planted(one, one)) == ""
