"""Verdicts on answers: right, wrong, broken, endless, and those that leave before they are tested."""

import os
from pathlib import Path

import pytest

from tests.sandboxes import needs_sandbox
from vivace.config import load_settings
from vivace.eval.edits.run import judge_set
from vivace.eval.edits.scoring import judge
from vivace.eval.edits.tasks import SetName, Task, read_tasks

pytestmark = needs_sandbox


@pytest.fixture
def task(data: Path) -> Task:
    return read_tasks("humanevalfix", data)[0]


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        ("def add(a, b):\n    return a + b\n", "passed"),
        ("def add(a, b):\n    return a - b\n", "failed"),
        ("def add(a, b):\n    return a +\n", "error"),
        ("def plus(a, b):\n    return a + b\n", "error"),
        ("import sys\nsys.exit(0)\n", "error"),
        ("import os\nos._exit(0)\n", "error"),
        ("if __name__ == '__main__':\n    raise OSError\ndef add(a, b):\n    return a + b\n", "passed"),
        ("def add(a, b):\n    return [0] * (1 << 40)\n", "error"),
        ("while True:\n    print('x' * 9999)\n", "output"),
        ("import os, time\nfor _ in range(80):\n    if not os.fork(): break\ntime.sleep(600)", "processes"),
    ],
)
async def test_a_verdict_needs_the_whole_test_to_have_run(task: Task, code: str, verdict: str) -> None:
    """An exit code of 0 alone proves nothing."""
    assert (await judge(task, code))[0] == verdict


async def test_a_test_that_compares_times_gets_processor_time() -> None:
    """Waiting takes none, so a busy machine does not change the verdict."""
    asserts = "import time\nbegan = time.time()\ntime.sleep(0.5)\nassert time.time() - began < 0.4\n"
    assert (await judge(Task("timed", "", "", "", "{{Code}}\n" + asserts), "x = 1\n"))[0] == "passed"


async def test_what_a_failed_program_said_is_kept(task: Task) -> None:
    """Its end, which names the error."""
    _, detail = await judge(task, "raise ValueError('so it was')\n")
    assert detail.endswith("ValueError: so it was")


async def test_a_set_is_judged_by_itself(data: Path) -> None:
    """References pass and unchanged code fails, or they are named."""
    tasks = read_tasks("humanevalfix", data) + read_tasks("editeval", data)
    useless = Task("useless", "", "x = 1\n", "x = 2\n", "{{Code}}\n")
    impossible = Task("impossible", "", "x = 1\n", "x = 2\n", "{{Code}}\nassert x == 3\n")
    found = await judge_set([*tasks, useless, impossible])
    assert found == {"references_that_fail": ["impossible"], "unchanged_that_pass": ["useless"]}


@pytest.mark.skipif("VIVACE_EVALS_DIR" not in os.environ, reason="needs the public data in VIVACE_EVALS_DIR")
@pytest.mark.parametrize(("name", "tasks"), [("humanevalfix", 164), ("editeval", 193)])
async def test_the_public_sets_are_judged_right(name: SetName, tasks: int) -> None:
    """Every reference passes, and no unchanged code."""
    rows = read_tasks(name, load_settings().evals_folder)
    assert len(rows) == tasks
    found = await judge_set(rows)
    assert found == {"references_that_fail": [], "unchanged_that_pass": []}
