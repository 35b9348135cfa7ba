"""Edits of several files as turns: all mentions count, a renaming reaches its users, new files are made."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.conversation.talking import Face
from tests.agent.edits.test_several_units import APP, RENAMED, REPLIES, SHOP, answer, piece
from vivace.agent.conversation.conversation import Conversation
from vivace.agent.conversation.message.more_files import paths_to_make
from vivace.agent.conversation.transcript.export import to_markdown
from vivace.agent.events.edit import EditPlanned, UnitLocated
from vivace.agent.events.turn import FileChosen


def texts(folder: Path) -> tuple[str, str]:
    return (folder / "shop.py").read_text(), (folder / "app.py").read_text()


Begin = Callable[..., Conversation]
SLUG = "def slug(text):\n    return text.lower()\n"
TALK = REPLIES | {
    piece("shop.py", "def other"): answer("def other():\n    return 2\n"),
    "slug.py is a new file": answer(SLUG),
    "You locate code": "`total`",
    "": "Hello.",
}


@pytest.fixture
def shop(folder: Path) -> Path:
    (folder / "shop.py").write_text(SHOP)
    (folder / "app.py").write_text(APP)
    (folder / "apart.py").write_text("def total():\n    return 0\n")
    return folder / "shop.py"


async def test_every_mention_is_edited(begin: Begin, shop: Path) -> None:
    """Two mentioned units of two files are one plan, one entry and one undo."""
    talk = begin(TALK)
    turn = await talk.send("change @shop.py:other and @app.py:main for me")
    assert [(edit.unit, edit.outcome) for edit in turn.edits] == [("other", "applied"), ("main", "applied")]
    assert turn.edits[0].entry == turn.edits[1].entry
    assert texts(shop.parent) == (
        SHOP.replace("return 1", "return 2"),
        APP.replace("return total", "return amount"),
    )
    assert to_markdown(talk.history).count("Written.") == 2
    await talk.undo()
    assert texts(shop.parent) == (SHOP, APP)


async def test_a_mention_that_is_only_spoken_of_is_not_edited(begin: Begin, face: Face, shop: Path) -> None:
    """What is used or copied from is read by the user, and stays as it is."""
    talk = begin(TALK)
    await talk.send("change @shop.py:other, using @app.py:main")
    assert [Path(event.path).name for event in face.seen(FileChosen)] == ["shop.py"]
    assert texts(shop.parent)[1] == APP


async def test_a_renamed_function_is_renamed_where_it_is_used(begin: Begin, face: Face, shop: Path) -> None:
    """Without a mention the files that use the name are in the plan; one with a name of its own is not."""
    talk = begin(TALK)
    await talk.send("In shop.py rename total to amount")
    [plan] = face.seen(EditPlanned)
    assert [(each.path.name, each.unit.qualified_name) for each in plan.units] == [
        ("shop.py", "total"),
        ("shop.py", "report"),
        ("app.py", "line 1"),
        ("app.py", "main"),
    ]
    assert texts(shop.parent) == (RENAMED, APP.replace("total", "amount"))


@pytest.mark.parametrize("names", ["`other` and `main`", "both other and main", "other() and main()"])
async def test_functions_of_several_files_are_all_edited(
    begin: Begin, face: Face, shop: Path, names: str
) -> None:
    """An instruction that lists functions of two files, and mentions none, changes both files."""
    talk = begin(TALK)
    await talk.send(f"in {names} change what is returned")
    [plan] = face.seen(EditPlanned)
    assert sorted((each.path.name, each.unit.name) for each in plan.units) == [
        ("app.py", "main"),
        ("shop.py", "other"),
    ]
    assert texts(shop.parent) == (
        SHOP.replace("return 1", "return 2"),
        APP.replace("return total", "return amount"),
    )


async def test_a_name_that_two_files_have_lists_nothing(begin: Begin, face: Face, shop: Path) -> None:
    """Of functions with one name it is not known which is meant: one file is chosen."""
    del shop
    talk = begin(TALK)
    await talk.send("in `total` and `main` change what is returned")
    assert len(face.seen(FileChosen)) <= 1


@pytest.mark.usefixtures("shop")
async def test_it_is_all_that_was_edited_before(begin: Begin, face: Face) -> None:
    """An instruction that refers back to an edit of two units is about both."""
    talk = begin(TALK)
    await talk.send("change @shop.py:other and @app.py:main for me")
    await talk.undo()
    await talk.send("do it again")
    located = [event.unit.name for event in face.seen(UnitLocated)]
    assert located == ["other", "main", "other", "main"]


async def test_a_named_file_that_is_not_there_is_made(begin: Begin, face: Face, shop: Path) -> None:
    """A message that asks for a new file makes it; taking the edit back removes it."""
    talk = begin(TALK)
    await talk.send("Create a file slug.py with a function slug")
    made = shop.parent / "slug.py"
    assert face.seen(FileChosen) == [FileChosen(str(made), "name")]
    assert made.read_text() == SLUG
    await talk.undo()
    assert not made.exists()


@pytest.mark.parametrize(
    ("instruction", "names"),
    [
        ("create a file slug.py with a function", ["slug.py"]),
        ("Write `tests/test_shop.py` for it", ["tests/test_shop.py"]),
        ("add a function slug in slug.py", ["slug.py"]),
        ("write a new module called data.json", ["data.json"]),
        ("add a function to shop.py that reads settings.json", []),
        ("add a function to shop.py", []),
        ("fix the bug in slug.py", []),
        ("create no/where/slug.py", []),
        ("create docs.md about it", ["docs.md"]),
        ("make TodoList.add refuse an empty title", []),
        ("create user.name if it is missing", []),
        ("make slug.py faster", []),
    ],
)
def test_which_files_are_to_be_made(shop: Path, instruction: str, names: list[str]) -> None:
    """A path is a new file if it is to be written; one that is only read, or has no folder, is not."""
    (shop.parent / "tests").mkdir()
    assert paths_to_make(instruction, shop.parent) == [shop.parent / name for name in names]
