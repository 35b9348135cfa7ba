"""A small set of tasks in the form of the public ones, and a model that knows some of the answers."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.server.conftest import address, served
from tests.server.serving import script

__all__ = ["address", "served"]


def fix_row(name: str, *, body: str, fixed: str, asserts: str) -> dict[str, Any]:
    return {
        "task_id": f"Own/{name}",
        "declaration": f"import math\n\n\ndef {name}(a, b):\n",
        "docstring": f"{name} of both numbers.",
        "buggy_solution": f"    {body}\n",
        "canonical_solution": f"    {fixed}\n",
        "test": f"\n\ndef check({name}):\n    assert {asserts}\n\ncheck({name})",
        "entry_point": name,
        "bug_type": "not read by us",
    }


ROWS = [
    fix_row("add", body="return a - b", fixed="return a + b", asserts="add(2, 3) == 5"),
    fix_row("mul", body="return a + b", fixed="return a * b", asserts="mul(2, 3) == 6"),
    fix_row("sub", body="return b - a", fixed="return a - b", asserts="sub(2, 3) == -1"),
]
EDIT_ROWS = [
    {
        "task_id": "EditEval/1",
        "instruction": "Return the double. ",
        "context": "class Box:\n{{Code}}\n\ntext = '''\n{{Code}}\n'''\n",
        "input": "    def get(self, x):\n        return x",
        "output": "    def get(self, x):\n        return 2 * x",
        "test": "def check():\n    assert Box().get(3) == 6 and '2 * x' in text",
    },
    {
        "task_id": "EditEval/2",
        "instruction": "Return the double.",
        "context": "",
        "input": "def get(x):\n    return x\n",
        "output": "def get(x):\n    return 2 * x\n",
        "test": "def check():\n    assert get(3) == 6",
    },
    {
        "task_id": "EditEval/156",
        "instruction": "Broken by itself.",
        "context": "",
        "input": "x = 1",
        "output": "x = 2",
        "test": "def check():\n    assert x == 3",
    },
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with two files of tasks."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name, rows in (("humanevalfix_python", ROWS), ("editeval", EDIT_ROWS)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def model(tmp_path: Path) -> str:
    """Right about `add`, wrong about `mul`, and `sub` is given back as it was."""
    replies = {
        "You locate code": "`",
        "Task: Fix the bug in add": "```python\ndef add(a, b):\n    return a + b\n```",
        "Task: Fix the bug in mul": "```python\ndef mul(a, b):\n    return a / b\n```",
        "Task: Fix the bug in sub": "```python\ndef sub(a, b):\n    return b - a\n```",
        "Answer with the whole": "Here:\n\n```python\ndef add(a, b):\n    return a + b\n```\nDone.",
    }
    return script(tmp_path, replies=replies)
