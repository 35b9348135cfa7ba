"""The extension in a real VS Code: what a person types, and what they see. The model is scripted."""

import os
import re
import signal
from collections.abc import Iterator

import pytest

from tests.e2e.terminal import Home, kill_hard
from tests.editors.window import Window, opened

pytestmark = pytest.mark.thorough  # a VS Code of its own: 770 MB, and most of a minute to start
REPORT = """\
def report(items):
    total = 0
    for item in items:
        total += item
    count = len(items)
    print(total, count)


VERSION = 1
"""
BOTH = REPORT.replace("total = 0", "total = 0.0").replace("(total, count)", '("sum", total, "of", count)')
FIRST = REPORT.replace("total = 0", "total = 0.0")
SHORT = REPORT.replace(REPORT.partition("\n\n\n")[0], "def report(items):\n    print(sum(items))")
MANY = "\n".join(f"    a({number})" for number in range(45))
LONG = "\n".join(f"    print('line {number} of many', {number * 7})" for number in range(60))


def fenced(text: str) -> str:
    """Return a file's first function as the model answers it."""
    return f"```python\n{text.partition(chr(10) * 3)[0]}\n```"


REPLIES = {
    "area(w, h)": "w * h",
    "What is a tuple?": "It is fixed.",
    "slow_one": "1",
    "rather short": fenced(SHORT),
    "in vain": fenced("def report(items):\n    x = ("),
    "in many lines": f"```python\ndef report(items):\n{MANY}\n```",
    "with stars": f"```python\ndef report(items):\n{LONG.replace('line', 'star')}\n```",
    "at length": f"```python\ndef report(items):\n{LONG}\n```",
    "Task: floats": fenced(BOTH),
    "You locate code": "`report`",
}
PACE = {"step_ms": 8, "linger_after": 500, "linger_ms": 250}  # LONG does not end as long as a test lasts


def _plain(text: str) -> str:
    return text.replace("\xa0", " ")


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    home = Home(tmp_path_factory.mktemp("home"))
    home.script(REPLIES, **PACE)
    try:
        with opened(home) as window:
            window.wait(lambda: "warm" in window.status, "the server is warm")
            yield window
    finally:
        home.stop()


def test_a_completion_is_taken_with_tab(window: Window) -> None:
    """Ghost text comes from the engine while one types, and Tab makes it text; it is not asked for twice."""
    window.open("area.py", "x = 1\n")
    window.go_to(2)
    window.type("def area(w, h): return ")
    window.wait(lambda: "w * h" in window.ghost, "ghost text")
    window.press("Tab")
    window.wait_for_text("x = 1\ndef area(w, h): return w * h")
    assert not window.ghost
    assert "tok/s" in window.status


def test_completions_can_be_turned_off(window: Window) -> None:
    """The command turns them off and on again, and the status bar says so."""
    window.open("off.py", "")
    window.command("Vivace: Turn Completions On or Off")
    window.wait(lambda: "completions off" in window.status, "off in the status bar")
    window.focus()
    window.type("def area(w, h): return ")
    window.page.wait_for_timeout(500)
    assert not window.ghost
    window.command("Vivace: Turn Completions On or Off")
    window.wait(lambda: "completions off" not in window.status, "on again")


def test_one_hunk_is_kept_and_another_undone(window: Window) -> None:
    """The edit is in the buffer and not on disk; each hunk is decided alone."""
    file = window.open("hunks.py", REPORT)
    window.go_to(3)
    window.edit("floats")
    window.wait_for_text(BOTH)
    window.wait(lambda: len(window.lenses) == 7, "Keep and Undo above both hunks")
    assert file.read_text() == REPORT
    window.click_lens("Undo$", 1)
    window.wait_for_text(FIRST)
    window.click_lens("Keep \\(")
    window.wait(lambda: not window.lenses, "everything is decided")
    assert window.is_dirty
    window.save()
    assert file.read_text() == FIRST


def test_one_undo_takes_the_whole_edit_back(window: Window) -> None:
    """Ctrl+Z once, and the text is as before; nothing is left to decide."""
    window.open("undo.py", REPORT)
    window.go_to(3)
    window.edit("floats")
    window.wait_for_text(BOTH)
    window.wait(lambda: window.lenses, "it can be decided")
    window.focus()
    window.press("Control+Z")
    window.wait_for_text(REPORT)
    window.wait(lambda: not window.lenses, "nothing to decide")


def test_escape_stops_and_leaves_the_file_as_it_was(window: Window) -> None:
    """What was written so far is taken back."""
    window.open("stop.py", REPORT)
    window.go_to(3)
    window.edit("at length")
    window.wait(lambda: "line 1 of many" in window.text, "the edit grows in the editor")
    window.focus()
    window.press("Escape")
    window.wait_for_text(REPORT)
    window.wait(lambda: "writing" not in window.status, "it has stopped")


def test_a_second_instruction_steers(window: Window) -> None:
    """The running edit turns around, and only its new text is there in the end."""
    window.open("steer.py", REPORT)
    window.go_to(3)
    window.edit("at length")
    window.wait(lambda: "line 1 of many" in window.text, "the edit grows in the editor")
    window.edit("rather short")
    window.wait_for_text(SHORT)
    window.wait(lambda: window.lenses, "it can be decided")


def test_an_edit_is_steered_twice(window: Window) -> None:
    """Each instruction turns it around, and only the last one's text is there in the end."""
    window.open("twice.py", REPORT)
    window.go_to(3)
    window.edit("at length")
    window.wait(lambda: "line 1 of many" in window.text, "the edit grows in the editor")
    window.edit("with stars")
    window.wait(lambda: "star 1 of many" in window.text, "it has turned around")
    window.edit("rather short")
    window.wait_for_text(SHORT)
    window.wait(lambda: window.lenses, "it can be decided")
    window.command("Vivace: Undo All Changes")
    window.wait_for_text(REPORT)


def test_an_instruction_that_comes_too_late_begins_anew(window: Window) -> None:
    """The edit failed while one typed: the words go to the same function, wherever the cursor is now."""
    window.open("late.py", REPORT)
    window.go_to(3)
    engine = window.home.status()["engine"]["pid"]
    os.kill(engine, signal.SIGSTOP)
    try:
        window.edit("in vain")
        window.wait(lambda: "writing" in window.status, "it has begun")
        window.go_to(9)
        window.press("Control+I")
        box = window.page.locator(".quick-input-widget", has_text="turns the running edit around")
        box.wait_for()
    finally:
        os.kill(engine, signal.SIGCONT)
    window.wait(lambda: "writing" not in window.status, "it has failed")
    box.locator("input").fill("rather short")
    window.press("Enter")
    window.wait_for_text(SHORT)
    window.wait(lambda: window.lenses, "it can be decided")


def test_a_large_edit_is_compared(window: Window) -> None:
    """A comparison with the file as it was opens beside the editor."""
    file = window.open("large.py", REPORT)
    window.go_to(3)
    window.edit("in many lines")
    diff = window.page.locator(".monaco-diff-editor")
    diff.wait_for()
    original, modified = (
        diff.locator(f".editor.{side} .view-lines[data-mprt]") for side in ("original", "modified")
    )
    window.wait(lambda: "count = len" in _plain(original.inner_text()), "the file as it was")
    window.wait(lambda: "a(7)" in _plain(modified.inner_text()), "the file as it is now")
    window.command("Vivace: Undo All Changes")
    window.wait(lambda: not window.lenses, "nothing to decide")
    window.close_editors()
    assert file.read_text() == REPORT


def test_a_comparison_is_opened_by_its_lens(window: Window) -> None:
    """Of a small edit, too."""
    window.open("compared.py", REPORT)
    window.go_to(3)
    window.edit("floats")
    window.wait_for_text(BOTH)
    window.click_lens("Compare")
    diff = window.page.locator(".monaco-diff-editor")
    diff.wait_for()
    window.wait(
        lambda: "total = 0.0" in _plain(diff.locator(".editor.modified .view-lines[data-mprt]").inner_text()),
        "both texts",
    )
    assert "total = 0.0" not in _plain(diff.locator(".editor.original .view-lines[data-mprt]").inner_text())
    window.close_editors()


def test_an_edit_goes_into_another_file(window: Window) -> None:
    """A function that moves is in the other file, new or open, and gone from this one; it is said."""
    there = window.open("there.py", "KNOWN = 1\n")
    for target in (there.name, "new_place.py"):
        name = f"from_{target}"
        window.open(name, f"{REPORT}\n\ndef main():\n    report([1])\n")
        window.go_to(13)
        window.edit(f"move report to {target}")
        window.wait(lambda: "def report" not in window.text and "import report" in window.text, "it has left")
        window.wait(lambda target=target: target in window.messages, "it is said")  # type: ignore[misc]
    window.wait(lambda: "def report" in (window.home.work / "new_place.py").read_text(), "the new file")
    window.close_editors()
    assert "KNOWN = 1" in there.read_text()
    assert "def report(items):" in there.read_text()


def test_two_windows_on_one_folder(window: Window) -> None:
    """Each has its own edit at the same time; what is saved in one is seen in the other."""
    with window.another() as other:
        file = window.open("mine.py", REPORT)
        other.open("yours.py", REPORT)
        window.go_to(3)
        other.go_to(3)
        window.edit("at length")
        other.edit("floats")
        other.wait_for_text(BOTH)
        window.wait(lambda: "line 1 of many" in window.text, "the other edit goes on")
        window.edit("rather short")
        window.wait_for_text(SHORT)
        window.wait(lambda: window.lenses, "it can be decided here")
        other.wait(lambda: other.lenses, "and there")
        window.command("Vivace: Keep All Changes")
        window.save()
        assert len(other.lenses) == 7
        other.command("Vivace: Keep All Changes")
        other.save()
        other.ask_quickly("Control+P", str(file), "mine.py")
        other.wait_for_text(SHORT)


def test_what_is_typed_beside_the_edit_stays(window: Window) -> None:
    """Both are there in the end, and undoing all changes leaves what was typed."""
    window.open("beside.py", REPORT)
    window.go_to(3)
    window.edit("at length")
    window.wait(lambda: "line 1 of many" in window.text, "the edit grows in the editor")
    window.press("Control+End")
    window.type("LAST = 2", delay_ms=5)
    window.edit("rather short")
    window.wait_for_text(f"{SHORT}LAST = 2")
    window.wait(lambda: window.lenses, "it can be decided")
    window.command("Vivace: Undo All Changes")
    window.wait_for_text(f"{REPORT}LAST = 2")


def test_what_is_typed_inside_of_the_edit_stays(window: Window) -> None:
    """The edit stops where the user types, says so, and never overwrites it."""
    window.open("inside.py", REPORT)
    window.go_to(1, 19)
    window.edit("at length")
    window.wait(lambda: "line 1 of many" in window.text, "the edit grows in the editor")
    window.go_to(2, 1)
    window.type("# mine", delay_ms=0)
    window.wait(lambda: "Your text stays" in window.messages, "it is said")
    assert "# mine" in window.text


def test_the_side_view_talks(window: Window) -> None:
    """The browser app in the side view works through the extension, for the folder that is open."""
    window.command("View: Show Vivace")
    view = window.page.frame_locator("iframe.webview.ready").frame_locator("#active-frame")
    box = view.locator("textarea").first
    box.wait_for()
    view.get_by_text(str(window.home.work)).first.wait_for()
    box.fill("What is a tuple?")
    box.press("Enter")
    view.get_by_text("It is fixed.").first.wait_for()
    copy = view.get_by_role("button", name="Copy the answer as Markdown")
    copy.click()
    window.wait(lambda: copy.inner_text() == "copied", "it is copied, and says so")
    window.command("View: Show Explorer")


def test_a_server_that_is_killed_under_a_completion(window: Window) -> None:
    """What is typed stays, nothing is suggested, and the next completion comes from another server."""
    window.open("under.py", "x = 1\n")
    window.go_to(2)
    status = window.home.status()
    pid, engine = status["pid"], status["engine"]["pid"]
    os.kill(engine, signal.SIGSTOP)  # so that the completion is under way as long as the test needs
    try:
        window.type("slow_one = ")
        window.wait(lambda: window.home.status()["answers"], "the completion is being made")
        kill_hard(pid)
    finally:
        os.kill(engine, signal.SIGCONT)
    window.wait(lambda: "has ended" in window.messages, "it is said")
    window.wait_for_text("x = 1\nslow_one = ")
    assert not window.ghost
    window.command("Notifications: Clear All Notifications")
    window.command("Vivace: Start the Server")
    window.wait(lambda: "warm" in window.status, "another server is warm")
    window.focus()
    window.type("0\ndef area(w, h): return ")
    window.wait(lambda: "w * h" in window.ghost, "ghost text")
    assert window.home.status()["pid"] != pid


def test_a_server_that_is_killed_is_started_again(window: Window) -> None:
    """It is said once, and the next command starts another one."""
    window.open("killed.py", REPORT)
    pid = window.home.status()["pid"]
    kill_hard(pid)
    window.go_to(3)
    window.type(" ")
    window.wait(lambda: "has ended" in window.messages, "it is said")
    assert len(re.findall("has ended", window.messages)) == 1
    window.press("Control+Z")
    window.edit("floats")
    window.wait_for_text(BOTH)
    assert window.home.status()["pid"] != pid


def test_it_is_said_how_far_a_model_is_loaded(window: Window) -> None:
    """An edit that waits for its model shows how far that is, and stands when the model is there."""
    window.open("loading.py", REPORT)
    window.go_to(3)
    window.home.stop()
    weights = window.home.folder / "weights"
    weights.touch()
    os.truncate(weights, 12_000_000_000)  # a hole: nothing is on the disk
    window.home.script(REPLIES, load_file=str(weights), load_bytes=20_000_000_000, **PACE)
    window.edit("floats")
    window.wait(lambda: "loading script.json: 12 of 20 GB" in window.messages, "how far it is")
    assert "waiting (Esc stops)" in window.status
    os.truncate(weights, 20_000_000_000)
    window.wait_for_text(BOTH)
    window.wait(lambda: "loading" not in window.messages, "it is no longer said")
