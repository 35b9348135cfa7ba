"""`vivace run --background` and `vivace tasks`: a task beside the user, until its diff is taken over."""

from pathlib import Path
from typing import Any

import pytest

from tests.agent.loop.working import call, calls
from tests.agent.tasks.tasking import commit, git
from tests.e2e.terminal import Home, Terminal
from tests.sandboxes import needs_sandbox


@pytest.fixture
def project(home: Home) -> Path:
    git(home.work, "init", "-q")
    (home.work / "a.py").write_text("x = 1\n")
    commit(home.work)
    return home.work


def background(home: Home, *steps: str, **script: Any) -> str:
    """Start a task whose model says these messages. Return its id."""
    home.script({"": "Nothing more."}, steps=list(steps), **({"context_tokens": 60000} | script))
    done = home.run("run", "--background", "Make x two.")
    assert done.code == 0, done.err
    return done.out.strip()


@needs_sandbox
def test_a_task_comes_back_as_a_diff(home: Home, project: Path) -> None:
    """It works on a copy; watch and diff show it, take writes it over, and undo takes that back."""
    edit = call("edit", path="a.py", old_text="x = 1", new_text="x = 2")
    task = background(home, calls("I change it.", edit, call("shell", command="cat a.py")), "All is done.")
    watched = home.run("tasks", "watch", task)
    assert (watched.code, "-x = 1\n+x = 2\n" in watched.out) == (0, True), watched.err
    assert watched.out.endswith("All is done.\n")
    assert home.run("tasks", "watch", task, "--output-format", "json").events[-1]["reason"] == "completed"
    assert (project / "a.py").read_text() == "x = 1\n", "the user's folder is as it was"
    (shown,) = home.run("tasks", "--output-format", "json").events
    assert (shown["state"], shown["turns"], shown["summary"]) == ("done", 2, "All is done.")
    assert shown["tokens"] > 0
    listed = home.run("tasks").out
    assert all(word in listed for word in (task, "done", "Make x two.", "All is done."))
    assert "-x = 1\n+x = 2\n" in home.run("tasks", "diff", task).out
    refused = home.run("tasks", "take", task)
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert home.run("tasks", "take", task[-6:], "--yes").code == 0
    assert (project / "a.py").read_text() == "x = 2\n"
    assert home.run("undo").code == 0
    assert (project / "a.py").read_text() == "x = 1\n"
    assert home.run("tasks", "remove", task).code == 0
    assert "no tasks yet" in home.run("tasks").out
    assert len(git(project, "worktree", "list").splitlines()) == 1


def test_hunks_are_taken_at_a_terminal(home: Home, project: Path) -> None:
    """As those of an edit are."""
    (project / "b.py").write_text("y = 1\n")
    edits = [
        call("edit", path=f"{name}.py", old_text="1", new_text="2") for name in ("a", "b")
    ]  # of two files
    task = background(home, calls(*edits), "Done.")
    assert home.run("tasks", "watch", task).code == 0
    terminal = Terminal(home, "tasks", "take", task)
    terminal.wait_for("[h]unk by hunk")
    terminal.type("h\n")
    terminal.wait_for("(1 of 2)")
    terminal.type("n\n")
    terminal.wait_for("(2 of 2)")
    terminal.type("y\n")
    terminal.wait_for("Wrote")
    assert terminal.end() == 0
    assert ((project / "a.py").read_text(), (project / "b.py").read_text()) == ("x = 1\n", "y = 2\n")
