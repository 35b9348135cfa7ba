"""Background tasks from the terminal: begun, announced, answered, taken over by hunk."""

from pathlib import Path

import pytest

from tests.agent.loop.working import call
from tests.sandboxes import needs_sandbox
from tests.tui.conftest import EDIT, Open, read
from tests.tui.screen import Screen
from vivace.agent.conversation.message.intent import background_part
from vivace.agent.tasks.store import TaskFolder, list_tasks
from vivace.agent.trust.project import read_project
from vivace.agent.trust.store import TrustStore
from vivace.config import Settings


def only_task(screen: Screen) -> TaskFolder:
    """Return the task of this test's folder: the server's state is shared."""
    here = str(screen.app.folder.resolve())
    found = list_tasks(screen.app.settings)
    (task,) = (task for task, state in found if state.queued and state.queued.folder == here)
    return task


async def test_a_task_is_begun_announced_and_taken_over(open_screen: Open, file: Path) -> None:
    """The folder stays as it is until the diff is taken, which /undo takes back."""
    async with open_screen(size=(100, 40), steps=[EDIT, "Now x is two."]) as screen:
        await screen.ready()
        await screen.say("/background make x two")
        await screen.sees("# (In the background, as task")
        await screen.sees("is done: Now x is two.", "take")
        assert read(file) == "x = 1\n"
        name = only_task(screen).id.rpartition("-")[2]
        await screen.say(f"/tasks {name} take")
        await screen.sees("› Take over the task: make x two", "+ x = 2")
        await screen.decides()
        await screen.press("y")
        await screen.sees("written")
        await screen.idle()
        assert read(file) == "x = 2\n"
        await screen.say("/undo")
        await screen.sees("Took back the change to a.py")
        assert read(file) == "x = 1\n"


@pytest.mark.usefixtures("file")
async def test_ctrl_b_moves_the_running_turn_with_its_context(open_screen: Open) -> None:
    """The turn is stopped, and a task that knows what was said does it to its end."""
    async with open_screen(size=(100, 40), steps=["w" * 4000, "I did the rest."], step_ms=10) as screen:
        await screen.ready()
        await screen.say("write a lot")
        await screen.sees("wwww")
        await screen.press("ctrl+b")
        await screen.sees("Stopped.", "# (In the background, as task", "is done: I did the rest.")
        queued = only_task(screen).queued()
        assert queued.task == "write a lot"
        assert [item["role"] for item in queued.context] == ["user", "assistant"]
        assert queued.context[1]["content"].startswith("www")
        await screen.until(lambda: screen.app.status.tasks == 0, "no task in the status line")


async def test_a_task_that_asks_is_answered_from_the_list(open_screen: Open, file: Path) -> None:
    """The question is announced; the list of tasks leads to yes."""
    outside = call("edit", path="../b.py", old_text="", new_text="y = 1\n")
    async with open_screen(size=(100, 40), steps=[outside, "Done."]) as screen:
        await screen.ready()
        await screen.type("write outside")
        await screen.press("ctrl+b")
        await screen.sees("asks: edit ../b.py", "1 task")
        await screen.say("/tasks")
        await screen.sees("Tasks:", "write outside", "waiting")
        await screen.press("enter")
        await screen.sees("Task:", "outside of the workspace", "let its call run")
        await screen.press("enter")
        await screen.sees("is done: Done.")
        assert not file.parent.parent.joinpath("b.py").exists(), "it wrote beside its own copy"


@pytest.mark.usefixtures("file")
async def test_a_running_task_is_watched_and_stopped(open_screen: Open) -> None:
    """Its state grows on the screen; stopped, it can be resumed."""
    async with open_screen(size=(100, 40), steps=["w" * 4000] * 2, step_ms=20) as screen:
        await screen.ready()
        await screen.say("/background write a lot")
        await screen.sees("1 task")
        name = only_task(screen).id.rpartition("-")[2]
        await screen.say(f"/tasks {name} watch")
        await screen.sees("state    running")
        await screen.say(f"/tasks {name}")
        await screen.sees("Task:", "tell it something")
        await screen.press("down", "enter")
        await screen.until(lambda: screen.app.editor.text == f"/tasks {name} steer ", "what to say")
        await screen.say("be brief")
        await screen.sees("↪ be brief")
        await screen.say(f"/tasks {name} stop")
        await screen.sees("was stopped", f"/tasks {name} resume", "state    stopped")


async def test_the_words_of_a_message_begin_a_task(open_screen: Open) -> None:
    """ "Do the rest in the background" is no message to the model of the conversation."""
    async with open_screen(size=(100, 40), steps=["Hello.", "I did the rest."]) as screen:
        await screen.ready()
        await screen.say("hi")
        await screen.sees("Hello.")
        await screen.idle()
        await screen.say("please do the rest in the background")
        await screen.sees("is done: I did the rest.")
        assert only_task(screen).queued().task == "do the rest"
        assert len(screen.app.session.talk.turns) == 1


WORKFLOW = """description = "writes a file"
[inputs.name]
description = "of the file"
[[steps]]
run = "echo made > {name}"
[[steps]]
run = "cat {name}"
"""


@needs_sandbox
async def test_a_workflow_is_chosen_run_and_watched(
    open_screen: Open, folder: Path, served: Settings
) -> None:
    """The list leads to the inputs; steps are shown as they come; one that is not trusted is not run."""
    recipes = folder / ".vivace" / "workflows"
    recipes.mkdir(parents=True)
    (recipes / "make.toml").write_text(WORKFLOW)
    async with open_screen(size=(100, 40)) as screen:
        await screen.ready()
        await screen.say("/workflow make name=a.txt")
        await screen.sees("and is not used")
        TrustStore(served.state_dir).trust(read_project(folder))
        await screen.say("/workflow")
        await screen.sees("Workflows:", "make", "project: writes a file", "changelog")
        await screen.type("make")
        await screen.press("enter")
        await screen.until(lambda: screen.app.editor.text == "/workflow make name=", "the input")
        await screen.type("a.txt")
        await screen.press("enter")
        await screen.sees(
            "task     workflow make name=a.txt", "· 1 run: echo made", "· 2 run: cat a.txt", "state    done"
        )
        assert (Path(only_task(screen).queued().workspace) / "a.txt").read_text() == "made\n"
        assert not (folder / "a.txt").exists()


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("do the rest in the background", "do the rest"),
        ("Please add tests to @a.py, in the background.", "add tests to @a.py"),
        ("what runs in the background?", ""),
        ("make the colour in the background darker", ""),
        ("in the background", ""),
    ],
)
def test_only_an_instruction_that_ends_so_is_meant(text: str, part: str) -> None:
    """Questions, and other backgrounds, are messages."""
    assert background_part(text) == part
