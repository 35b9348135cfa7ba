"""Every promise of SECURITY.md names the test that holds it, and that test exists."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import REPOSITORY

HEADINGS = ("tested in", "held by")  # of the last column of a table of promises
_REFERENCE = re.compile(r"`([^`]+)`")
SUFFIXES = (".py", ".js")


def rows_of(page: str) -> Iterator[tuple[int, str]]:
    """Yield the last cell of every row of a table of promises, with its line."""
    heading, is_promise = "", False
    for number, line in enumerate(page.splitlines(), 1):
        if not line.startswith("|"):
            heading, is_promise = "", False
            continue
        last = re.split(r"(?<!\\)\|", line.strip().removesuffix("|"))[-1].strip()
        if not heading:
            heading = last.lower()
            is_promise = heading in HEADINGS
        elif is_promise and not re.fullmatch(r":?-+:?", last):
            yield number, last


def problems_of(page: str) -> list[str]:
    """Return what is wrong with the rows: no file named, a file that is not there, or a test that is not."""
    found = []
    for number, cell in rows_of(page):
        named = [each for each in _REFERENCE.findall(cell) if each.split("::")[0].endswith(SUFFIXES)]
        if not named:
            found.append(f"line {number}: names no test: {cell!r}")
        found += [f"line {number}: {each} is not there" for each in named if not _is_there(each)]
    return found


def _is_there(reference: str) -> bool:
    path, _, names = reference.partition("::")
    file = REPOSITORY / path
    if not file.is_file():
        return False
    return not names or set(names.split("::")) <= _defined(file)


def _defined(file: Path) -> set[str]:
    text = file.read_text("utf-8")
    if file.suffix != ".py":
        return set(re.findall(r"""\b(?:test|it)\(\s*["'`]([^"'`]+)""", text))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)}


def test_every_promise_is_held_by_a_test() -> None:
    """Each row of each table of promises names a file that exists, and where it names a test, that test."""
    page = (REPOSITORY / "SECURITY.md").read_text("utf-8")
    assert len(list(rows_of(page))) > 20, "the tables are found"
    assert problems_of(page) == []


@pytest.mark.parametrize(
    "cell",
    [
        "",
        "somewhere",
        "`tests/nothing.py`",
        "`tests/docs/test_security_table.py::test_nothing`",
        "`tests/docs/test_security_table.py`, `tests/nothing.py`",
    ],
)
@pytest.mark.parametrize("heading", HEADINGS)
def test_a_row_without_a_test_is_found(heading: str, cell: str) -> None:
    """A promise that nothing holds is told with its line."""
    page = f"| attacker | may | {heading} |\n|---|---|---|\n| somebody | a \\| b | {cell} |\n"
    assert [problem[:7] for problem in problems_of(page)] == ["line 3:"]


def test_a_named_test_is_found() -> None:
    """A row may name one test of a file. Tables of other things are left alone."""
    promise = (
        "| a | held by |\n|---|---|\n| b | `tests/docs/test_security_table.py::test_a_named_test_is_found` |"
    )
    assert problems_of(f"{promise}\n\n| asset | where it is |\n|---|---|\n| files | anywhere |\n") == []
