"""`vivace workflow` from the command line: shown, run, resumed, and in the background."""

import json

import pytest

from tests.e2e.conftest import home
from tests.e2e.terminal import Home
from tests.sandboxes import needs_sandbox

__all__ = ["home"]
pytestmark = needs_sandbox
FLAKY = """description = "fails until the file ok is there"
[[steps]]
run = "echo once >> log"
[[steps]]
run = "test -e ok"
"""


@pytest.fixture
def project(home: Home) -> Home:
    home.script({"": "hello"})
    (home.work / "a.py").write_text("def old():\n    return 1\n")
    (home.work / "b.py").write_text("from a import old\n\nprint(old())\n")
    return home


def test_a_rename_runs_and_can_be_undone(project: Home) -> None:
    """The shipped workflow renames in every file, and its steps come as JSON."""
    assert "rename" in project.run("workflow", "list").out
    assert "old=" in project.run("workflow", "show", "rename").out
    done = project.run("workflow", "run", "rename", "old=old", "new=fresh", "--output-format", "stream-json")
    assert done.code == 0, done.err
    kinds = [json.loads(line)["type"] for line in done.out.splitlines()]
    assert kinds.count("workflow.step.began") == 4
    assert (project.work / "b.py").read_text() == "from a import fresh\n\nprint(fresh())\n"
    project.run("undo")
    assert "import old" in (project.work / "b.py").read_text()


def test_a_failed_one_is_resumed_where_it_failed(project: Home) -> None:
    """The finished step is not done again; a run that is done cannot be resumed; wrong inputs are named."""
    folder = project.work / ".vivace" / "workflows"
    folder.mkdir(parents=True)
    (folder / "flaky.toml").write_text(FLAKY)
    assert project.run("workflow", "run", "flaky").code == 4  # not trusted yet
    assert project.run("trust", "--yes").code == 0
    failed = project.run("workflow", "run", "flaky")
    assert failed.code == 1
    assert "vivace workflow resume" in failed.err
    (project.work / "ok").touch()
    assert project.run("workflow", "resume").code == 0
    assert (project.work / "log").read_text() == "once\n"
    assert project.run("workflow", "resume").code == 2
    assert project.run("workflow", "run", "flaky", "x=1").code == 2


def test_a_broken_one_does_not_hide_the_others(home: Home) -> None:
    """The list says what is wrong with it; running it says the same and ends with 2."""
    folder = home.folder / "config" / "vivace" / "workflows"
    folder.mkdir(parents=True)
    (folder / "broken.toml").write_text("steps = 3")
    listed = home.run("workflow", "list")
    assert listed.code == 0
    assert "broken           user     The workflow broken cannot be understood" in listed.out
    assert "changelog        vivace" in listed.out
    assert home.run("workflow", "run", "broken").code == 2


def test_in_the_background_it_is_a_task(project: Home) -> None:
    """It works on a copy, and its changes are taken over like those of any task."""
    started = project.run("workflow", "run", "rename", "old=old", "new=fresh", "--background")
    assert started.code == 0, started.err
    task = started.out.strip()
    assert project.run("tasks", "watch", task).code == 0
    assert "old" in (project.work / "a.py").read_text()
    assert project.run("tasks", "take", task, "--yes").code == 0
    assert (project.work / "a.py").read_text() == "def fresh():\n    return 1\n"
