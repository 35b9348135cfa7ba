"""Edits outside of a conversation, as an editor drives them."""

import asyncio
import os
import re
from pathlib import Path

import pytest

from tests.agent.conversation.talking import EDITING, read, write
from tests.agent.edits.test_flow import FIRST_ONLY, NEW, OLD
from tests.e2e.terminal import wait_until
from tests.models.hub import fake_hub
from tests.server.serving import script
from tests.web.facing import FakeFace, RefusedRequest, facing
from vivace.client import warm
from vivace.client.warm import ServerAddress
from vivace.config import Settings
from vivace.models.store import is_present
from vivace.web.buffers import Buffers
from vivace.web.live_edit import LiveEdit
from vivace.web.messages.edit_requests import EditStart
from vivace.web.messages.events import EventFrame, LiveActivity

pytestmark = pytest.mark.asyncio(loop_scope="module")
NAME = "hf:someone/tiny-GGUF:tiny-q4_k_m.gguf"


class Heard:
    """A face that keeps what an edit waits for, in words."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def hear(self, frame: EventFrame) -> None:
        if isinstance(frame.event, LiveActivity):
            self.words.append(frame.event.activity)


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


UNSAVED = f"# not saved\n\n\n{OLD}"


async def test_the_function_around_a_line_grows_from_its_first_letter(
    address: ServerAddress, task: Path
) -> None:
    """The unit is found by a line, and what is told of it begins with what the model need not write."""
    async with facing(address) as face:
        edit = await started(face, task, text=UNSAVED, unit="", line=6, apply="face")
        await face.event("question")
        first = face.events("live.diff")[0]
        assert (first["unit"], first["first_line"], first["last_line"]) == ("show", 4, 13)
        assert face.text("live.diff", "delta").strip() == NEW.strip()
        assert [event.get("is_first", False) for event in face.events("live.diff")].count(True) == 1
        await face.ask("edit.stop", edit=edit)


async def test_an_edit_ends_with_its_face(served: Settings, address: ServerAddress, task: Path) -> None:
    """An editor that goes away leaves no turn running."""
    async with facing(address) as face:
        await started(face, task, instruction="long")
        await face.event("live.diff")
    await asyncio.to_thread(wait_until, lambda: not warm.read_status(served).answers, "no turn runs")


async def test_what_was_read_ahead_is_not_read_again(
    served: Settings, address: ServerAddress, task: Path
) -> None:
    """With the box open the model reads the unit; when the edit begins, most of its prompt is cached."""
    unsaved = UNSAVED.replace("six()", "six(1, 2, 3)")
    async with facing(address) as face:
        await face.ask("hello", folder=str(task.parent))
        before = warm.read_status(served).engine.tokens_prefilled
        await face.ask("edit.prefill", path=str(task), text=unsaved, line=6, draft="ma")
        await asyncio.to_thread(
            wait_until, lambda: warm.read_status(served).engine.tokens_prefilled > before, "it is read"
        )
        await started(face, task, text=unsaved, unit="", line=6)
        (times,) = [turn for turn in (await face.event("turn.times"))["turns"] if turn["name"] == "rewrite"]
        assert times["cached_tokens"] > 10 * times["new_tokens"]


async def test_an_edit_says_how_far_its_model_is_loaded(
    address: ServerAddress, task: Path, tmp_path: Path
) -> None:
    """As it is read, and nothing any more when the model writes."""
    weights = tmp_path / "weights"
    weights.touch()
    os.truncate(weights, 12_000_000_000)  # a hole: nothing is on the disk
    loads = {"load_file": str(weights), "load_bytes": 20_000_000_000}
    model = script(tmp_path, "slow", replies=EDITING, **loads)
    async with facing(address) as face:
        await started(face, task, model=model)
        await face.event("live.activity", activity="loading slow.json: 12 of 20 GB")
        os.truncate(weights, 20_000_000_000)
        await face.event("question")
        kinds = [frame["event"]["type"] for frame in face.heard if "event" in frame]
        assert "activity" not in face.events("live.activity")[-1]
        assert "live.activity" not in kinds[kinds.index("live.diff") :]


async def test_an_edit_says_how_far_its_model_is_downloaded(
    monkeypatch: pytest.MonkeyPatch, task: Path, tmp_path: Path
) -> None:
    """By percent; when the edit is stopped nothing more is said of the download, which goes on."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    with fake_hub.serving() as hub:
        content = fake_hub.gguf(padding=8 << 20)
        hub.add("someone/tiny-GGUF", {"tiny-q4_k_m.gguf": content})
        hub.store.hold_after_bytes = 6 << 20  # of its eight
        settings = Settings(cache_dir=tmp_path / "cache", state_dir=tmp_path / "state", hub_url=hub.url)
        model = "hf:someone/tiny-GGUF"
        start = EditStart(id=1, path=str(task), instruction="make it shout", unit="show", model=model)
        edit = LiveEdit(settings, Buffers(), task.parent, task, start)
        heard = Heard()
        edit.broadcast.listeners[heard] = None
        running = asyncio.create_task(edit.run())
        await asyncio.to_thread(
            wait_until,
            lambda: any(re.search(r"tiny-GGUF.* [1-9]\d*%", each) for each in heard.words),
            "some of it",
        )
        edit.stop()
        await running
        told = list(heard.words)
        hub.store.released.set()
        await asyncio.to_thread(wait_until, lambda: is_present(settings, NAME), "the rest of it")
        assert heard.words == told


async def test_a_mistyped_file_in_the_instruction_is_told(address: ServerAddress, task: Path) -> None:
    """An edit in an editor ends before the model writes."""
    async with facing(address) as face:
        await started(face, task, instruction="make it shout as in @tsak.py")
        assert (await face.event("error"))["code"] == "file_problem"
        assert (await face.event("edit.ended"))["status"] == "failed"
