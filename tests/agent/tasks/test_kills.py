"""kill -9 of a task's process, the server and the engine, at each step that is logged: nothing twice."""

import json
from pathlib import Path

import pytest

from tests.agent.loop.working import call, calls
from tests.agent.tasks.conftest import Queue
from tests.agent.tasks.tasking import Victim, work_in_child
from tests.sandboxes import needs_sandbox
from tests.server.serving import script, until_ready
from vivace.agent.events.task import CallEnded, CallStarted, FilesWritten, TaskEnded
from vivace.agent.tasks.records import Line
from vivace.agent.tasks.store import TaskFolder
from vivace.agent.tasks.takeover.changes import read_changes
from vivace.client import warm
from vivace.config import Settings

pytestmark = pytest.mark.served

STEPS = (
    calls("I look.", call("read", path="a.py")),
    calls(
        call("edit", path="a.py", old_text="x = 1", new_text="x = 1 + 1"),
        call("shell", command="echo once >> lines.txt"),
    ),
    calls(call("shell", command="echo twice >> lines.txt"), call("read", path="lines.txt")),
    "All is done.",
)
LINES = 22  # that an undisturbed run logs
RUNNER: tuple[Victim, ...] = ("runner before", "runner in the middle", "runner after")
ALL: tuple[Victim, ...] = (*RUNNER, "server", "engine")


def check(task: TaskFolder, lines: list[Line]) -> None:
    """Whatever was killed: it is done, nothing was done twice, and what was said to be done is done."""
    steps = [line.step for line in lines]
    ended = [step for step in steps if isinstance(step, TaskEnded)]
    assert [each.reason for each in ended] == ["completed"], ended
    work = Path(task.queued().workspace)
    written = (work / "lines.txt").read_text().split() if (work / "lines.txt").exists() else []
    assert len(written) == len(set(written)), "a command ran twice"
    for name in written:
        assert any(isinstance(step, CallStarted) and name in step.title for step in steps)
    outputs = {step.call_id: step for step in steps if isinstance(step, CallEnded)}
    for step in steps:
        if isinstance(step, CallStarted) and step.tool == "shell" and step.call_id in outputs:
            end, name = outputs[step.call_id], step.title.split()[1]
            assert end.status != "done" or name in written
            assert end.status == "done" or "effect is unknown" in end.output
    text = (work / "a.py").read_text()
    assert text in ("x = 1\n", "x = 1 + 1\n"), "an edit was made twice"
    if any(isinstance(step, FilesWritten) for step in steps):
        assert text == "x = 1 + 1\n", "a change that was accepted is lost"
    changed = {file.path for file in read_changes(task).files}
    assert changed <= {"a.py", "lines.txt"}, "only what the task did"


def run_through(task: TaskFolder, settings: Settings, victim: Victim, at: int) -> None:
    """Work on the task, and go on after each kill as `vivace tasks resume` does, to the end."""
    work_in_child(task, settings, victim, at)
    if not task.state().is_over:
        assert task.state().status == "interrupted"
        assert work_in_child(task, settings, "nobody", 0)
    if victim == "server":
        warm.ensure_server(settings)
        until_ready(settings)
    check(task, task.lines())


@pytest.fixture(scope="module")
def killed(served: Settings, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    model = script(tmp_path_factory.mktemp("killed"), steps=list(STEPS), context_tokens=60000)
    return served.having(model=model)


@needs_sandbox
@pytest.mark.parametrize(
    ("victim", "at"),
    [
        ("nobody", 0),
        ("runner before", 4),
        ("runner after", 3),
        ("runner after", 8),
        ("runner in the middle", 10),
        ("runner after", 11),
        ("runner after", 12),
        ("runner after", 14),
        ("runner before", 17),
        ("runner after", 20),
        ("server", 5),
        ("engine", 8),
    ],
)
def test_a_kill_makes_nothing_happen_twice(killed: Settings, queue: Queue, victim: Victim, at: int) -> None:
    """The task goes on from its log, or did not notice, and comes to its end."""
    task = queue(killed)
    run_through(task, killed, victim, at)
    if victim == "nobody":
        steps = [line.step for line in task.lines() if not line.step.is_delta]
        assert len(steps) == LINES + 2, "the kills are spread over all lines"
        lines = [json.loads(line) for line in task.log_file.read_text().splitlines()]
        assert all(set(line) == {"at_s", "step"} and line["step"]["type"] for line in lines)


@needs_sandbox
@pytest.mark.thorough
@pytest.mark.parametrize("at", range(1, LINES + 1))
@pytest.mark.parametrize("victim", ALL)
def test_kills_at_every_line(killed: Settings, queue: Queue, victim: Victim, at: int) -> None:
    """The same at each line that is logged, of each process."""
    run_through(queue(killed), killed, victim, at)


@needs_sandbox
@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(90))
def test_kills_of_a_task_that_goes_on(killed: Settings, queue: Queue, seed: int) -> None:
    """A task that goes on may be killed again, anywhere."""
    task = queue(killed)
    first, second = seed % LINES + 1, seed * 7 % 11 + 1
    if not work_in_child(task, killed, RUNNER[seed % 3], first) and not task.state().is_over:
        work_in_child(task, killed, RUNNER[seed // 3 % 3], second)
    if not task.state().is_over:
        assert work_in_child(task, killed, "nobody", 0)
    check(task, task.lines())
