"""What an editor is asked is what runs: the whole of it, as code, with nothing hidden."""

from pathlib import Path

from tests.acp.conftest import Open
from tests.agent.loop.working import raw_call
from vivace.agent.permissions.shown import parse

COMMAND = "touch X # \u202e ghp_" + "a1B2" * 9 + "\n```\n[Allow](https://example.org) <!--\necho ````"


async def test_a_question_has_all_of_the_command(open_wire: Open, folder: Path) -> None:
    """In a block of code that the command cannot end; its title is one line."""
    wire = await open_wire(steps=[raw_call("shell", command=COMMAND, leave_sandbox=True), "Done."])
    await wire.prompt("do it")
    ((asked, _),) = wire.client.asked
    whole = asked.content[0].content.text
    fence, _, rest = whole.partition("\n")
    assert asked.title is not None
    assert fence == "`````"
    assert parse(rest.removesuffix(f"\n{fence}")) == COMMAND
    assert "\u202e" not in whole + asked.title
    assert "\n" not in asked.title
    assert (folder / "X").exists()


async def test_an_edit_shows_what_it_would_write(open_wire: Open, folder: Path) -> None:
    """Before it is allowed."""
    edit = raw_call("edit", path="../b.py", old_text="", new_text="y = 1\u200b")
    wire = await open_wire(steps=[edit, "Done."])
    wire.client.answers = ["reject_once"]
    await wire.prompt("write")
    ((asked, _),) = wire.client.asked
    assert asked.content[0].content.text == "```\n../b.py\n+y = 1⟨U+200B⟩\n```"
    assert not (folder.parent / "b.py").exists()
