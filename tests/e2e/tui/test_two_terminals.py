"""Two terminals on one conversation, each in a tmux of its own: real program, real server, scripted model."""

import shutil
from pathlib import Path

import pytest

from tests.e2e.terminal import Home, kill_hard
from tests.e2e.tmux import Tmux

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux: apt-get install tmux")

OLD = "def show(task):\n    # one\n    print(task.title)\n"
NEW = "def show(task):\n    # two\n    print(task.title)\n"


def test_two_terminals_share_a_conversation(home: Home, tmux: Tmux, tmp_path: Path) -> None:
    """Each sees what the other says; the second takes a diff, and goes on when the first is killed."""
    replies = {
        "You locate code": "`show`",
        "Task: change": f"```python\n{NEW}```",
        "who is there": "The other one.",
        "": "Hello there.",
    }
    home.script(replies, step_ms=2)
    file = home.work / "task.py"
    file.write_text(OLD)
    other = Tmux(home, tmp_path / "other")
    (tmp_path / "other").mkdir()
    try:
        tmux.open()
        tmux.say("what now?")
        tmux.sees("Hello there.", "ready")
        other.open("--continue")
        other.sees("› what now?", "Hello there.", "also open in terminal")
        other.say("and who is there?")
        for terminal in (tmux, other):  # said while it still runs, the change would be a steer
            terminal.sees("› and who is there?", "The other one.", "ready")

        tmux.say("change the comment in @task.py:show")
        for terminal in (tmux, other):
            terminal.sees("# two", "y take it")
        other.press("y")
        for terminal in (tmux, other):
            terminal.sees("written, not run")
        assert file.read_text() == NEW

        kill_hard(tmux.pid)
        other.sees("The conversation is held here now")
        other.say("still there?")
        other.sees("› still there?", "ready")
    finally:
        other.close()
