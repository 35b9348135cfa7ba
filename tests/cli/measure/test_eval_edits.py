"""`vivace eval edits` as a user runs it: a process of its own, a scripted model, a small set of tasks."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.e2e.conftest import home
from tests.e2e.terminal import Home
from tests.eval.edits.conftest import data, model
from tests.sandboxes import needs_sandbox
from vivace.errors import COULD_NOT_START, INTERRUPTED, USAGE

__all__ = ["data", "home", "model"]


@pytest.fixture
def eval_home(home: Home, data: Path, model: str) -> Home:
    home.model = model
    home.extra = {"VIVACE_EVALS_DIR": str(data)}
    return home


@needs_sandbox
def test_a_run_reports_and_is_not_repeated(eval_home: Home, tmp_path: Path) -> None:
    """A report for programs, a plot, and the second time nothing is asked again."""
    plot = tmp_path / "plot.svg"
    done = eval_home.run("eval", "edits", "--json", "--bare", "--effort", "low", "--plot", str(plot))
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert report["efforts"]["low"]["pass_rate"] == 0.3333
    assert "[6/6] low" in done.err
    assert plot.read_text().startswith("<svg")
    again = eval_home.run("eval", "edits", "--effort", "low")
    assert "3 of 3 were answered before" in again.err
    assert "[" not in again.err
    assert "33.3%" in again.out


def test_instructions_lie_beside_the_code(eval_home: Home, model: str, tmp_path: Path) -> None:
    """The model reads them before each task; what comes of it is kept apart; a missing file is said."""
    file = Path(model.removeprefix("scripted:"))
    script = json.loads(file.read_text())
    after_rules = {"A small library. Python 3.11": "```python\ndef add(a, b):\n    return 42\n```"}
    script["replies"] = {"You locate code": "`", **after_rules, **script["replies"]}
    file.write_text(json.dumps(script))
    rules = str(REPOSITORY / "tests" / "data" / "neutral_agents.md")
    done = eval_home.run("eval", "edits", "--no-score", "--json", "--instructions", rules)
    assert done.code == 0, done.err
    assert json.loads(done.out)["instructions"] == "neutral_agents"
    (kept,) = (eval_home.folder / "state" / "evals").glob("*.jsonl")
    assert kept.name.endswith("-with-neutral_agents.jsonl")
    assert "return 42" in kept.read_text(), "the model has read the rules"
    missing = eval_home.run("eval", "edits", "--instructions", str(tmp_path / "none.md"))
    assert (missing.code, "cannot be read" in missing.err) == (USAGE, True)


@needs_sandbox
def test_answers_are_judged_apart(eval_home: Home, tmp_path: Path) -> None:
    """--no-score runs no program; --score does that later, without a server."""
    results = str(tmp_path / "r.jsonl")
    done = eval_home.run("eval", "edits", "--no-score", "--results", results, "--json")
    assert json.loads(done.out)["efforts"]["medium"]["pass_rate"] is None
    assert eval_home.run("stop").code == 0
    scored = eval_home.run("eval", "edits", "--score", results, "--json")
    assert json.loads(scored.out)["efforts"]["medium"]["passed"] == 1
    assert not eval_home.status()["running"]


def test_ctrl_c_reports_what_is_done(eval_home: Home, model: str) -> None:
    """The exit code says that it was interrupted, and the report counts what was answered."""
    file = Path(model.removeprefix("scripted:"))
    script = json.loads(file.read_text())
    script["replies"]["Task: Fix the bug in mul"] = "```python\n" + "x" * 3000
    file.write_text(json.dumps(script | {"step_ms": 20, "draft_tokens": 0}))
    with eval_home.start("eval", "edits", "--no-score", "--json") as process:
        assert process.stderr is not None
        while "[1/3]" not in (line := process.stderr.readline()):
            assert line, "it ended early"
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate()
    assert process.returncode == INTERRUPTED
    assert json.loads(out)["efforts"]["medium"]["answered"] == 1
    assert "goes on from here" in err


def test_without_a_sandbox_it_ends_before_it_begins(eval_home: Home, tmp_path: Path) -> None:
    """What cannot be judged is not answered first."""
    eval_home.extra["PATH"] = str(tmp_path)
    done = eval_home.run("eval", "edits")
    assert done.code == COULD_NOT_START
    assert not eval_home.status()["running"]


@needs_sandbox
def test_the_set_can_be_judged_by_itself(eval_home: Home) -> None:
    """No model is needed."""
    done = eval_home.run("eval", "edits", "--check-set", "--set", "editeval")
    assert done.code == 0, done.err
    assert json.loads(done.out)["references_that_fail"] == []


def test_another_server_can_be_named(eval_home: Home) -> None:
    """With its URL and a file that has the token; a wrong one is a usage error."""
    eval_home.run("ask", "hello")
    port = eval_home.status()["port"]
    token = eval_home.folder / "state" / "token"
    there = ("--url", f"http://127.0.0.1:{port}", "--token-file", str(token))
    done = eval_home.run("eval", "edits", "--no-score", "--json", *there)
    assert done.code == 0, done.err
    assert json.loads(done.out)["efforts"]["medium"]["answered"] == 3
    assert eval_home.run("eval", "edits", "--no-score", "--fresh", "--url", "nowhere").code == USAGE


def test_missing_tasks_are_a_usage_error(eval_home: Home, tmp_path: Path) -> None:
    """With where to get them."""
    done = eval_home.run("eval", "edits", "--data", str(tmp_path))
    assert done.code == USAGE
    assert "humanevalpack" in done.err
