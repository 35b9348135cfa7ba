"""An edit whose place is not clear: the user is asked, and the next message says which."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.conversation.talking import EDITING, Face, read
from tests.agent.edits.test_flow import NEW, OLD
from vivace.agent.conversation.conversation import Conversation
from vivace.agent.events.base import Failed
from vivace.agent.events.turn import FileChosen, PlacesAsked
from vivace.errors import APPROVAL_NEEDED

WHISPERING = {
    "You locate code": "`new after show`",
    "Task: ": "```python\ndef whisper(task):\n    pass\n```",
    "": "Hello.",
}
Begin = Callable[..., Conversation]


@pytest.fixture
def copies(folder: Path) -> list[Path]:
    """Four files that are alike, with names of one length: the scripted model finds all alike."""
    files = [folder / name / "task.py" for name in ("ant", "bee", "cat", "dog")]
    for file in files:
        file.parent.mkdir()
        file.write_text(OLD)
    return files


async def test_what_is_not_clear_is_asked(begin: Begin, face: Face, copies: list[Path]) -> None:
    """The turn ends with the first three places, and nothing is written, even with a yes beforehand."""
    talk = begin(EDITING)
    talk.approval = "always"
    turn = await talk.send("make `show` shout")
    (asked,) = face.seen(PlacesAsked)
    (failed,) = face.seen(Failed)
    assert len(asked.places) == 3
    assert all(place.endswith("task.py:show") for place in asked.places)
    assert (failed.exit_code, turn.status, turn.places) == (APPROVAL_NEEDED, "failed", asked.places)
    assert all(place in failed.message for place in asked.places)
    assert [read(file) for file in copies] == [OLD] * 4


@pytest.mark.parametrize("said", ["2", "the second one", "@{}", "{}"])
async def test_the_next_message_chooses(
    begin: Begin, face: Face, copies: list[Path], folder: Path, said: str
) -> None:
    """A number or the place itself is the answer, and the edit is done there."""
    talk = begin(EDITING)
    first = await talk.send("make `show` shout")
    chosen = first.places[1]
    turn = await talk.send(said.format(chosen))
    path = folder / chosen.partition(":")[0]
    assert (turn.kind, turn.status, read(path)) == ("edit", "completed", NEW)
    assert sorted(read(file) for file in copies) == sorted([OLD] * 3 + [NEW])
    assert face.seen(FileChosen)[-1].by == "mention"


async def test_another_message_is_no_answer(begin: Begin, copies: list[Path]) -> None:
    """What chooses none of the places is a message like any other."""
    del copies
    talk = begin(EDITING)
    await talk.send("make `show` shout")
    assert (await talk.send("What does it do?")).answer == "Hello there."


async def test_a_bare_name_of_several_files_is_asked(begin: Begin, face: Face, copies: list[Path]) -> None:
    """The name of the file says too little where several have it."""
    talk = begin(EDITING)
    await talk.send("make show in task.py shout")
    assert len(face.seen(PlacesAsked)) == 1
    assert [read(file) for file in copies] == [OLD] * 4


async def test_a_bare_name_means_the_one_file_that_has_it(begin: Begin, face: Face, folder: Path) -> None:
    """No second file of that name is made beside it, though something new is asked for."""
    (folder / "shop").mkdir()
    (folder / "shop" / "task.py").write_text(OLD)
    talk = begin(WHISPERING)
    turn = await talk.send("add a function whisper to task.py")
    assert turn.status == "completed", turn.error
    assert not (folder / "task.py").exists()
    assert face.seen(FileChosen) == [FileChosen(str(folder / "shop" / "task.py"), "name")]
    assert "def whisper" in read(folder / "shop" / "task.py")


async def test_a_file_is_made_where_none_has_the_name(begin: Begin, face: Face, folder: Path) -> None:
    """A test of that name is no such file: only one that may be meant is."""
    (folder / "tests").mkdir()
    (folder / "tests" / "fresh.py").write_text(OLD)
    talk = begin(WHISPERING)
    await talk.send("add a function whisper to fresh.py")
    assert face.seen(FileChosen) == [FileChosen(str(folder / "fresh.py"), "name")]
    assert "def whisper" in read(folder / "fresh.py")
