"""A mention of what is not there: exit code 2 with the nearest names, before a model is woken."""

import shutil

import pytest

from tests.e2e.conftest import SHOUTED, TASK
from tests.e2e.terminal import Home
from tests.e2e.tmux import Tmux

WORDS = "shout in @tsak.py:show"
COMMANDS = {
    "-p": ("-p", WORDS, "--yes"),
    "run": ("run", WORDS),
    "run --background": ("run", "--background", WORDS),
    "edit": ("edit", "task.py", WORDS, "--yes"),
    "ask": ("ask", "What does @tsak.py do?", "task.py"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_mistyped_file_is_exit_code_2(task_home: Home, command: str) -> None:
    """No other file is edited in its place, and no server is started for it."""
    done = task_home.run(*COMMANDS[command])
    assert (done.code, done.out) == (2, ""), done
    assert "There is no file tsak.py" in done.err
    assert "Did you mean @task.py?" in done.err
    assert (task_home.work / "task.py").read_text() == TASK
    assert not list((task_home.folder / "state").glob("run/*.json")), "a server was started"


def test_a_mistyped_unit_is_exit_code_2(task_home: Home) -> None:
    """With the units that have nearly this name."""
    done = task_home.run("-p", "shout in @task.py:shwo", "--yes")
    assert (done.code, "Did you mean show?" in done.err) == (2, True), done.err
    assert (task_home.work / "task.py").read_text() == TASK


def test_one_in_a_conversation_that_goes_on_is_refused_too(task_home: Home) -> None:
    """It is looked for in that conversation's folder."""
    task_home.script({"You locate code": "`show`", "Task: ": SHOUTED, "": "Hello."})
    assert task_home.run("-p", "What is this?").code == 0
    done = task_home.run("-p", WORDS, "--yes", "--continue")
    assert (done.code, "Did you mean @task.py?" in done.err) == (2, True), done
    assert (task_home.work / "task.py").read_text() == TASK


def test_what_the_message_quotes_is_no_mention(task_home: Home) -> None:
    """Backticks make it text."""
    task_home.script({"": "Hello."})
    assert task_home.run("-p", "What is `@tsak.py`, and what @dataclass?").code == 0


def test_ask_reads_what_the_question_mentions(task_home: Home) -> None:
    """A file behind an @ is no less read than one that is an argument."""
    task_home.script({"print(task.title)": "It shows a task.", "": "I see no code."})
    assert "It shows a task." in task_home.run("ask", "What does @task.py:show do?").out


@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")
def test_the_terminal_keeps_the_message(tmux: Tmux, task_home: Home) -> None:
    """It is said at once, the message stays in the prompt, and once corrected it is sent."""
    tmux.open(columns=160, rows=40)
    tmux.say("shout in @task.py:shwo")
    tmux.sees("Did you mean show?", "› shout in @task.py:shwo")
    tmux.press("BSpace", "BSpace")
    tmux.say("ow")
    tmux.sees("y take it")
    assert (task_home.work / "task.py").read_text() == TASK
