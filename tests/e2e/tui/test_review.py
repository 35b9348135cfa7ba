"""Edits in tmux: taken hunk by hunk, undone, redone, and gone back to before, code and talk or either."""

import shutil
from pathlib import Path

import pytest

from tests.e2e.terminal import Home
from tests.e2e.tmux import Tmux

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")

LINES = "".join(f"    x{number} = {number}\n" for number in range(9))
OLD = f"def show(task):\n    # one\n{LINES}    print(task.title)\n"
NEW = f"def show(task):\n    # two\n{LINES}    print(task.title.upper())\n"
FIRST_HUNK = OLD.replace("# one", "# two")
ASK = "change @task.py:show"


@pytest.fixture
def file(home: Home) -> Path:
    home.script({"You locate code": "`show`", "Task: change": f"```python\n{NEW}```", "": "Hello there."})
    file = home.work / "task.py"
    file.write_text(OLD)
    return file


def test_an_exported_size_is_not_believed(tmux: Tmux, home: Home) -> None:
    """COLUMNS and LINES of another window do not matter: the screen is as large as it is."""
    home.script({"": "Hello there."})
    home.extra |= {"COLUMNS": "40", "LINES": "10"}
    tmux.open(rows=30)
    tmux.sees("ready")
    assert "? keys" in tmux.text.splitlines()[29]


def ask(tmux: Tmux) -> None:
    tmux.open(rows=40)
    tmux.say(ASK)
    tmux.sees("y take it", "h by hunk")


def test_hunk_by_hunk_then_undone_and_redone(tmux: Tmux, file: Path) -> None:
    """One hunk is taken and one left; undo brings the old bytes back, redo the taken hunk."""
    ask(tmux)
    tmux.press("h")
    tmux.sees("Hunk 1 of 2")
    tmux.press("y")
    tmux.sees("Hunk 2 of 2")
    assert file.read_text() == OLD
    tmux.press("n")
    tmux.sees("written, not run", "ready")
    assert file.read_text() == FIRST_HUNK
    tmux.say("/undo")
    tmux.sees("Took back the change to task.py")
    assert file.read_text() == OLD
    tmux.say("/redo")
    tmux.sees("Brought back the change to task.py")
    assert file.read_text() == FIRST_HUNK


@pytest.mark.parametrize("what", ["code and talk", "talk", "code"])
def test_rewind_takes_back_what_was_chosen(tmux: Tmux, file: Path, what: str) -> None:
    """Esc Esc lists the turns; the code, the talk or both go back, and the other stays as it is."""
    ask(tmux)
    tmux.press("y")
    tmux.sees("written, not run", "ready")
    assert file.read_text() == NEW
    tmux.press("Escape", "Escape")
    tmux.sees("Back to before:", ASK, "turn 1, edit")
    tmux.press("Enter")
    tmux.sees("Goes back:", "code and talk")
    tmux.press(*["Down"] * ["code and talk", "talk", "code"].index(what))
    tmux.sees(f"› {what}")
    tmux.press("Enter")
    tmux.sees("Back to before turn 1")
    assert file.read_text() == (NEW if what == "talk" else OLD)
    if what == "code":
        tmux.sees(f"› {ASK}", "written, not run")  # the talk is still there
    else:
        tmux.is_gone("written, not run")
        tmux.sees(f"› {ASK}")  # the message, at the prompt again
