"""Slash commands, each through the prompt and a real server."""

from pathlib import Path

from tests.tui.conftest import Open
from tests.tui.screen import Screen


def read_only_file(folder: Path) -> str:
    (file,) = folder.glob("*.md")
    return file.read_text()


async def ask(screen: Screen) -> None:
    await screen.ready()
    await screen.say("what now?")
    await screen.sees("Hello there.")
    await screen.idle()


async def test_an_unknown_command_is_named(open_screen: Open) -> None:
    """A command that is not there is refused with a hint, and a path is no command."""
    async with open_screen() as screen:
        await screen.ready()
        await screen.say("/fly")
        await screen.sees("There is no command /fly.", "/help lists them.")


async def test_a_mistyped_command_is_named_rightly(open_screen: Open) -> None:
    """A name that is nearly one is told which one."""
    async with open_screen() as screen:
        await screen.ready()
        await screen.say("/staus")
        await screen.sees("There is no command /staus.", "Did you mean /status? /help lists them.")


async def test_commands_have_the_names_that_other_programs_give_them(open_screen: Open) -> None:
    """They are offered while they are typed, and do the same. A name that is whole is sent by Enter."""
    async with open_screen() as screen:
        await ask(screen)
        await screen.say("/new")
        await screen.sees("A new conversation.")
        await screen.type("/model")  # which is the beginning of /models, too
        await screen.press("enter")
        await screen.sees("Model:")
        await screen.press("escape")
        await screen.type("/qui")
        await screen.sees("/quit", "leave; the conversation is kept")
        await screen.press("enter", "enter")
        await screen.until(lambda: not screen.app.is_running, "the end")


async def test_context_counts_what_is_in_the_prompt(open_screen: Open) -> None:
    """The parts of the prompt are listed with their tokens, against the window."""
    async with open_screen() as screen:
        await ask(screen)
        await screen.say("/context")
        await screen.sees("Context, in tokens", "instructions", "message 1", "answer 1", "in all")


async def test_status_names_conversation_and_server(open_screen: Open) -> None:
    """The status has the conversation's id and the server's pid."""
    async with open_screen() as screen:
        await ask(screen)
        await screen.say("/status")
        await screen.sees(screen.app.session.talk.id, "server        pid", "ready on cpu")


async def test_a_question_beside_leaves_the_conversation_alone(open_screen: Open) -> None:
    """The answer is shown, and the conversation has no turn of it."""
    async with open_screen() as screen:
        await ask(screen)
        await screen.say("/btw which snippet?")
        await screen.sees("? which snippet?", "return 1")
        assert len(screen.app.session.talk.turns) == 1


async def test_clear_begins_anew_and_resume_comes_back(open_screen: Open) -> None:
    """A new conversation has an empty screen; the list of conversations leads back to the old one."""
    async with open_screen() as screen:
        await ask(screen)
        before = screen.app.session.talk.id
        await screen.say("/clear")
        await screen.sees("A new conversation.")
        await screen.is_gone("Hello there.")
        await screen.ready()
        assert screen.app.session.talk.id != before
        await screen.say("/resume")
        await screen.sees("Resume:", "what now?")
        await screen.press("enter")
        await screen.sees("› what now?", "Hello there.")
        await screen.ready()


async def test_a_fork_goes_on_by_itself(open_screen: Open) -> None:
    """After /fork the conversation has another id and the same turns."""
    async with open_screen() as screen:
        await ask(screen)
        before = screen.app.session.talk.id
        await screen.say("/fork")
        await screen.sees("This is a fork now.")
        await screen.ready()
        assert screen.app.session.talk.id != before
        assert [turn.text for turn in screen.app.session.talk.turns] == ["what now?"]
        await screen.say("which snippet?")
        await screen.sees("return 1")


async def test_compaction_is_announced_and_undone(open_screen: Open) -> None:
    """The screen says that the conversation was summarised, and that it is read whole again."""
    async with open_screen() as screen:
        await ask(screen)
        await screen.say("/compact")
        await screen.sees("Summarised ", "/compact undo")
        await screen.say("/compact undo")
        await screen.sees("reads the whole conversation again")


async def test_export_writes_markdown_and_overwrites_nothing(open_screen: Open, folder: Path) -> None:
    """The file has what was said; a second export to the same name is refused."""
    async with open_screen() as screen:
        await ask(screen)
        await screen.say("/export talk.md")
        await screen.sees("Wrote ")
        assert "Hello there." in read_only_file(folder)
        await screen.say("/export talk.md")
        await screen.sees("cannot be written")


async def test_the_theme_is_changed(open_screen: Open) -> None:
    """A theme is taken by name, and an unknown one is refused with the known ones."""
    async with open_screen() as screen:
        await screen.ready()
        await screen.say("/theme light")
        await screen.until(lambda: screen.app.theme == "light", "the theme")
        await screen.say("/theme pink")
        await screen.sees("There is no theme 'pink'.", "dark, light, terminal")
        await screen.say("/theme terminal")
        await screen.until(lambda: screen.app.theme == "terminal", "the theme")
        await screen.say("what now?")
        await screen.sees("Hello there.")


async def test_the_effort_is_changed(open_screen: Open) -> None:
    """The conversation and the status line have the new effort, also after /clear."""
    async with open_screen() as screen:
        await screen.ready()
        assert screen.app.session.talk.effort == "medium"
        await screen.say("/effort high")
        await screen.until(lambda: screen.app.session.talk.effort == "high", "the effort")
        assert "high" in screen.status
        await screen.say("/clear")
        await screen.sees("A new conversation.")
        assert screen.app.session.talk.effort == "high"
        await screen.ready()


async def test_exit_leaves(open_screen: Open) -> None:
    """/exit ends the program."""
    async with open_screen() as screen:
        await screen.ready()
        await screen.say("/exit")
        await screen.until(lambda: not screen.app.is_running, "the end")


async def test_tests_are_allowed_and_forbidden(open_screen: Open) -> None:
    """/test says what edits may run: nothing at first, then the command, and nothing again after off."""
    async with open_screen() as screen:
        await screen.ready()
        await screen.say("/test")
        await screen.sees("Edits run no tests.")
        await screen.say("/test make check")
        await screen.sees("in the sandbox: make check")
        session = screen.app.session
        assert session is not None
        assert session.talk.connection.settings.test_command == "make check"
        await screen.say("/test off")
        await screen.until(lambda: session.talk.connection.settings.test_command == "")


async def test_trust_shows_what_would_run_and_asks(open_screen: Open) -> None:
    """A yes is kept for just this content, and can be taken back."""
    async with open_screen() as screen:
        await screen.ready()
        folder = screen.app.session.folder
        (folder / ".mcp.json").write_text('{"mcpServers": {"one": {"command": "serve-one"}}}')
        await screen.say("/trust")
        await screen.sees("serve-one", "Trust it?")
        await screen.press("down", "enter")
        await screen.sees("Trusted. A change asks again.")
        await screen.say("/trust")
        await screen.sees("You trust it, as it is now.")
        await screen.say("/trust revoke")
        await screen.sees("Trust it?")
        await screen.press("enter")
        await screen.sees("Not trusted")
