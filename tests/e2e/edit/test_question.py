"""The question at the end of `vivace edit` on a terminal: yes, no, an editor, hunk by hunk."""

import signal

from tests.e2e.conftest import NEW, TASK
from tests.e2e.terminal import Home, Terminal


def test_y_at_the_question_writes(task_home: Home) -> None:
    """On a terminal the diff grows in colour, y writes the file, exit code 0."""
    terminal = Terminal(task_home, "edit", "task.py", "shout")
    terminal.wait_for("Apply?")
    assert (task_home.work / "task.py").read_text() == TASK
    terminal.type("y\n")
    assert terminal.end() == 0
    assert "\x1b[32m+    print(task.title.upper())" in terminal.shown
    assert (task_home.work / "task.py").read_text() == NEW


def test_n_at_the_question_writes_nothing(task_home: Home) -> None:
    """n leaves the file as it is and says so."""
    terminal = Terminal(task_home, "edit", "task.py", "shout")
    terminal.wait_for("Apply?")
    terminal.type("what\nn\n")
    assert terminal.end() == 0
    assert "Nothing written" in terminal.shown
    assert (task_home.work / "task.py").read_text() == TASK


def test_e_opens_an_editor_and_asks_again(task_home: Home) -> None:
    """e hands the proposal to $EDITOR; what comes back is shown, asked about and written."""
    editor = task_home.folder / "editor.sh"
    editor.write_text("#!/bin/sh\nsed -i.bak 's/upper/lower/' \"$1\"\n")
    editor.chmod(0o755)
    task_home.extra["EDITOR"] = str(editor)
    terminal = Terminal(task_home, "edit", "task.py", "shout")
    terminal.wait_for("Apply?")
    terminal.type("e\n")
    terminal.wait_for("lower()")
    terminal.type("y\n")
    assert terminal.end() == 0
    assert (task_home.work / "task.py").read_text() == NEW.replace("upper", "lower")


def test_an_editor_that_restores_the_old_text_leaves_nothing_to_write(task_home: Home) -> None:
    """e, the old text again, then y: there is nothing to change, which is said, and exit code 0."""
    editor = task_home.folder / "editor.sh"
    editor.write_text("#!/bin/sh\nsed -i.bak 's/[.]upper()//' \"$1\"\n")
    editor.chmod(0o755)
    task_home.extra["EDITOR"] = str(editor)
    terminal = Terminal(task_home, "edit", "task.py", "shout")
    terminal.wait_for("Apply?")
    terminal.type("e\n")
    terminal.wait_for("nothing to change")
    terminal.type("y\n")
    assert terminal.end() == 0
    assert "Nothing written" in terminal.shown
    assert (task_home.work / "task.py").read_text() == TASK
    assert task_home.run("undo").code == 1, "there is nothing to take back either"


def test_h_at_the_question_takes_hunk_by_hunk(task_home: Home) -> None:
    """Each hunk is shown and asked about; what was not taken stays as it was."""
    middle = "".join(f"    step({number})\n" for number in range(8))
    old = f"def show(task):\n    first()\n{middle}    last()\n"
    (task_home.work / "task.py").write_text(old)
    new = old.replace("first", "primo").replace("last", "ultimo")
    task_home.script({"Task: shout": f"```python\n{new}```"})
    terminal = Terminal(task_home, "edit", "task.py:show", "shout")
    terminal.wait_for("[h]unk by hunk")
    terminal.type("h\n")
    terminal.wait_for("(1 of 2)")
    terminal.type("n\n")
    terminal.wait_for("(2 of 2)")
    terminal.type("y\n")
    assert terminal.end() == 0
    assert (task_home.work / "task.py").read_text() == old.replace("last", "ultimo")


def test_the_end_of_the_input_is_a_no(task_home: Home) -> None:
    """Ctrl-D instead of an answer writes nothing, says so on a line of its own, and is no traceback."""
    terminal = Terminal(task_home, "edit", "task.py", "shout")
    terminal.wait_for("Apply?")
    terminal.type("\x04")
    assert terminal.end() == 0
    assert "\nNothing written" in terminal.shown
    assert (task_home.work / "task.py").read_text() == TASK


def test_ctrl_c_at_the_question_ends_with_130(task_home: Home) -> None:
    """Ctrl-C instead of an answer: nothing written, exit code 130."""
    terminal = Terminal(task_home, "edit", "task.py", "shout")
    terminal.wait_for("Apply?")
    terminal.type("\x03")
    assert terminal.end() in (130, -signal.SIGINT)
    assert (task_home.work / "task.py").read_text() == TASK


def test_a_file_that_changed_meanwhile_is_asked_about(task_home: Home) -> None:
    """Both changes are shown; merged in an editor, the file has what the user made of them."""
    editor = task_home.folder / "editor.sh"
    editor.write_text("#!/bin/sh\nsed -i.bak -e '/^[<=>]\\{7\\}/d' -e '/log(/d' \"$1\"\n")
    editor.chmod(0o755)
    task_home.extra["EDITOR"] = str(editor)
    file = task_home.work / "task.py"
    terminal = Terminal(task_home, "edit", "task.py", "shout")
    terminal.wait_for("Apply?")
    file.write_text("import os\n" + TASK.replace("print(task.title)", "log(task.title)"))
    terminal.type("y\n")
    terminal.wait_for("[s]top: ")
    assert "+    log(task.title)" in terminal.shown
    terminal.type("e\n")
    assert terminal.end() == 0
    assert file.read_text() == "import os\n" + NEW


def test_an_editor_that_fails_asks_again(task_home: Home) -> None:
    """e with an editor that fails says why, and the question is there again with the same proposal."""
    task_home.extra["EDITOR"] = "false"
    terminal = Terminal(task_home, "edit", "task.py", "shout")
    terminal.wait_for("Apply?")
    terminal.type("e\n")
    terminal.wait_for("exit code 1")
    terminal.type("y\n")
    assert terminal.end() == 0
    assert (task_home.work / "task.py").read_text() == NEW
