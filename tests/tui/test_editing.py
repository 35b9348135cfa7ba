"""An edit at the prompt: the growing diff, the decision with keys, undo, redo, rewind."""

from pathlib import Path

import pytest

from tests.tui.conftest import Open
from vivace.tui import controls
from vivace.tui.transcript.diff import EditBlock

LINES = "".join(f"    x{number} = {number}\n" for number in range(9))
OLD = f"def show(task):\n    # one\n{LINES}    print(task.title)\n\n\ndef other():\n    return 2\n"
NEW = f"def show(task):\n    # two\n{LINES}    print(task.title.upper())\n"
REPLIES = {"You locate code": "`show`", "Task: change": f"```python\n{NEW}```", "": "Hello there."}
ASK = "change @task.py:show"


def read(file: Path) -> str:
    return file.read_text()


def write(file: Path, text: str) -> None:
    file.write_text(text)


@pytest.fixture
def file(folder: Path) -> Path:
    file = folder / "task.py"
    file.write_text(OLD)
    return file


async def test_y_takes_the_whole_change(open_screen: Open, file: Path) -> None:
    """The change is shown as a diff with line numbers; y writes it, and nothing was run."""
    async with open_screen(REPLIES) as screen:
        await screen.ready()
        await screen.say(ASK)
        await screen.decides()
        await screen.sees("y take it", "h by hunk")
        assert "  2 -     # one" in screen.text
        assert "  2 +     # two" in screen.text
        assert read(file) == OLD
        await screen.press("y")
        await screen.sees("written, not run")
        assert "# two" in read(file)
        assert "upper()" in read(file)


async def test_a_place_that_is_not_clear_is_chosen_by_a_number(open_screen: Open, folder: Path) -> None:
    """The places are listed with numbers, the prompt is free, and a number there edits that place."""
    for name in ("ant", "bee", "cat", "dog"):
        (folder / name).mkdir()
        write(folder / name / "task.py", OLD)
    async with open_screen(REPLIES) as screen:
        await screen.ready()
        await screen.say("change `show`")
        await screen.sees("Answer with a number")
        await screen.idle()
        await screen.say("2")
        await screen.decides()
        await screen.press("y")
        await screen.sees("written, not run")
    changed = [name for name in ("ant", "bee", "cat", "dog") if "# two" in read(folder / name / "task.py")]
    assert len(changed) == 1


async def test_hunks_are_taken_one_by_one(open_screen: Open, file: Path) -> None:
    """After h, each hunk is asked for: the first is taken, the second left."""
    async with open_screen(REPLIES) as screen:
        await screen.ready()
        await screen.say(ASK)
        await screen.decides()
        await screen.press("h")
        await screen.sees("Hunk 1 of 2")
        await screen.press("y")
        await screen.sees("Hunk 2 of 2")
        await screen.press("n")
        await screen.sees("written, not run")
        assert "# two" in read(file)
        assert "upper()" not in read(file)


async def test_n_leaves_the_file_alone(open_screen: Open, file: Path) -> None:
    """A rejected change is not written, and the screen says so."""
    async with open_screen(REPLIES) as screen:
        await screen.ready()
        await screen.say(ASK)
        await screen.decides()
        await screen.press("n")
        await screen.sees("not written")
        await screen.idle()
        assert read(file) == OLD


async def test_e_changes_the_text_first(
    open_screen: Open, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's editor gets the new file; what it leaves is asked about again, then written."""
    editor = tmp_path / "editor.sh"
    editor.write_text('#!/bin/sh\nsed -i "s/two/three/" "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))
    async with open_screen(REPLIES) as screen:
        await screen.ready()
        await screen.say(ASK)
        await screen.decides()
        await screen.press("e")
        await screen.sees("# three", "y take it")
        await screen.decides()
        await screen.press("y")
        await screen.sees("written, not run")
        assert "# three" in read(file)


async def test_letters_are_text_while_the_user_types(open_screen: Open, file: Path) -> None:
    """A proposal never takes letters from a message that is being typed."""
    async with open_screen(REPLIES) as screen:
        await screen.ready()
        await screen.say(ASK)
        await screen.type("b")
        await screen.until(lambda: screen.app.question, "a proposal")
        await screen.type("ye")
        assert screen.app.editor.text == "bye"
        assert read(file) == OLD
        assert screen.app.question is not None


async def test_a_letter_pressed_before_the_question_could_be_read_is_text(
    open_screen: Open, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who begins to type as a proposal comes decides nothing; its keys are shown once they count."""
    monkeypatch.setattr(controls, "UNREAD_S", 1e6)
    async with open_screen(REPLIES) as screen:
        await screen.ready()
        await screen.say(ASK)
        await screen.until(lambda: screen.app.question, "a proposal")
        await screen.type("yes")
        assert screen.app.editor.text == "yes"
        assert "y take it" not in screen.text
        monkeypatch.setattr(controls, "UNREAD_S", 0.0)
        await screen.press("backspace", "backspace", "backspace")
        await screen.decides()
        assert read(file) == OLD
        await screen.press("y")
        await screen.sees("written, not run")


async def test_a_message_instead_of_a_decision_turns_the_edit_around(open_screen: Open, file: Path) -> None:
    """Enter with words while a proposal waits strikes it, and the model writes again."""
    replies = {"quietly": f"```python\n{NEW.replace('two', 'quiet')}```"} | REPLIES
    async with open_screen(replies, size=(100, 40)) as screen:
        await screen.ready()
        await screen.say(ASK)
        await screen.decides()
        await screen.press("r")
        await screen.say("quietly")
        await screen.sees("↪ quietly", "# quiet")
        blocks = [block for block in screen.app.transcript.blocks if isinstance(block, EditBlock)]
        assert blocks[0].is_struck
        assert read(file) == OLD


async def test_undo_redo_and_rewind(open_screen: Open, file: Path) -> None:
    """An edit is undone, brought back, and taken back with its turn, whose words come to the prompt."""
    async with open_screen(REPLIES) as screen:
        await screen.ready()
        await screen.say(ASK)
        await screen.decides()
        await screen.press("y")
        await screen.sees("written, not run")
        await screen.idle()
        await screen.say("/undo")
        await screen.sees("Took back the change")
        assert read(file) == OLD
        await screen.say("/redo")
        await screen.sees("Brought back the change")
        assert "# two" in read(file)
        await screen.press("escape", "escape")
        await screen.sees("Back to before:", "turn 1, edit")
        await screen.press("enter")
        await screen.sees("code and talk")
        await screen.press("enter")
        await screen.sees("Back to before turn 1, talk and code")
        assert read(file) == OLD
        assert screen.app.editor.text == ASK
        assert not screen.app.session.talk.turns


async def test_an_edit_of_two_files_is_one_question(open_screen: Open, file: Path) -> None:
    """The plan and the diff of each file are shown; hunks are counted through; undo takes both back."""
    user = file.with_name("user.py")
    user.write_text("from task import other\n\nprint(other())\n")
    async with open_screen(REPLIES) as screen:
        await screen.ready()
        await screen.say("rename other to another in @task.py and @user.py")
        await screen.decides()
        await screen.sees("task.py:15-16  other (uses other)", "user.py:1  line 1 (uses other)")
        await screen.press("h")
        await screen.sees("Hunk 1 of 2")
        await screen.press("y")
        await screen.sees("Hunk 2 of 2")
        await screen.press("y")
        await screen.sees("written, not run")
        assert read(file) == OLD.replace("other", "another")
        assert read(user) == "from task import another\n\nprint(another())\n"
        await screen.say("/undo")
        await screen.sees("Took back the change")
        assert (read(file), "another" in read(user)) == (OLD, False)


@pytest.mark.parametrize(
    ("key", "line"), [("m", "# two"), ("f", "# mine"), ("s", "# mine")], ids=["edit", "file", "stop"]
)
async def test_a_file_that_changed_meanwhile_is_asked_about(
    open_screen: Open, file: Path, key: str, line: str
) -> None:
    """Both changes are shown, and a key says which one stands; nothing is written before."""
    async with open_screen(REPLIES, size=(100, 60)) as screen:
        await screen.ready()
        await screen.say(ASK)
        await screen.decides()
        write(file, OLD.replace("# one", "# mine"))
        await screen.press("y")
        await screen.sees("m take mine", "in the same lines", "changed meanwhile", "# mine")
        assert "# mine" in read(file)
        await screen.press(key)
        await screen.idle()
        assert read(file).splitlines()[1].strip() == line
        if key == "s":
            await screen.sees("The proposed text is kept")


async def test_a_conflict_is_merged_in_an_editor(
    open_screen: Open, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The editor gets both between markers, and what is left of them is written."""
    editor = tmp_path / "editor.sh"
    write(editor, "#!/bin/sh\nsed -i.bak -e '/^[<=>]\\{7\\}/d' \"$1\"\n")
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(editor))
    async with open_screen(REPLIES, size=(100, 60)) as screen:
        await screen.ready()
        await screen.say(ASK)
        await screen.decides()
        write(file, OLD.replace("# one", "# mine"))
        await screen.press("y")
        await screen.sees("e merge both")
        await screen.press("e")
        await screen.sees("written, not run")
        assert "    # two\n    # mine\n" in read(file)
