"""An editor that fails, in tmux: the screen comes back with a sentence, and what was asked is still asked."""

import shutil

import pytest

from tests.e2e.conftest import NEW, TASK
from tests.e2e.terminal import Home
from tests.e2e.tmux import Tmux

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")

FAILING = {
    "exit 1": "ended with exit code 1",  # as vim's :cq
    "kill -9 $$": "was ended by SIGKILL",
    'rm "$1"': "has removed the file",
    "printf '\\377' > \"$1\"": "not UTF-8",
}


def use_editor(home: Home, line: str) -> None:
    """Let EDITOR be a script of this line."""
    script = home.folder / "editor.sh"
    script.write_text(f"#!/bin/sh\n{line}\n")
    script.chmod(0o755)
    home.extra["EDITOR"] = str(script)


def ask(tmux: Tmux) -> None:
    tmux.open(columns=160, rows=40)
    tmux.say("shout in @task.py:show")
    tmux.sees("y take it")


@pytest.mark.parametrize("line", FAILING)
def test_the_screen_comes_back_with_the_proposal(tmux: Tmux, task_home: Home, line: str) -> None:
    """However the editor fails, one sentence says so, and y still takes the proposal."""
    task_home.script({"": "```python\ndef show(task):\n    print(task.title.upper())\n```"})
    use_editor(task_home, line)
    ask(tmux)
    tmux.press("e")
    tmux.sees(FAILING[line], "y take it")
    assert (task_home.work / "task.py").read_text() == TASK
    tmux.press("y")
    tmux.sees("written, not run")
    assert (task_home.work / "task.py").read_text() == NEW


@pytest.mark.parametrize(
    ("editor", "said"), [("no-such-editor", "is not here"), ("vi 'x", "could not be used")]
)
def test_an_editor_that_is_none_is_told(tmux: Tmux, task_home: Home, editor: str, said: str) -> None:
    """A wrong EDITOR is a sentence, and Ctrl+C twice leaves as always."""
    task_home.extra["EDITOR"] = editor
    ask(tmux)
    tmux.press("e")
    tmux.sees(said, "y take it")
    tmux.press("n")
    tmux.sees("not written")
    tmux.press("C-c")
    tmux.sees("again leaves")
    tmux.press("C-c")
    tmux.is_gone("shout")  # nor is there a window that could have it


def test_ctrl_c_ends_the_editor_and_nothing_else(tmux: Tmux, task_home: Home) -> None:
    """It is the editor's key while the editor has the terminal."""
    use_editor(task_home, "echo waiting; exec sleep 600")
    ask(tmux)
    tmux.press("e")
    tmux.sees("waiting")
    tmux.press("C-c")
    tmux.sees("was ended by SIGINT", "y take it")


def test_a_message_stays_as_it_was(tmux: Tmux, task_home: Home) -> None:
    """Ctrl+G with an editor that fails leaves what was typed in the prompt."""
    use_editor(task_home, 'echo other > "$1"; exit 1')
    tmux.open(columns=160)
    tmux.sees("ready")
    tmux.type("half a thought")
    tmux.sees("half a thought")
    tmux.press("C-g")
    tmux.sees("ended with exit code 1", "half a thought")
