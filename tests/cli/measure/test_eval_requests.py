"""`vivace eval requests` as a user runs it: a process of its own, a scripted model, tasks of our own."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.e2e.conftest import home
from tests.e2e.terminal import Home
from tests.eval.requests.conftest import ALSO_ASKED, model, tasks
from tests.sandboxes import needs_sandbox
from vivace.errors import USAGE

__all__ = ["home", "model", "tasks"]


@pytest.fixture
def eval_home(home: Home, model: str) -> Home:
    home.model = model
    return home


@needs_sandbox
def test_tasks_are_answered_and_judged_apart(eval_home: Home, tasks: Path, tmp_path: Path) -> None:
    """Answers come from a machine that runs nothing; --score judges them without a server."""
    given = ("--tasks", str(tasks), "--effort", "low", "--json")
    results = str(tmp_path / "r.jsonl")
    done = eval_home.run("eval", "requests", *given, "--no-score", "--results", results)
    assert done.code == 0, done.err
    counts = json.loads(done.out)["efforts"]["low"]
    assert (counts["written"], counts["refused"], counts["right_rate"]) == (1, 1, None)
    assert eval_home.run("stop").code == 0
    scored = eval_home.run("eval", "requests", "--tasks", str(tasks), "--score", results, "--json")
    assert scored.code == 0, scored.err
    assert json.loads(scored.out)["efforts"]["low"]["right"] == 1
    assert not eval_home.status()["running"]


def test_a_killed_run_goes_on(eval_home: Home, model: str, tasks: Path) -> None:
    """What was answered before the kill is not asked again."""
    file = Path(model.removeprefix("scripted:"))
    script = json.loads(file.read_text())
    quick = script["replies"][f"Task: {ALSO_ASKED}"]
    script["replies"][f"Task: {ALSO_ASKED}"] = "```python\n" + "x" * 3000
    file.write_text(json.dumps(script | {"step_ms": 20, "draft_tokens": 0}))
    given = ("eval", "requests", "--tasks", str(tasks), "--effort", "low", "--no-score", "--json")
    with eval_home.start(*given) as process:
        assert process.stderr is not None
        while "[1/2]" not in (line := process.stderr.readline()):
            assert line, "it ended early"
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    assert eval_home.run("stop").code == 0
    script["replies"][f"Task: {ALSO_ASKED}"] = quick
    file.write_text(json.dumps(script))
    done = eval_home.run(*given)
    assert done.code == 0, done.err
    assert "1 of 2 were answered before" in done.err
    assert json.loads(done.out)["efforts"]["low"]["answered"] == 2


@needs_sandbox
def test_the_set_can_be_judged_by_itself(eval_home: Home, tasks: Path) -> None:
    """No model is needed."""
    done = eval_home.run("eval", "requests", "--tasks", str(tasks), "--check-set")
    assert done.code == 0, done.err
    assert json.loads(done.out)["references_that_fail"] == []


def test_a_folder_without_tasks_is_a_usage_error(eval_home: Home, tmp_path: Path) -> None:
    """With what it should hold."""
    done = eval_home.run("eval", "requests", "--no-score", "--tasks", str(tmp_path / "none"))
    assert done.code == USAGE
    assert "tasks.jsonl" in done.err
