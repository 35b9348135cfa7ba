"""A home folder for each test, and no server left behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.terminal import Home
from tests.e2e.tmux import Tmux

TASK = '''"""Tasks."""


class Task:
    title: str


def show(task):
    print(task.title)
'''
NEW = TASK.replace("task.title)", "task.title.upper())")
SHOUTED = "```python\ndef show(task):\n    print(task.title.upper())\n```"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    yield home
    home.stop()


@pytest.fixture
def task_home(home: Home) -> Home:
    """A file with one class and one function, and a model that knows how to shout."""
    (home.work / "task.py").write_text(TASK)
    home.script({"You locate code": "`show`", "Task: shout": SHOUTED})
    return home


@pytest.fixture
def tmux(home: Home, tmp_path: Path) -> Iterator[Tmux]:
    terminal = Tmux(home, tmp_path)
    yield terminal
    terminal.close()
