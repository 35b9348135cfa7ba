"""Questions of background tasks: a person sees all of what is asked, and the log keeps no secret for that."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.loop.working import raw_call
from tests.agent.tasks.conftest import Start
from tests.agent.tasks.tasking import seen, wait_for
from tests.server.serving import until
from vivace.agent.events.task import ApprovalAsked
from vivace.agent.loop.asking import is_whole
from vivace.agent.permissions.shown import parse
from vivace.agent.tasks import control
from vivace.agent.tasks.store import TaskFolder
from vivace.cli.show.task import show_question
from vivace.errors import UsageError

SECRET = "ghp_" + "a1B2" * 9
COMMAND = f'password="$(touch${{IFS}}X)aaaaaaaa" true # {SECRET} \u202e\ntouch Y'


def asking(start: Start, *commands: str) -> tuple[TaskFolder, ApprovalAsked]:
    steps = [raw_call("shell", command=command, leave_sandbox=True) for command in commands]
    _, task = start(*steps, "Done.")
    asked = wait_for(task, "waiting").asked
    assert asked is not None
    return task, asked


def test_all_of_a_question_reaches_the_person(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    """With what looks like a secret and what is hidden; a yes runs just that."""
    task, asked = asking(start, COMMAND)
    assert (parse(asked.shown), is_whole(asked)) == (COMMAND, True)
    show_question(asked)
    printed = capsys.readouterr().err
    rows = printed.split("\n")
    assert SECRET in "".join(row[6:] for row in rows if row.startswith(("    │ ", "    ┆ ")))
    assert "⟨U+202E⟩" in printed
    assert control.answer_task(task, is_allowed=True, digest=asked.digest[:12])
    wait_for(task, "done")
    folder = Path(task.queued().workspace)
    assert ((folder / "X").exists(), (folder / "Y").exists()) == (True, True)


def test_the_log_has_no_secret_and_the_question_is_gone_when_it_is_answered(start: Start) -> None:
    """What the log leaves out stands in a file that only its owner reads, while the question is open."""
    task, asked = asking(start, COMMAND)
    assert SECRET not in task.log_file.read_text()
    assert SECRET in task.question_file.read_text()
    assert task.question_file.stat().st_mode & 0o77 == 0
    control.answer_task(task, is_allowed=False, digest=asked.digest)
    wait_for(task, "done")
    assert not task.question_file.exists()


def test_a_question_without_secrets_needs_no_file(start: Start) -> None:
    """The log holds it whole."""
    task, asked = asking(start, "ls")
    assert (task.question_file.exists(), is_whole(asked)) == (False, True)


def test_a_stopped_task_leaves_no_question(start: Start) -> None:
    """Nor does one that is started again."""
    task, _ = asking(start, COMMAND)
    control.stop_task(task)
    assert not task.question_file.exists()


def test_an_answer_to_another_question_is_refused(start: Start) -> None:
    """What a person saw before is not what is asked now."""
    task, first = asking(start, "touch one", "touch two")
    control.answer_task(task, is_allowed=False, digest=first.digest)
    until(lambda: len(seen(task, ApprovalAsked)) == 2)
    until(lambda: task.state().asked is not None)
    with pytest.raises(UsageError, match="something else"):
        control.answer_task(task, is_allowed=True, digest=first.digest)
    control.answer_task(task, is_allowed=False)
    wait_for(task, "done")
    assert not (Path(task.queued().workspace) / "two").exists()


def test_what_the_log_left_out_cannot_be_allowed_unseen(start: Start) -> None:
    """Without the file beside the log the question is not whole: only a no is taken."""
    task, asked = asking(start, COMMAND)
    task.question_file.unlink()
    with pytest.raises(UsageError, match="whole"):
        control.answer_task(task, is_allowed=True, digest=asked.digest)
    assert control.answer_task(task, is_allowed=False)


@pytest.mark.parametrize("chars", [0, 1, 11])
def test_a_yes_that_names_no_question_is_none(start: Start, chars: int) -> None:
    """Whoever sends it, whatever they saw: the digest says which call may run."""
    task, asked = asking(start, COMMAND)
    with pytest.raises(UsageError, match="name its question"):
        control.answer_task(task, is_allowed=True, digest=asked.digest[:chars])
    assert control.answer_task(task, is_allowed=False)


def test_watch_shows_it_and_answer_names_it(start: Start) -> None:
    """`vivace tasks watch` and `answer --about`, as they are typed."""
    task, asked = asking(start, COMMAND)
    settings_env = {
        **os.environ,
        "VIVACE_STATE_DIR": str(task.path.parent.parent),
        "VIVACE_CACHE_DIR": str(task.path.parent.parent / "cache"),
    }

    def vivace(*arguments: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "vivace", "tasks", *arguments]
        return subprocess.run(line, env=settings_env, capture_output=True, text=True, check=False, timeout=60)

    unseen = vivace("answer", task.id, "yes")
    assert (unseen.returncode, "must name its question" in unseen.stderr) == (2, True), unseen.stderr
    assert task.state().status == "waiting"
    wrong = vivace("answer", task.id, "yes", "--about", "0" * 12)
    assert (wrong.returncode, "something else" in wrong.stderr) == (2, True), wrong.stderr
    right = vivace("answer", task.id, "yes", "--about", asked.digest[:12])
    assert right.returncode == 0, right.stderr
    wait_for(task, "done")
    watched = vivace("watch", task.id)
    assert f"--about {asked.digest[:12]}" in watched.stderr
    assert SECRET not in watched.stderr, "it is answered: what remains is the log"
