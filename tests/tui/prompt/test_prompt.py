"""The prompt: help, keys of one's own, completion, history, editor."""

from pathlib import Path

import pytest
from textual import events

from tests.tui.conftest import Open
from vivace.errors import ConfigError
from vivace.tui.commands.table import COMMANDS
from vivace.tui.keys import ACTIONS, KeyMap

PROMISED = """/help /model /effort /status /context /compact /clear /resume /fork /rewind /undo /redo /diff
/queue /btw /theme /export /doctor /exit"""


async def test_a_question_mark_on_an_empty_line_shows_the_keys(open_screen: Open) -> None:
    """? is help where nothing is typed, and a letter elsewhere."""
    async with open_screen(size=(80, 50)) as screen:
        await screen.press("?")
        await screen.sees("Keys", "Ctrl+R", "search what you said before")
        await screen.type("so?")
        assert screen.app.editor.text == "so?"


async def test_keys_are_changed_in_the_settings(open_screen: Open) -> None:
    """A remapped key does the action, and the old one does not."""
    async with open_screen(keys={"send": "ctrl+s", "newline": "enter"}) as screen:
        await screen.ready()
        await screen.type("what")
        await screen.press("enter")
        await screen.type("now?")
        assert screen.app.editor.text == "what\nnow?"
        await screen.press("ctrl+s")
        await screen.sees("Hello there.")


def test_a_wrong_key_table_is_refused() -> None:
    """An unknown action, or one key for two actions, is an error that names them."""
    with pytest.raises(ConfigError, match="fly"):
        KeyMap({"fly": "f1"})
    with pytest.raises(ConfigError, match=r"'enter'.*'queue'"):
        KeyMap({"queue": "enter"})
    assert KeyMap({"help": "?, f1"}).action("prompt", "question_mark") == "help"


def test_every_action_has_a_key_and_words() -> None:
    """The help has a line for each action."""
    text = "\n".join(KeyMap({}).help())
    assert all(action.help in text for action in ACTIONS)


def test_all_commands_are_there() -> None:
    """The table has every command that is promised."""
    assert {command.name for command in COMMANDS} >= set(PROMISED.split())


async def test_commands_are_completed(open_screen: Open) -> None:
    """A slash lists commands; Tab takes the marked one; help lists all."""
    async with open_screen(size=(100, 90)) as screen:
        await screen.ready()
        await screen.type("/he")
        await screen.sees("› /help")
        await screen.press("tab", "enter")
        await screen.sees("Commands", *(command.help for command in COMMANDS))


async def test_files_and_names_are_completed(open_screen: Open, folder: Path) -> None:
    """After @ come files, after the colon the names in the file."""
    (folder / "src").mkdir()
    (folder / "src" / "engine.py").write_text("class Engine:\n    def step(self):\n        pass\n")
    (folder / "other.txt").touch()
    async with open_screen() as screen:
        await screen.type("look at @eng")
        await screen.sees("› src/engine.py")
        await screen.press("tab", "backspace")
        await screen.type(":st")
        await screen.sees("› Engine.step", "method, lines 2-3")
        await screen.press("enter")
        assert screen.app.editor.text == "look at @src/engine.py:Engine.step "


async def test_a_whole_name_is_sent_by_enter(open_screen: Open, folder: Path) -> None:
    """Where the name is typed to its end there is nothing to complete, though others contain it."""
    (folder / "engine.py").write_text("class Engine:\n    def step(self):\n        pass\n")
    async with open_screen() as screen:
        await screen.type("look at @engine.py:Engin")
        await screen.sees("› Engine")
        await screen.type("e")
        await screen.until(lambda: not screen.app.menu.is_open)
        await screen.press("enter")
        await screen.until(lambda: not screen.app.editor.text)


@pytest.mark.parametrize(
    ("typed", "left"), [("@engine.py:Engine", ""), ("@engine.py:Engi", "@engine.py:Engine ")]
)
async def test_a_list_is_never_older_than_the_text(
    open_screen: Open, folder: Path, typed: str, left: str
) -> None:
    """Keys that come at once, as from a script or over a slow line, do what they do one by one."""
    (folder / "engine.py").write_text("class Engine:\n    def step(self):\n        pass\n")
    async with open_screen() as screen:
        await screen.ready()
        await screen.type("@")
        await screen.sees("› engine.py")
        for character in typed[1:]:
            screen.app.editor.post_message(events.Key(character, character))
        screen.app.editor.post_message(events.Key("enter", None))
        await screen.until(lambda: screen.app.editor.text == left)


async def test_history_is_kept_and_searched(open_screen: Open) -> None:
    """Up brings earlier messages back, Ctrl+R finds one by its words, also in a later session."""
    async with open_screen() as screen:
        await screen.ready()
        for text in ("what one?", "what two?"):
            await screen.say(text)
            await screen.idle()
    async with open_screen() as screen:
        await screen.type("dra")
        await screen.press("up", "up")
        assert screen.app.editor.text == "what one?"
        await screen.press("down", "down")
        assert screen.app.editor.text == "dra"
        await screen.press("ctrl+r")
        await screen.sees("Said before:")
        await screen.type("one")
        await screen.press("enter")
        assert screen.app.editor.text == "what one?"


async def test_text_that_fits_nothing_in_a_list_is_kept(open_screen: Open) -> None:
    """What was typed over an open list stands in the prompt, behind what stood there."""
    async with open_screen() as screen:
        await screen.type("see ")
        await screen.press("ctrl+r")
        await screen.sees("Said before:")
        await screen.type("why is this slow?")
        await screen.sees("nothing fits")
        await screen.press("enter")
        assert screen.app.editor.text == "see why is this slow?"
        assert not screen.app.menu.is_open


async def test_several_lines_make_the_prompt_grow(open_screen: Open) -> None:
    """Ctrl+J begins a new line, and all lines are seen."""
    async with open_screen() as screen:
        await screen.type("one\ntwo\nthree")
        await screen.sees("› one", "  two", "  three")


async def test_the_message_is_written_in_an_editor(
    open_screen: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl+G opens $EDITOR with the draft, and takes what it leaves."""
    editor = tmp_path / "editor.sh"
    editor.write_text('#!/bin/sh\nprintf "%s, and more" "$(cat "$1")" > "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))
    async with open_screen() as screen:
        await screen.type("draft")
        await screen.press("ctrl+g")
        await screen.until(lambda: screen.app.editor.text == "draft, and more", "the text")


async def test_a_conversation_is_resumed(open_screen: Open) -> None:
    """A later session shows what was said and goes on."""
    async with open_screen() as screen:
        await screen.ready()
        await screen.say("what now?")
        await screen.sees("Hello there.")
        await screen.idle()
        known = screen.app.session.talk.id
    async with open_screen(resume=known) as screen:
        await screen.sees("› what now?", "Hello there.")
        await screen.ready()
        assert screen.app.session.talk.id == known


async def test_a_mistyped_file_stays_in_the_prompt(open_screen: Open, folder: Path) -> None:
    """It is said at once, also of a message that would be queued; what is pasted is not looked through."""
    (folder / "task.py").write_text("def show():\n    pass\n")
    async with open_screen(size=(100, 40)) as screen:
        await screen.ready()
        await screen.type("what does @tsak.py do?")
        for key in ("enter", "tab", "ctrl+b"):
            await screen.press(key)
            await screen.sees("Did you mean @task.py?")
            assert screen.app.editor.text == "what does @tsak.py do?"
        assert not screen.app.session.talk.turns
        screen.app.editor.set_text("what is this?\n")
        screen.app.editor.post_message(events.Paste("\n".join(["at @/no/such/file.js:1"] * 60)))
        await screen.until(lambda: screen.app.editor.whole_text.count("such") == 60)
        await screen.press("enter")
        await screen.sees("Hello there.")
