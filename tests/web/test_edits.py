"""Edits outside of a conversation, as an editor drives them."""

from pathlib import Path

import pytest

from tests.agent.conversation.talking import read, write
from tests.agent.edits.test_flow import FIRST_ONLY, NEW, OLD
from tests.web.facing import FakeFace, RefusedRequest, facing
from vivace.client.warm import ServerAddress

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def started(face: FakeFace, task: Path, **fields: object) -> str:
    await face.ask("hello", folder=str(task.parent))
    given = {"path": str(task), "instruction": "make it shout", "unit": "show"} | fields
    return str((await face.ask("edit.start", **given))["edit"])


async def test_an_edit_is_written_by_the_host(address: ServerAddress, task: Path) -> None:
    """It grows, is asked about and written; all of its events have its name."""
    async with facing(address) as face:
        edit = await started(face, task)
        question = await face.event("question")
        assert "upper()" in face.text("live.diff", "delta")
        await face.ask("edit.decide", edit=edit, question=question["question"], decision="accept")
        assert (await face.event("edit.ended"))["status"] == "applied"
        assert read(task) == NEW
        assert {frame["edit"] for frame in face.heard if "event" in frame} == {edit}
        with pytest.raises(RefusedRequest) as over:
            await face.ask("edit.stop", edit=edit)
        assert over.value.code == "gone"


async def test_an_edit_is_written_by_the_face(address: ServerAddress, task: Path) -> None:
    """The unsaved text is what is edited; what was accepted comes back, and the disk stays as it is."""
    write(task, "nothing = 1\n")
    async with facing(address) as face:
        edit = await started(face, task, text=OLD, apply="face")
        question = await face.event("question")
        given = {"edit": edit, "question": question["question"]}
        await face.ask("edit.decide", **given, decision="hunks", hunks=[0])
        (accepted,) = (await face.event("edit.accepted"))["files"]
        assert accepted == {"path": str(task), "text": FIRST_ONLY}
        await face.ask("edit.written", edit=edit)
        assert (await face.event("edit.ended"))["status"] == "applied"
        assert read(task) == "nothing = 1\n"


async def test_what_was_typed_meanwhile_stays(address: ServerAddress, task: Path) -> None:
    """A buffer that changed while the edit was made is merged with it, not overwritten."""
    async with facing(address) as face:
        edit = await started(face, task, text=OLD, apply="face")
        question = await face.event("question")
        await face.ask("buffers.set", path=str(task), text=f"# mine\n{OLD}")
        await face.ask("edit.decide", edit=edit, question=question["question"], decision="accept")
        (accepted,) = (await face.event("edit.accepted"))["files"]
        assert accepted["text"] == f"# mine\n{NEW}"
        await face.ask("edit.written", edit=edit)
        await face.event("edit.ended")


async def test_a_face_that_cannot_write_says_so(address: ServerAddress, task: Path) -> None:
    """Its reason is shown, and the edit has failed."""
    async with facing(address) as face:
        edit = await started(face, task, text=OLD, apply="face")
        question = await face.event("question")
        await face.ask("edit.decide", edit=edit, question=question["question"], decision="accept")
        await face.event("edit.accepted")
        await face.ask("edit.written", edit=edit, problem="read-only")
        assert "read-only" in (await face.event("error"))["message"]
        assert (await face.event("edit.ended"))["status"] == "failed"


async def test_an_edit_is_steered_and_stopped(address: ServerAddress, task: Path) -> None:
    """A steer begins it again with what was said added; a stop ends it, and nothing is written."""
    async with facing(address) as face:
        edit = await started(face, task)
        await face.event("question")
        heard = len(face.heard)
        await face.ask("edit.steer", edit=edit, text="but politely")
        assert (await face.event("attempt.abandoned"))["steer"] == "but politely"
        await face.event("question", heard)
        await face.ask("edit.stop", edit=edit)
        assert (await face.event("edit.ended"))["status"] == "stopped"
        assert read(task) == OLD


async def test_what_is_wrong_is_said(address: ServerAddress, task: Path) -> None:
    """A name that is not there, an empty instruction and a file elsewhere."""
    async with facing(address) as face:
        await started(face, task, unit="nothing_like_it")
        assert "nothing_like_it" in (await face.event("error"))["message"]
        assert (await face.event("edit.ended"))["status"] == "failed"
        with pytest.raises(RefusedRequest):
            await started(face, task, instruction=" ")
        with pytest.raises(RefusedRequest) as outside:
            await started(face, task, path="/etc/passwd")
        assert outside.value.code == "file_problem"
