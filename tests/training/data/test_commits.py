"""A commit becomes the request that the edit loop would make, and the answer that makes the commit's file."""

from pathlib import Path

import msgspec
import pytest

from tests.training.data.rows import AGAIN, BEFORE, commit, write_rows
from vivace.agent.edits.apply.source import source_from_bytes
from vivace.agent.edits.find.languages import PYTHON
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.units import find_unit
from vivace.agent.edits.write.rewrite import rewrite_request
from vivace.errors import FileProblem
from vivace.training.data.commits import Commit, instruction_of, pair_of, read_commits
from vivace.training.data.pairs import Pair, write_pair


def pair(row: dict[str, object]) -> Pair | str:
    return pair_of(msgspec.convert(row, Commit))


def test_the_prompt_is_the_edit_loops_own() -> None:
    """Message by message, with the opening, for the unit that the commit changed."""
    found = pair(AGAIN)
    assert isinstance(found, Pair)
    source = source_from_bytes(Path("store.py"), BEFORE.encode())
    units = list_units(source, PYTHON)
    request, answer = write_pair(found)
    assert request == rewrite_request(
        source, units, find_unit(units, "Store.put"), "Allow things to be put again"
    )
    assert request.opening.endswith("def put")
    assert answer.startswith("(self, name, value):\n        del name\n")
    assert answer.endswith("len(value)\n```")


def test_several_changes_in_one_unit_make_one_answer() -> None:
    """Lines that move the others are counted, whatever their order."""
    first = commit("class Store:", "class Store:\n    kept = {}")["files"][0]["hunks"][0]
    last = AGAIN["files"][0]["hunks"][0]
    row = AGAIN | {"files": [AGAIN["files"][0] | {"hunks": [last, first]}]}
    found = pair(row)
    assert isinstance(found, Pair)
    assert found.unit == "Store"
    assert found.after.startswith("class Store:\n    kept = {}\n")
    assert found.after.endswith("in self.kept.values())\n")
    assert "        del name\n        self.kept[name] = value\n" in found.after


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (commit("import os", "import sys"), "not within one unit"),
        (AGAIN | {"files": AGAIN["files"] * 2}, "several files"),
        (AGAIN | {"subject": "fix: things"}, "subject says nothing"),
        (commit("    def size(self):", "    def length(self):"), "changes what the loop writes itself"),
    ],
)
def test_what_the_loop_could_not_write_is_refused(row: dict[str, object], why: str) -> None:
    """The reason is counted in the report."""
    assert pair(row) == why


@pytest.mark.parametrize(
    ("subject", "instruction"),
    [
        ("🐛 fix(env): keep the old path (#3753)", "keep the old path"),
        ("Fix crash on empty input. Fixes #12", "Fix crash on empty input"),
        ("[core] GH-99: add a limit to the queue", "add a limit to the queue"),
        ("Add max_size to the cache, see https://example.org/1", "Add max_size to the cache, see"),
        ("Use `set` for names", "Use `set` for names"),
        ("fix: typo", ""),
    ],
)
def test_a_subject_is_read_as_a_request(subject: str, instruction: str) -> None:
    """Without prefixes and issue numbers; too short a one asks for nothing."""
    assert instruction_of(subject) == instruction


def test_rows_are_read_from_a_folder(tmp_path: Path) -> None:
    """All of them, in order; a damaged file and an empty folder are named."""
    with pytest.raises(FileProblem, match="No mined commits"):
        list(read_commits(tmp_path))
    write_rows(tmp_path, [AGAIN, AGAIN | {"repo": "other/project"}])
    assert [row.repo for row in read_commits(tmp_path)] == ["some/project", "other/project"]
    file = tmp_path / "commits-python.jsonl.gz"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(FileProblem, match=r"commits-python\.jsonl\.gz cannot be read"):
        list(read_commits(tmp_path))
