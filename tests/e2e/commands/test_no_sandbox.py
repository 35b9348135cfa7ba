"""A machine without bubblewrap, or where it does not work: what was asked for and cannot be is not done."""

import sys

import pytest

from tests.agent.loop.working import call
from tests.e2e.conftest import NEW, TASK
from tests.e2e.terminal import Home
from tests.sandboxes import needs_sandbox, path_without_bubblewrap

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")
CHECKED = """description = "an edit with a check"
[[steps]]
edit = "shout"
files = ["task.py:show"]
check.run = "true"
"""


@pytest.fixture
def bare(task_home: Home) -> Home:
    """Without bubblewrap."""
    task_home.extra["PATH"] = path_without_bubblewrap(task_home.folder / "bin")
    return task_home


def text(home: Home) -> str:
    return (home.work / "task.py").read_text()


@pytest.mark.parametrize("flags", [("--yes",), ("--diff",)])
def test_an_edit_whose_tests_cannot_run_is_not_written(bare: Home, flags: tuple[str, ...]) -> None:
    """Exit code 3 with the remedy, before a model is woken."""
    done = bare.run("edit", "task.py:show", "shout", "--test", "true", *flags)
    assert (done.code, done.out, text(bare)) == (3, "", TASK), done
    assert "The tests cannot run, so nothing is written." in done.err
    assert "apt install bubblewrap" in done.err
    assert bare.run("edit", "task.py:show", "shout", "--yes").code == 0, "without tests as ever"
    assert text(bare) == NEW


def test_a_message_whose_tests_cannot_run_changes_nothing(bare: Home) -> None:
    """`-p` ends with 3 and the remedy; a question needs no tests."""
    bare.extra["VIVACE_TEST_COMMAND"] = "true"
    bare.script({"You locate code": "`show`", "Task: shout": "```python\nx = 1\n```", "": "Hello."})
    done = bare.run("-p", "shout in @task.py:show", "--yes")
    assert (done.code, "apt install bubblewrap" in done.err, text(bare)) == (3, True, TASK), done
    assert bare.run("-p", "What is this?").code == 0


@pytest.mark.parametrize("background", [False, True])
def test_a_task_whose_tests_cannot_run_changes_nothing(bare: Home, background: bool) -> None:
    """In the foreground and beside."""
    bare.extra["VIVACE_TEST_COMMAND"] = "true"
    if background:
        task = bare.run("run", "--background", "shout in @task.py:show").out.strip()
        done = bare.run("tasks", "watch", task)
    else:
        done = bare.run("run", "shout in @task.py:show")
    assert (done.code, "apt install bubblewrap" in done.err, text(bare)) == (3, True, TASK), done


def test_a_sandbox_that_does_not_work_is_none(task_home: Home) -> None:
    """Bubblewrap is there and may not build walls: the same, and `vivace doctor` has it as a problem."""
    line = "echo 'bwrap: Creating new namespace failed: Operation not permitted' >&2; exit 1"
    task_home.extra["PATH"] = path_without_bubblewrap(task_home.folder / "bin", line)
    done = task_home.run("edit", "task.py:show", "shout", "--test", "true", "--yes")
    assert (done.code, "Operation not permitted" in done.err, text(task_home)) == (3, True, TASK), done
    found = task_home.run("doctor", "--quick")
    assert (found.code, "! sandbox" in found.out) == (1, True), found.out


def test_the_doctor_names_a_missing_sandbox(bare: Home) -> None:
    """What is lost, and what brings it."""
    found = bare.run("doctor", "--quick")
    assert (found.code, "tests of edits do not run" in found.out) == (1, True), found.out
    assert "→ Install it: `apt install bubblewrap`" in found.out


@needs_sandbox
def test_the_doctor_is_content_with_one_that_works(task_home: Home) -> None:
    """It is tried, not only found."""
    assert "✓ sandbox   bubblewrap" in task_home.run("doctor", "--quick").out


def test_a_shipped_workflow_says_why_it_stops(bare: Home) -> None:
    """Reason and remedy are on the screen where nobody can be asked."""
    done = bare.run("workflow", "run", "rename", "old=show", "new=display")
    assert (done.code, text(bare)) == (4, TASK)
    assert "There is no sandbox on this machine" in done.err
    assert "apt install bubblewrap" in done.err


def test_a_step_whose_check_cannot_run_writes_nothing(bare: Home) -> None:
    """Exit code 3: the change is not written first and left unchecked."""
    folder = bare.work / ".vivace" / "workflows"
    folder.mkdir(parents=True)
    (folder / "checked.toml").write_text(CHECKED)
    assert bare.run("trust", "--yes").code == 0
    done = bare.run("workflow", "run", "checked")
    assert (done.code, text(bare)) == (3, TASK), done
    assert "nothing is written" in done.err
    assert "apt install bubblewrap" in done.err


def test_a_task_says_why_its_command_was_not_allowed(bare: Home) -> None:
    """`run` and `-p` give the reason, and who knows the remedy."""
    bare.script({"": "Done."}, steps=[call("shell", command="ls"), "Done."], context_tokens=60000)
    for words in (("run", "look"), ("-p", "look", "--yes")):
        done = bare.run(*words)
        assert done.code == 4, done
        assert (
            "There is no sandbox on this machine (`vivace doctor` says how to get one)" in done.out + done.err
        )
