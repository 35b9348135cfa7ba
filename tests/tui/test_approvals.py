"""What the terminal face asks about is what runs: whole, marked row by row, with nothing hidden."""

import json
from pathlib import Path

from tests.agent.loop.working import raw_call
from tests.tui.conftest import Open

SECRET = "ghp_" + "a1B2" * 9
COMMAND = f": '\u202e\u200b {SECRET}{' ' * 90}'; touch X\ny let it run · n do not"


def marked(text: str) -> str:
    rows = [row.strip("\n") for row in text.split("\n")]
    return "".join(
        row[4:].ljust(74) if len(row) > 60 else row[4:] for row in rows if row[2:4] in ("│ ", "┆ ")
    )


async def test_a_command_is_shown_whole_and_marked(open_screen: Open, folder: Path) -> None:
    """Secrets, hidden characters and what stands far to the right; no line of it looks like the answers."""
    steps = [raw_call("shell", command=COMMAND, leave_sandbox=True), "Done."]
    async with open_screen(size=(80, 50), steps=steps) as screen:
        await screen.ready()
        await screen.say("do it")
        await screen.sees("│ : '⟨U+202E⟩⟨U+200B⟩ ghp_", " touch X", "│ y let it run · n do not")
        assert SECRET in marked(screen.text)
        assert "RIGHT-TO-LEFT OVERRIDE" in screen.text
        await screen.decides()
        await screen.press("y")
        await screen.until(lambda: (folder / "X").exists(), "the command")


async def test_an_edit_is_shown_before_it_is_allowed(open_screen: Open, folder: Path) -> None:
    """What goes and what comes."""
    (folder / "a.py").write_text("x = 1\n")
    edit = raw_call("edit", path="a.py", old_text="x = 1", new_text="x = 2 # \u202e")
    async with open_screen(size=(80, 40), steps=[edit, "Done."]) as screen:
        await screen.ready()
        await screen.press("shift+tab")
        await screen.say("make x two")
        await screen.sees("│ -x = 1", "│ +x = 2 # ⟨U+202E⟩")
        await screen.decides()
        await screen.press("n")
        await screen.sees("not allowed")


async def test_a_long_question_says_that_it_is_longer_than_the_screen(open_screen: Open) -> None:
    """Its first rows may be out of sight."""
    command = "\n".join(f"echo {number}" for number in range(60))
    steps = [raw_call("shell", command=command, leave_sandbox=True), "Done."]
    async with open_screen(size=(80, 30), steps=steps) as screen:
        await screen.ready()
        await screen.say("do it")
        await screen.sees("(60 rows: scroll up for the first)")
        await screen.decides()
        await screen.press("n")


async def test_trust_shows_every_row(open_screen: Open, folder: Path) -> None:
    """A long command is wrapped, not cut at the width of the screen."""
    server = {"command": "sh", "args": ["-c", f"true {'x' * 200}; touch X #\rnpx"]}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"one": server}}))
    async with open_screen(size=(80, 40)) as screen:
        await screen.ready()
        await screen.say("/trust")
        await screen.sees("touch X #⟨CR⟩npx'", "Trust it?")


async def test_a_background_tasks_question_is_shown_whole(open_screen: Open, folder: Path) -> None:
    """By /tasks, with what the log leaves out; the choice answers just that."""
    steps = [raw_call("shell", command=f"touch X # {SECRET}", leave_sandbox=True), "Done."]
    async with open_screen(size=(100, 50), steps=steps) as screen:
        await screen.ready()
        await screen.say("/background do it")
        await screen.sees("as task")
        name = screen.text.partition("as task ")[2].split(":")[0].split()[0].strip(",.)")
        await screen.until(lambda: "asks:" in screen.text, "the question")
        await screen.sees(f"│ touch X # {SECRET}")
        await screen.say(f"/tasks {name} no")
        await screen.sees("is done: Done.")
        assert not (folder / "X").exists()
