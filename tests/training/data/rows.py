"""Mined commits for tests: rows as they lie in a cache folder."""

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

BEFORE = '''import os


class Store:
    """Keeps things."""

    def put(self, name, value):
        if name in self.kept:
            raise KeyError(name)
        self.kept[name] = value
        return self.size() + len(value)

    def size(self):
        return sum(len(value) for value in self.kept.values())


def open_store(path, mode="r"):
    folder = os.path.dirname(path)
    if mode == "w" and not folder:
        os.makedirs(folder)
    return Store()
'''


def commit(old: str, new: str, **other: Any) -> dict[str, Any]:
    """Return a row whose file has the lines `new` in place of the lines `old`."""
    lines, old_lines = BEFORE.split("\n"), old.split("\n")
    starts = [at for at in range(len(lines)) if lines[at : at + len(old_lines)] == old_lines]
    assert len(starts) == 1, old
    hunk = {"old_start": starts[0] + 1, "old_lines": old_lines, "new_lines": new.split("\n")}
    row = {
        **{"repo": "some/project", "licence": "MIT", "commit": "c0ffee" * 6, "split": "train"},
        **{"subject": "Allow things to be put again", "language": "python"},
        "files": [{"path": "src/store.py", "before": BEFORE, "hunks": [hunk]}],
    }
    return row | other


def write_rows(folder: Path, rows: Iterable[dict[str, Any]]) -> Path:
    with gzip.open(folder / "commits-python.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return folder


AGAIN = commit("        if name in self.kept:\n            raise KeyError(name)", "        del name")
