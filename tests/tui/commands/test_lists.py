"""Commands that open a list or run a program: model, theme, queue, diff, doctor, export, a side question."""

import asyncio
import contextlib
import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.tui.commands.test_commands import ask
from tests.tui.conftest import Open
from tests.tui.screen import HANG_S
from vivace.tui import programs

OLD = "def show(task):\n    # one\n    print(task.title)\n"
NEW = OLD.replace("# one", "# two")
EDITS = {"You locate code": "`show`", "Task: change": f"```python\n{NEW}```", "": "Hello there."}


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def held_files() -> list[str]:
    """What this process has open."""
    held = []
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the folder itself was open for a moment
            held.append(str(each.readlink()))
    return held


async def test_the_list_of_models_is_filtered_and_left(open_screen: Open) -> None:
    """/model and Alt+P list the catalog with what each is for; letters filter it, Esc changes nothing."""
    async with open_screen() as screen:
        await screen.ready()
        before = screen.app.session.talk.model
        await screen.say("/model")
        await screen.sees("Model:", "qwen2.5-coder-1.5b", "smollm2-135m")
        await screen.type("smol")
        await screen.is_gone("qwen2.5-coder-1.5b")
        await screen.press("escape")
        await screen.is_gone("Model:")
        await screen.press("alt+p")
        await screen.sees("Model:")
        await screen.press("escape")
        assert screen.app.session.talk.model == before


async def test_a_large_download_is_asked_about(open_screen: Open) -> None:
    """A model of the hub that is not here is told with size, licence and speed; staying changes nothing."""
    async with open_screen(offline=True) as screen:
        await screen.ready()
        before = screen.app.session.talk.model
        await screen.say("/model gpt-oss:20b")
        await screen.sees("Download 12.1 GB", "licence Apache-2.0", "131,072 tokens")
        await screen.press("escape")
        await screen.is_gone("Download 12.1 GB")
        assert screen.app.session.settings.model == before
        await screen.say("/model gpt-oss-20b")
        await screen.sees("Download 12.1 GB")
        await screen.press("enter")
        await screen.sees("gpt-oss-20b is not on this machine, and offline is set")


async def test_a_model_that_is_not_there_is_said_and_the_old_one_comes_back(open_screen: Open) -> None:
    """A wrong name costs one error; the next /model with a right one answers again."""
    async with open_screen(offline=True) as screen:
        await ask(screen)
        right = screen.app.session.settings.model
        await screen.say("/model no-such-model")
        await screen.sees("no-such-model", "no server: the next message tries again")
        await screen.say(f"/model {right}")
        await screen.ready()
        await screen.say("what else?")
        await screen.until(lambda: len(screen.app.session.talk.turns) == 2, "a second turn")
        await screen.idle()
        assert screen.app.session.talk.turns[-1].status == "completed"


async def test_a_theme_is_chosen_from_the_list(open_screen: Open) -> None:
    """/theme lists the themes, and Enter takes the marked one at once."""
    async with open_screen() as screen:
        await screen.ready()
        await screen.say("/theme")
        await screen.sees("Theme:", "› dark", "light", "terminal")
        await screen.press("down", "enter")
        await screen.until(lambda: screen.app.theme == "light", "the theme")
        await screen.is_gone("Theme:")


async def test_a_queued_message_is_removed_from_the_list(open_screen: Open) -> None:
    """/queue lists what waits; Enter removes the marked one; without any it says how to queue."""
    async with open_screen(step_ms=5) as screen:
        await screen.ready()
        await screen.say("/queue")
        await screen.sees("Nothing waits.")
        await screen.say("why so long?")
        await screen.sees("1 bottles")
        for text in ("first", "second"):
            await screen.type(text)
            await screen.press("tab")
        await screen.say("/queue")
        await screen.sees("Queued:", "› first", "second")
        await screen.press("down", "enter")
        await screen.until(
            lambda: [each.text for each in screen.app.session.talk.queue.messages] == ["first"], "one left"
        )
        await screen.press("escape")
        await screen.idle()


async def test_diff_shows_the_last_changes(open_screen: Open, folder: Path) -> None:
    """/diff shows what was written, as a diff; before that it says that there is nothing."""
    (folder / "task.py").write_text(OLD)
    async with open_screen(EDITS, size=(80, 40)) as screen:
        await screen.ready()
        await screen.say("/diff")
        await screen.sees("Nothing was changed in this conversation.")
        await screen.say("change the comment of @task.py:show")
        await screen.decides()
        await screen.press("y")
        await screen.sees("written, not run")
        await screen.idle()
        await screen.say("/diff")
        await screen.sees("-    # one", "+    # two")


async def test_doctor_runs_and_shows_what_it_found(
    open_screen: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/doctor is a program of its own; its lines and its exit code come into the transcript."""
    monkeypatch.setenv("VIVACE_MODEL", "/no/such.gguf")  # found out before a server is started
    async with open_screen() as screen:
        await screen.ready()
        await screen.say("/doctor")
        await screen.sees("! vivace doctor", "There is no model file /no/such.gguf", "exit code 2")


async def test_a_shell_command_ends_with_the_face(open_screen: Open, folder: Path) -> None:
    """Whoever leaves while a command runs leaves no process behind."""
    async with open_screen() as screen:
        await screen.ready()
        await screen.say("!echo $$ > pid; sleep 1000; true")
        await screen.until(lambda: (folder / "pid").exists() and (folder / "pid").read_text(), "the command")
    pid = int((folder / "pid").read_text())
    await screen.until(lambda: not is_alive(pid), "its end")


async def test_a_shell_command_that_is_being_started_ends_with_what_it_has_started(
    open_screen: Open, folder: Path
) -> None:
    """It can run before we have heard of it: who leaves then leaves no process behind either."""
    async with open_screen() as screen:
        await screen.ready()
        command = "sleep 1000 & echo $! > .pid; mv .pid pid; wait"
        running = asyncio.create_task(programs.run_shell(screen.app.transcript, folder, command))
        while not (folder / "pid").exists():
            await asyncio.sleep(0)
            time.sleep(0.05)  # noqa: ASYNC251 - the loop is late, as on a busy machine
        running.cancel()
        await asyncio.sleep(0)
        running.cancel()  # and leaves again
        await screen.until(running.done, "its end")
    pid = int((folder / "pid").read_text())
    await screen.until(lambda: not is_alive(pid), "its end")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
async def test_what_a_shell_command_has_started_holds_nothing_of_ours(
    open_screen: Open, folder: Path
) -> None:
    """A program in a session of its own lives on with its output; the face has let go of that."""
    async with open_screen() as screen:
        await screen.ready()
        await screen.say(
            "!setsid sleep 1000 & echo $! > other; of=$(readlink /proc/$$/fd/1); echo $of > pipe; wait"
        )
        await screen.until(lambda: (folder / "pipe").exists() and (folder / "pipe").read_text(), "the pipe")
    pipe, other = ((folder / name).read_text().strip() for name in ("pipe", "other"))
    try:
        assert pipe.startswith("pipe:")
        await screen.until(lambda: pipe not in held_files(), "the end of its pipe")
    finally:
        os.kill(int(other), signal.SIGKILL)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
async def test_a_shell_command_that_is_ended_twice_lets_go_of_its_output(
    open_screen: Open, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who leaves while a program is being ended does not wait for it, and leaves nothing open."""
    monkeypatch.setattr(programs, "END_S", HANG_S)  # only the second end cuts the first one short
    command = (
        "trap 'echo > told' TERM; echo $$ > shell; readlink /proc/$$/fd/1; while true; do sleep 0.1; done"
    )
    async with open_screen() as screen:
        await screen.ready()
        running = asyncio.create_task(programs.run_shell(screen.app.transcript, folder, command))
        await screen.sees("pipe:[")  # printed by it and read by us: it is not being started any more
        shell = int((folder / "shell").read_text())
        try:
            pipe = re.findall(r"pipe:\[\d+\]", screen.text)[-1]
            assert pipe in held_files()
            running.cancel()
            await screen.until((folder / "told").exists, "the first end")
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            await screen.until(lambda: pipe not in held_files(), "the end of its pipe")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell, signal.SIGKILL)


async def test_export_names_its_file_by_the_conversation(open_screen: Open, folder: Path) -> None:
    """Without a name the file has the conversation's id, in the folder of the conversation."""
    async with open_screen() as screen:
        await ask(screen)
        await screen.say("/export")
        await screen.sees("Wrote ")
        file = folder / f"vivace-{screen.app.session.talk.id}.md"
        assert "what now?" in file.read_text()


async def test_a_side_question_needs_words(open_screen: Open) -> None:
    """/btw alone says how it is used; with words it is answered while the conversation stays as it is."""
    async with open_screen() as screen:
        await ask(screen)
        await screen.say("/btw")
        await screen.sees("/btw QUESTION")
        before = screen.app.session.talk.turns[-1].response_id
        await screen.say("/btw which snippet?")
        await screen.sees("return 1")
        assert screen.app.session.talk.turns[-1].response_id == before
