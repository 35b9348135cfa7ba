"""Small, plain, slow and broken surroundings: clear words, and nothing is lost."""

import io
import os
import resource
import signal
import threading
from functools import partial
from pathlib import Path

import pytest
from textual import events
from textual.drivers._writer_thread import WriterThread
from textual.geometry import Size

from tests.tui.conftest import REPLIES, Open
from tests.tui.screen import Screen
from vivace.agent.conversation.transcript.reading import read_history
from vivace.client import warm
from vivace.config import Settings
from vivace.tui.transcript.view import BEHIND


def is_of_size(screen: Screen, size: Size) -> bool:
    return screen.app.size == size


async def test_twenty_by_five_cells(open_screen: Open) -> None:
    """On the smallest screen there is still an answer, a prompt and a word about what goes on."""
    async with open_screen(size=(20, 5)) as screen:
        await screen.ready()
        await screen.say("what now?")
        await screen.idle()
        await screen.sees("›", "ready")
        await screen.press("pageup")
        await screen.until(lambda: not screen.app.transcript.is_following, "scrolling")
        assert all(len(row) <= 20 for row in screen.rows)
        assert len(screen.rows) == 5


async def test_resized_while_streaming(open_screen: Open) -> None:
    """The answer is wrapped anew at each size, and goes on."""
    async with open_screen(step_ms=5) as screen:
        await screen.ready()
        await screen.say("why so long?")
        await screen.sees("3 bottles")
        for size in (Size(40, 10), Size(20, 5), Size(120, 40)):
            screen.app._driver.send_message(events.Resize(size, size))
            await screen.until(partial(is_of_size, screen, size), "the size")
            await screen.until(lambda: any("bottles" in row for row in screen.rows), "the answer")
        await screen.sees("0 bottles", "4 bottles")
        await screen.press("escape")
        await screen.idle()


class StuckTerminal(io.StringIO):
    """A terminal that takes nothing until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.is_let_go = threading.Event()

    def write(self, text: str) -> int:
        self.is_let_go.wait()
        return super().write(text)


async def test_a_slow_terminal_gets_no_more_frames_than_it_takes(open_screen: Open) -> None:
    """What it has not taken is not drawn over; when it has, the screen is as if it had never been slow."""
    async with open_screen() as screen:
        await screen.ready()
        await screen.sees("ready")
        terminal = StuckTerminal()
        writer = WriterThread(terminal)
        screen.app._driver._writer_thread = writer  # as the real driver has it
        writer.start()
        for _ in range(BEHIND + 2):  # one is being written
            writer.write("frame")
        await screen.until(lambda: writer._queue.qsize() == BEHIND + 1, "a queue")
        frames, transcript = screen.app.transcript.frames, screen.app.transcript
        await screen.say("why so long?")
        await screen.until(
            lambda: any("59 bottles" in str(each.rows(80)) for each in transcript.blocks), "an end"
        )
        assert transcript.frames == frames
        terminal.is_let_go.set()
        await screen.sees("59 bottles")
        assert transcript.frames > frames
        writer.stop()


async def test_without_utf8_all_is_ascii(open_screen: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a plain locale no row has a character beyond ASCII, whatever the model says."""
    monkeypatch.setenv("LC_ALL", "C")
    async with open_screen({"": "• größer → 日本"}) as screen:
        await screen.ready()
        await screen.say("what now?")
        await screen.sees("> what now?", "* gr??er > ??")
        await screen.idle()
        assert screen.text.isascii()


async def test_no_color_is_obeyed(open_screen: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """With NO_COLOR nothing but greys is drawn, and the words are the same."""
    monkeypatch.setenv("NO_COLOR", "1")
    async with open_screen() as screen:
        assert screen.app.no_color
        await screen.ready()
        await screen.say("what now?")
        await screen.sees("Hello there.")


async def test_pasted_megabytes_are_folded_and_sent_whole(open_screen: Open) -> None:
    """A large paste is one placeholder in the prompt, and the model gets all of it."""
    pasted = "line of a log\n" * 300 + "the needle\n"
    async with open_screen({"the needle": "Found it.", "": "Hello there."}) as screen:
        await screen.ready()
        await screen.type("what is ")
        screen.app.post_message(events.Paste(pasted))
        await screen.sees("[pasted #1: 302 lines")
        assert len(screen.app.editor.text) < 80
        screen.app.editor.pastes.fold("x" * 3_000_000)  # folded at once
        await screen.press("enter")
        await screen.sees("Found it.")
        assert screen.app.session.talk.turns[-1].text == f"what is {pasted}".strip()


async def test_a_server_that_dies_is_replaced_and_the_question_asked_again(
    open_screen: Open, settings: Settings
) -> None:
    """When the server is killed in the middle, the screen says so, and the answer comes from another one."""
    mine = {"state_dir": settings.state_dir, "cache_dir": settings.cache_dir}
    async with open_screen(REPLIES, step_ms=5, **mine) as screen:
        await screen.ready()
        await screen.say("why so long?")
        await screen.sees("3 bottles")
        found = warm.find_server(settings)
        assert found is not None
        os.kill(found[0].pid, signal.SIGKILL)
        await screen.sees("The server went away")
        await screen.sees("4 bottles")
        await screen.press("escape")
        await screen.idle()
        assert len(screen.app.session.talk.turns) == 1
    warm.stop_server(settings)


async def test_a_model_that_cannot_be_had_leaves_the_message_in_the_queue(
    open_screen: Open, settings: Settings
) -> None:
    """Without a model the screen says why, typing goes on, and messages wait."""
    mine = {"state_dir": settings.state_dir, "cache_dir": settings.cache_dir}
    async with open_screen(**mine, offline=True, no_model=True) as screen:
        await screen.say("what now?")
        await screen.sees("no server: the next message tries again", "⏎ what now?")
        await screen.type("still typing")
        assert screen.app.editor.text == "still typing"


async def test_a_file_that_is_deleted_under_an_edit(open_screen: Open, folder: Path) -> None:
    """The file goes while the change waits: it is asked about, and brought back only if the user says so."""
    old = "def show(task):\n    # one\n    print(task.title)\n"
    new = old.replace("# one", "# two")
    (folder / "task.py").write_text(old)
    replies = {"You locate code": "`show`", "Task: change": f"```python\n{new}```", "": "Hello there."}
    async with open_screen(replies, size=(100, 40)) as screen:
        await screen.ready()
        await screen.say("change the comment in @task.py:show")
        await screen.decides()
        (folder / "task.py").unlink()
        await screen.press("y")
        await screen.sees("task.py", "f leave the file")
        assert not (folder / "task.py").exists()
        await screen.press("f")
        await screen.idle()
        assert not (folder / "task.py").exists()
        await screen.say("what now?")
        await screen.sees("Hello there.")


async def test_a_full_disk_ends_the_turn_in_words(open_screen: Open) -> None:
    """When the transcript cannot be written, the screen says so and nothing that was shown is lost."""
    async with open_screen(step_ms=5) as screen:
        await screen.ready()
        await screen.say("why so long?")
        await screen.sees("3 bottles")
        (file,) = (screen.app.session.settings.state_dir / "conversations").glob(
            f"{screen.app.session.talk.id}.jsonl"
        )
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size, limits[1]))
        try:
            await screen.sees("could not be written", "What was shown before is kept.")
            await screen.idle()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert "3 bottles" in read_history(file).turns[-1].attempts[-1].text
        await screen.say("which snippet?")
        await screen.sees("return 1")


async def test_a_paste_of_megabytes_keeps_the_prompt_quick(open_screen: Open) -> None:
    """Three megabytes in one paste are one placeholder, and typing goes on behind it."""
    async with open_screen() as screen:
        await screen.ready()
        screen.app.post_message(events.Paste("x = 1\n" * 500_000))
        await screen.sees("[pasted #1: 500001 lines, 3.0 MB]")
        await screen.type(" why?")
        assert screen.app.editor.text.endswith("] why?")
        assert len(screen.app.editor.whole_text) > 3_000_000
