"""A message to a model that can call tools: its steps on the screen, its questions, steered and stopped."""

from pathlib import Path

import pytest

from tests.agent.loop.working import call, calls
from tests.sandboxes import needs_sandbox
from tests.tui.conftest import EDIT, Open, read

PLAN = call("update_plan", plan=[{"step": "look", "status": "in_progress"}])


async def test_steps_are_shown_and_can_be_undone(open_screen: Open, file: Path) -> None:
    """Plan, calls with what came of them, the diff and the last words; /undo takes the change back."""
    steps = [calls("I look.", PLAN, call("read", path="a.py")), EDIT, "Now x is two."]
    async with open_screen(size=(80, 40), steps=steps) as screen:
        await screen.ready()
        await screen.say("make x two")
        await screen.sees("› make x two", "I look.", "[>] look", "· read a.py", "+x = 2", "Now x is two.")
        await screen.idle()
        assert "update_plan" not in screen.text
        assert screen.app.status.context_tokens > 0
        assert read(file) == "x = 2\n"
        await screen.say("/undo")
        await screen.sees("Took back the change to a.py")
        assert read(file) == "x = 1\n"


async def test_the_next_message_goes_on_from_the_last(open_screen: Open) -> None:
    """The model has the whole log: a scripted one says its next step, not its first one again."""
    async with open_screen(steps=["First.", "Second."]) as screen:
        await screen.ready()
        await screen.say("one")
        await screen.sees("First.")
        await screen.idle()
        await screen.say("two")
        await screen.sees("Second.")
        assert [turn.kind for turn in screen.app.session.talk.turns] == ["task", "task"]


async def test_a_call_asks_and_y_n_and_a_answer(open_screen: Open, file: Path) -> None:
    """In the mode ask every change waits for a key; no is told to the model, always counts for the same."""
    back = call("edit", path="a.py", old_text="x = 2", new_text="x = 1")
    async with open_screen(size=(80, 40), steps=[EDIT, EDIT, back, "Done."]) as screen:
        await screen.ready()
        await screen.press("shift+tab")
        await screen.say("make x two")
        await screen.sees("? edit a.py", "y let it run · a always · n do not")
        await screen.decides()
        await screen.press("n")
        await screen.sees("not allowed", "· edit a.py  refused:")
        assert read(file) == "x = 1\n"
        await screen.until(lambda: screen.app.question is not None, "the second question")
        await screen.decides()
        await screen.press("a")
        await screen.sees("Done.")
        await screen.idle()
        assert read(file) == "x = 1\n", "the third call did not ask again"
        assert screen.text.count("? edit a.py") == 2


async def test_what_leaves_the_folder_is_never_allowed_for_good(open_screen: Open, file: Path) -> None:
    """The question has no always, and its key does nothing more than yes once."""
    out = call("edit", path="../b.py", old_text="", new_text="y = 1\n")
    again = call("edit", path="../b.py", old_text="y = 1", new_text="y = 2")
    async with open_screen(size=(80, 40), steps=[out, again, "Done."]) as screen:
        await screen.ready()
        await screen.say("write outside")
        await screen.sees("outside of the workspace", "y let it run · n do not")
        await screen.decides()
        await screen.press("a")
        await screen.until(lambda: file.parent.parent.joinpath("b.py").exists(), "the file")
        await screen.until(lambda: screen.app.question is not None, "the second question")
        await screen.decides()
        await screen.press("n")
        await screen.sees("Done.")


@needs_sandbox
async def test_escape_stops_the_task_and_its_command(open_screen: Open, file: Path) -> None:
    """What was done is kept, and the conversation goes on."""
    steps = [call("shell", command="touch began; sleep 600; touch survived"), "I go on."]
    async with open_screen(size=(80, 40), steps=steps) as screen:
        await screen.ready()
        await screen.say("wait")
        await screen.until(lambda: file.with_name("began").exists(), "the command")
        await screen.press("escape")
        await screen.sees("Stopped. What is there is kept.")
        await screen.idle()
        await screen.say("go on")
        await screen.idle()
        assert not file.with_name("survived").exists()


async def test_what_was_stopped_is_known_to_the_next_message(open_screen: Open) -> None:
    """The model is told the half answer: a scripted one goes on with its next step."""
    steps = ["First.", "w" * 400, "Then this."]
    async with open_screen(size=(80, 40), steps=steps, step_ms=10) as screen:
        await screen.ready()
        await screen.say("one")
        await screen.sees("First.")
        await screen.idle()
        await screen.say("write")
        await screen.sees("wwww")
        await screen.press("escape")
        await screen.sees("Stopped.")
        await screen.idle()
        await screen.say("go on")
        await screen.sees("Then this.")


async def test_enter_steers_the_task(open_screen: Open) -> None:
    """What is said while the model works reaches it, and is shown."""
    async with open_screen(size=(80, 40), steps=["w" * 400, "Turned."], step_ms=10) as screen:
        await screen.ready()
        await screen.say("write")
        await screen.sees("wwww")
        await screen.say("stop that")
        await screen.sees("↪ stop that", "Turned.")
        await screen.idle()
        assert len(screen.app.session.talk.turns) == 1


@pytest.mark.usefixtures("file")
async def test_a_task_is_shown_again_when_it_is_resumed(open_screen: Open) -> None:
    """The transcript has its calls, its diff and its words."""
    async with open_screen(steps=[call("read", path="a.py"), EDIT, "Now x is two."]) as screen:
        await screen.ready()
        await screen.say("make x two")
        await screen.sees("Now x is two.")
        await screen.idle()
        conversation = screen.app.session.talk.id
    async with open_screen(size=(80, 40), resume=conversation) as screen:
        await screen.sees("› make x two", "read a.py (1 lines)", "+x = 2", "Now x is two.")
