"""A task of a model that is too small for tools: the unit loop over a plan, in the task's workplace."""

from pathlib import Path

import pytest

from tests.agent.conversation.talking import EDITING
from tests.agent.edits.test_flow import NEW
from tests.agent.edits.test_flow import OLD as TASK
from tests.agent.tasks.conftest import Queue
from tests.agent.tasks.tasking import Victim, work_in_child
from tests.server.serving import script
from vivace.agent.events.task import FilesWritten, TaskEnded, WritingBegan
from vivace.agent.tasks.takeover.changes import read_changes
from vivace.config import Settings


@pytest.fixture(scope="module")
def small(served: Settings, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A model that edits `task.py`."""
    model = script(tmp_path_factory.mktemp("small"), replies=EDITING, context_tokens=20000)
    return served.having(model=model)


@pytest.fixture(autouse=True)
def task_file(repository: Path) -> None:
    (repository / "task.py").write_text(TASK)


def test_a_small_model_works_in_its_own_way(small: Settings, queue: Queue, repository: Path) -> None:
    """It rewrites a unit in the workplace, and the task ends with a summary and a diff."""
    task = queue(small, "make @task.py:show shout")
    assert work_in_child(task, small, "nobody", 0)
    state = task.state()
    assert (state.status, state.text) == ("done", "Changed task.py."), state
    assert state.tokens > 0
    assert (Path(task.queued().workspace) / "task.py").read_text() == NEW
    assert (repository / "task.py").read_text() == TASK
    assert [file.path for file in read_changes(task).files] == ["task.py"]


def test_a_question_is_answered(small: Settings, queue: Queue) -> None:
    """The answer is the task's summary, and there is nothing to take over."""
    task = queue(small, "What does @task.py do?")
    assert work_in_child(task, small, "nobody", 0)
    state = task.state()
    assert (state.status, state.text) == ("done", "Hello there."), state
    assert state.tokens > 0
    assert read_changes(task).files == ()


@pytest.mark.parametrize(("victim", "at"), [("runner after", 3), ("runner before", 4), ("runner after", 4)])
def test_a_kill_makes_no_edit_twice(small: Settings, queue: Queue, victim: Victim, at: int) -> None:
    """An edit that was written is recognised; one that was not is made again."""
    task = queue(small, "make @task.py:show shout")
    assert not work_in_child(task, small, victim, at)
    assert task.state().status == "interrupted"
    assert work_in_child(task, small, "nobody", 0)
    steps = [line.step for line in task.lines()]
    ended = [step for step in steps if isinstance(step, TaskEnded)]
    assert [each.reason for each in ended] == ["completed"], ended
    assert any(isinstance(step, FilesWritten) for step in steps)
    assert any(isinstance(step, WritingBegan) for step in steps)
    assert (Path(task.queued().workspace) / "task.py").read_text() == NEW
