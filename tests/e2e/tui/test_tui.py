"""`vivace` in tmux, as a user has it: real program, real server; a scripted model, then the default one."""

import shutil
from pathlib import Path

import pytest

from tests.e2e.terminal import Home, kill_hard, wait_until
from tests.e2e.tmux import Tmux
from vivace.config import load_settings
from vivace.models.store import is_present

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")

OLD = "def show(task):\n    # one\n    print(task.title)\n"
NEW = "def show(task):\n    # two\n    print(task.title)\n"


def test_a_morning_in_the_terminal(home: Home, tmux: Tmux) -> None:
    """Ask, steer in the middle, stop, edit, undo, be killed, and go on where it ended."""
    long = "".join(f"{number} bottles {number * 7919 % 1009}\n" for number in range(80))
    home.script(
        {
            "You locate code": "`show`",
            "Task: change": f"```python\n{NEW}```",
            "long": long,
            "": "Hello there.",
        },
        step_ms=5,
    )
    file = home.work / "task.py"
    file.write_text(OLD)
    tmux.open()
    tmux.say("why so long?")
    tmux.sees("3 bottles")
    tmux.say("be brief")
    tmux.sees("↪ be brief", "1 bottles")
    tmux.press("Escape")
    tmux.sees("Stopped. What is there is kept.")

    tmux.say("change the comment in @task.py:show")
    tmux.sees("# two", "y take it")
    assert file.read_text() == OLD
    tmux.press("y")
    tmux.sees("written, not run")
    assert file.read_text() == NEW
    tmux.say("/undo")
    tmux.sees("Took back the change")
    assert file.read_text() == OLD

    tmux.type("why so long? I ask again")
    tmux.press("Enter")
    tmux.sees("I ask again", "2 bottles")
    kill_hard(tmux.pid)
    tmux.close()
    tmux.open("--continue", rows=40)
    tmux.sees("I ask again", "2 bottles", "ready")
    tmux.press("C-c")
    tmux.sees("again leaves")
    pid = tmux.pid
    tmux.press("C-c")
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the end of the program")


def test_the_prompt_is_there_before_the_server(home: Home, tmux: Tmux) -> None:
    """What is typed while the server starts waits in the queue, and is answered."""
    home.script({"": "Hello there."}, load_ms=1500)
    tmux.open()
    tmux.say("what now?")
    tmux.sees("› what now?", "Hello there.")


@pytest.mark.thorough
@pytest.mark.skipif(not is_present(load_settings(), load_settings().model), reason="needs the default model")
def test_the_default_model_edits(home: Home, tmux: Tmux) -> None:
    """With the real model: an edit is proposed, taken, and undone."""
    home.extra = {"VIVACE_CACHE_DIR": str(load_settings().cache_dir), "VIVACE_TUNE": "never"}
    file = home.work / "area.py"
    old = 'def area(width, height):\n    """Return the area."""\n    return width + height\n'
    file.write_text(old)
    tmux.open()
    tmux.say("Fix the bug in @area.py:area")
    tmux.sees("y take it")
    tmux.press("y")
    tmux.sees("written, not run")
    assert file.read_text() != old
    tmux.say("/undo")
    tmux.sees("Took back the change")
    assert file.read_text() == old


@pytest.mark.skipif(not is_present(load_settings(), load_settings().model), reason="needs the default model")
def test_the_default_model_is_turned_around_and_stopped(home: Home, tmux: Tmux) -> None:
    """With the real model: Enter in the middle of an answer steers it, and Esc keeps what it said."""
    home.extra = {"VIVACE_CACHE_DIR": str(load_settings().cache_dir), "VIVACE_TUNE": "never"}
    tmux.open()
    tmux.say("What happens in the story of a lighthouse? Tell it in a thousand words.")
    tmux.sees("writing")
    tmux.say("No lighthouse: tell of a ship, also in a thousand words.")
    tmux.sees("↪ No lighthouse: tell of a ship")
    tmux.sees("writing", "ship")
    tmux.press("Escape")
    tmux.sees("Stopped. What is there is kept.", "ready")
