"""Tasks in processes of their own: steered, asked about, stopped, interrupted, limited, resumed."""

import os
import signal
from pathlib import Path

import pytest

from tests.agent.loop.working import call
from tests.agent.tasks.conftest import Start
from tests.agent.tasks.tasking import seen, wait_for
from tests.sandboxes import needs_sandbox
from tests.server.serving import ancestors, until
from vivace.agent.events.task import ApprovalAsked, CallEnded, Steered, TextGrew
from vivace.agent.loop.task import TaskLimits
from vivace.agent.tasks import control
from vivace.agent.tasks.records import RunnerBegan
from vivace.agent.tasks.takeover.changes import read_changes
from vivace.errors import TaskBusy, UsageError

LONG = " ".join(f"{number} sheep" for number in range(400))


def test_a_task_is_steered_between_two_tokens(start: Start) -> None:
    """What is said while the model writes turns its answer around; said too late, it waits for a resume."""
    settings, task = start(LONG, "You are right.", "Cows too.", step_ms=5)
    until(lambda: seen(task, TextGrew))
    assert control.steer_task(task, "Count goats.")
    assert wait_for(task, "done").text == "You are right."
    assert [each.text for each in seen(task, Steered)] == ["Count goats."]
    assert "399 sheep" not in task.log_file.read_text(), "the answer was turned around before its end"
    with pytest.raises(UsageError, match="does not run: it is done"):
        control.steer_task(task, "Too late.")
    with pytest.raises(UsageError, match="is done"):
        control.resume_task(settings, task)
    control.resume_task(settings, task, "And now cows.")
    until(lambda: task.state().turns == 2)
    assert wait_for(task, "done").text == "Cows too."


def test_a_task_is_stopped_and_goes_on(start: Start) -> None:
    """It has a session of its own, so that it survives its terminal, and nobody else may run it."""
    settings, task = start(LONG, step_ms=20)
    until(lambda: seen(task, TextGrew))
    pid = task.pid()
    assert pid is not None
    assert os.getsid(pid) != os.getsid(0)
    with pytest.raises(TaskBusy):
        control.resume_task(settings, task)
    control.stop_task(task)
    assert task.state().status == "stopped"
    control.resume_task(settings, task)
    until(lambda: len(seen(task, RunnerBegan)) == 2)
    assert wait_for(task, "running").reason == "stopped"


def test_a_task_descends_from_nobody(start: Start) -> None:
    """An editor that ends our program with all that descends from it leaves the task alone."""
    _, task = start(LONG, step_ms=20)
    pid = task.pid()
    assert pid is not None
    assert os.getpid() not in ancestors(pid)
    control.stop_task(task)


def test_a_question_waits_for_an_answer(start: Start) -> None:
    """Nobody is there to be asked: the task waits, says what for, and its time stands still."""
    outside = call("edit", path="../b.py", old_text="", new_text="y = 1\n")
    _, task = start(outside, outside, "That was it.", limits=TaskLimits(seconds=60))
    asked = wait_for(task, "waiting").asked
    assert asked is not None
    assert (asked.tool, asked.title) == ("edit", "../b.py")
    assert control.answer_task(task, is_allowed=False, reason="Not there.")
    until(lambda: len(seen(task, ApprovalAsked)) == 2)
    assert control.answer_task(task, is_allowed=True, digest=asked.digest)
    assert wait_for(task, "done").text == "That was it."
    assert (task.work / "b.py").exists()
    assert [each.status for each in seen(task, CallEnded)] == ["refused", "done"]
    assert "Not there." in seen(task, CallEnded)[0].output
    with pytest.raises(UsageError, match="asks nothing"):
        control.answer_task(task, is_allowed=True)


@needs_sandbox
def test_a_command_that_was_interrupted_is_not_run_again(start: Start) -> None:
    """After kill -9 in its middle the model is told that the effect is unknown, and decides."""
    settings, task = start(call("shell", command="echo once >> lines; sleep 600"), "I leave it.")
    lines = Path(task.queued().workspace) / "lines"
    until(lines.exists)
    pid = task.pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert wait_for(task, "interrupted").last.startswith("shell echo once")
    control.resume_task(settings, task)
    assert wait_for(task, "done").text == "I leave it."
    assert lines.read_text() == "once\n"
    assert "its effect is unknown" in seen(task, CallEnded)[0].output
    assert [file.path for file in read_changes(task).files] == ["lines"], "no stand-in of the sandbox"


def test_a_task_that_does_not_run_can_be_stopped(start: Start) -> None:
    """Its end is in the log, and a process that does not listen is ended."""
    settings, task = start(LONG, step_ms=20)
    until(lambda: seen(task, TextGrew))
    pid = task.pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_for(task, "interrupted")
    control.stop_task(task)
    assert task.state().status == "stopped"
    control.resume_task(settings, task)
    until(lambda: len(seen(task, RunnerBegan)) == 2)
    again = task.pid()
    assert again is not None
    assert again != pid, "of the process that runs now"
    os.kill(again, signal.SIGSTOP)
    control.STOP_S, before = 0.2, control.STOP_S
    try:
        control.stop_task(task)
    finally:
        control.STOP_S = before
    assert task.state().status == "stopped"


def test_a_limit_ends_a_task_and_a_resume_allows_as_much_again(start: Start) -> None:
    """What was used before the end does not count a second time."""
    settings, task = start(*[call("list")] * 3, "Done.", limits=TaskLimits(turns=2))
    assert wait_for(task, "limit").exit_code == 5
    control.resume_task(settings, task)
    state = wait_for(task, "done")
    assert (state.turns, state.text) == (4, "Done.")


def test_a_server_that_has_forgotten_is_told_everything(start: Start) -> None:
    """The conversation is rebuilt from the log."""
    settings, task = start(call("list"), "Done.", "And more.", limits=TaskLimits(turns=1))
    wait_for(task, "limit")
    text = task.log_file.read_text()
    (answered,) = [line for line in text.splitlines() if "task.answered" in line]
    known = answered.split('"response_id":"')[1].split('"')[0]
    task.log_file.write_text(text.replace(known, "resp_unknown"))
    control.resume_task(settings, task)
    assert wait_for(task, "done").text == "Done.", "the model knows that it has said one thing"


def test_context_of_a_conversation_is_handed_over(start: Start) -> None:
    """What was said before stands in front of the task."""
    context = [{"role": "user", "content": "We spoke of goats."}, {"role": "assistant", "content": "Yes."}]
    _, task = start("Nothing was said before.", "Goats, then.", context=context)
    assert wait_for(task, "done").text == "Goats, then."
