"""Conversations of faces: through the server, over the face host, with a scripted model."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.agent.conversation.talking import read
from tests.agent.edits.test_flow import NEW, OLD
from tests.server.serving import LONG, script
from tests.web.facing import FakeFace, RefusedRequest, facing
from vivace.client.warm import ServerAddress

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def answered(face: FakeFace, conversation: str, text: str, **fields: object) -> None:
    after = len(face.heard)
    await face.ask("conversation.send", conversation=conversation, text=text, **fields)
    await face.event("turn.ended", after)


async def test_a_question_is_answered_as_records(address: ServerAddress, folder: Path) -> None:
    """Every record of the turn comes as an event with a number that grows, and a snapshot has the same."""
    async with facing(address) as face:
        conversation = await face.begin(folder=str(folder))
        await answered(face, conversation, "What is this?")
        assert face.text() == "Hello there."
        numbers = [frame["seq"] for frame in face.heard if "seq" in frame]
        assert numbers == sorted(set(numbers))
        snapshot = await face.ask("conversation.open", conversation=conversation)
        kinds = [record["type"] for record in snapshot["records"]]
        assert (kinds[0], kinds[-1]) == ("conversation.started", "turn.ended")
        assert [each["text"] for each in snapshot["records"] if each["type"] == "answer.delta"] == [
            "Hello there."
        ]


async def test_how_far_the_model_is_loaded_is_its_activity(
    address: ServerAddress, folder: Path, tmp_path: Path
) -> None:
    """Of another model that is chosen: as it is read, and nothing when it answers."""
    weights = tmp_path / "weights"
    weights.touch()
    os.truncate(weights, 12_000_000_000)  # a hole: nothing is on the disk
    loads = {"load_file": str(weights), "load_bytes": 20_000_000_000}
    model = script(tmp_path, "slow", replies={"": "Here I am."}, **loads)
    async with facing(address) as face:
        conversation = await face.begin(folder=str(folder))
        await face.ask("conversation.set", conversation=conversation, model=model)
        await face.ask("conversation.send", conversation=conversation, text="What is this?")
        await face.event("live.state", activity="loading slow.json: 12 of 20 GB")
        os.truncate(weights, 20_000_000_000)
        await face.event("turn.ended")
        assert "activity" not in face.events("live.state")[-1]
        assert face.text() == "Here I am."


async def test_a_place_that_is_not_clear_is_chosen_by_a_number(address: ServerAddress, folder: Path) -> None:
    """The turn ends with the places, for every face to draw; a number as the next message edits there."""
    for name in ("ant", "bee", "cat", "dog"):
        (folder / name).mkdir()
        (folder / name / "task.py").write_text(OLD)
    async with facing(address) as face:
        conversation = await face.begin(folder=str(folder))
        await answered(face, conversation, "make `show` shout")
        (asked,) = face.events("turn.places")
        await face.ask("conversation.send", conversation=conversation, text="2")
        question = await face.event("question", kind="edit")
        assert question["files"][0]["path"] == str(folder / asked["places"][1].partition(":")[0])


async def test_two_faces_see_the_same(address: ServerAddress, folder: Path) -> None:
    """A second face gets what was so far and then the same events; a face that leaves stops nothing."""
    async with facing(address) as second:
        async with facing(address) as first:
            conversation = await first.begin(folder=str(folder))
            await first.ask("conversation.send", conversation=conversation, text="a long one, please?")
            await first.event("answer.delta")
            await second.ask("hello")
            snapshot = await second.ask("conversation.open", conversation=conversation)
            assert snapshot["is_running"]
        ended = await second.event("turn.ended")
        said = "".join(each.get("text", "") for each in snapshot["records"] if each["type"] == "answer.delta")
        assert ended["status"] == "completed"
        assert said + second.text() == LONG


async def test_an_edit_grows_is_asked_about_and_written(address: ServerAddress, task: Path) -> None:
    """The new text of the unit comes as it is written, then a question; the first answer counts."""
    async with facing(address) as face, facing(address) as other:
        conversation = await face.begin(folder=str(task.parent))
        await other.ask("hello")
        await other.ask("conversation.open", conversation=conversation)
        await face.ask("conversation.send", conversation=conversation, text="make @task.py:show shout")
        question = await face.event("question", kind="edit")
        (file,) = question["files"]
        assert (file["path"], file["old_text"], file["new_text"]) == (str(task), OLD, NEW)
        assert [hunk["hunk"] for hunk in file["hunks"]] == [0, 1]
        assert "upper()" in face.text("live.diff", "delta")
        assert not face.events("edit.delta")
        seen = await other.event("question", question=question["question"])
        answer = {"conversation": conversation, "question": seen["question"]}
        await other.ask("conversation.decide", **answer, decision="hunks", hunks=[1])
        await face.event("question.closed", question=question["question"])
        await face.event("turn.ended")
        assert read(task) == OLD[: -len("print(task.title)\n")] + "print(task.title.upper())\n"
        with pytest.raises(RefusedRequest) as late:
            await face.ask("conversation.decide", **answer, decision="accept")
        assert late.value.code == "gone"
        await face.ask("conversation.undo", conversation=conversation)
        assert read(task) == OLD


async def test_a_running_turn_is_steered_queued_and_stopped(address: ServerAddress, folder: Path) -> None:
    """A second message is refused; a steer turns the turn around; stop ends it and keeps the queue."""
    async with facing(address) as face:
        conversation = await face.begin(folder=str(folder))
        given = {"conversation": conversation}
        await face.ask("conversation.send", **given, text="a long one, please?")
        await face.event("answer.delta")
        with pytest.raises(RefusedRequest) as busy:
            await face.ask("conversation.send", **given, text="another")
        assert busy.value.code == "conversation_busy"
        await face.ask("conversation.queue.add", **given, text="what else?")
        (waiting,) = (await face.event("queue.changed"))["messages"]
        await face.ask("conversation.queue.edit", **given, message=waiting["id"], text="what more?")
        await face.ask("conversation.steer", **given, text="a long poem?")
        await face.event("attempt.abandoned", steer="a long poem?")
        await face.ask("conversation.stop", **given)
        assert (await face.event("turn.ended"))["status"] == "stopped"
        assert face.events("queue.changed")[-1]["messages"][0]["text"] == "what more?"


async def test_two_messages_at_once_begin_one_turn(address: ServerAddress, folder: Path) -> None:
    """Of two that are sent at the same moment one is refused, and says so to whoever sent it."""
    async with facing(address) as face, facing(address) as other:
        conversation = await face.begin(folder=str(folder))
        await other.ask("conversation.open", conversation=conversation)
        sent = [
            each.ask("conversation.send", conversation=conversation, text="a long one, please?")
            for each in (face, other)
        ]
        results = await asyncio.gather(*sent, return_exceptions=True)
        assert sorted(type(each).__name__ for each in results) == ["RefusedRequest", "dict"]
        await face.ask("conversation.stop", conversation=conversation)
        await face.event("turn.ended")


async def test_a_face_comes_back_where_it_was(address: ServerAddress, folder: Path) -> None:
    """With the last number that it heard it gets what it has missed, and with a wrong one everything."""
    async with facing(address) as stays:
        async with facing(address) as leaves:
            conversation = await leaves.begin(folder=str(folder))
            opened = await stays.ask("conversation.open", conversation=conversation)
            await leaves.ask("conversation.send", conversation=conversation, text="a long one, please?")
            await leaves.event("answer.delta")
            heard = [frame for frame in leaves.heard if frame.get("conversation")]
        before, last = leaves.text(), heard[-1]["seq"]
        before = "".join(
            frame["event"]["text"] for frame in heard if frame["event"]["type"] == "answer.delta"
        )
        await stays.event("turn.ended")
        async with facing(address) as back:
            given = {"conversation": conversation, "epoch": opened["epoch"]}
            snapshot = await back.ask("conversation.open", **given, after=last)
            assert not snapshot["is_whole"]
            missed = [frame["event"] for frame in snapshot["events"]]
            assert before + "".join(each["text"] for each in missed if each["type"] == "answer.delta") == LONG
            assert [frame["seq"] for frame in snapshot["events"]] == list(
                range(last + 1, snapshot["seq"] + 1)
            )
            assert (await back.ask("conversation.open", conversation=conversation, epoch="x", after=1))[
                "is_whole"
            ]


async def test_what_is_typed_is_read_ahead(address: ServerAddress, folder: Path) -> None:
    """A draft warms the prompt, and the faces are told how much of it."""
    async with facing(address) as face:
        conversation = await face.begin(folder=str(folder))
        await face.ask("conversation.prefill", conversation=conversation, draft="What is this about, and why")
        assert (await face.event("live.warm"))["prompt_tokens"] > 0


async def test_options_are_told_to_all(address: ServerAddress, folder: Path) -> None:
    """Effort and permissions are set for the conversation; nonsense is refused with its reason."""
    async with facing(address) as face:
        conversation = await face.begin(folder=str(folder))
        await face.ask("conversation.set", conversation=conversation, effort="low", policy="read-only")
        state = await face.event("live.state", effort="low")
        assert state["policy"] == "read-only"
        with pytest.raises(RefusedRequest) as refused:
            await face.ask("conversation.set", conversation=conversation, policy="anarchy")
        assert refused.value.code == "invalid_request_error"


async def test_conversations_are_listed_renamed_found_forked_and_deleted(
    address: ServerAddress, folder: Path
) -> None:
    """The list has titles; a new title, a fork and a deletion show in it."""
    async with facing(address) as face:
        conversation = await face.begin(folder=str(folder))
        await answered(face, conversation, "What about the zebra?")
        here = {"folder": str(folder)}
        (row,) = (await face.ask("conversations.list", **here))["conversations"]
        assert (row["title"], row["turns"], row["is_open"]) == ("What about the zebra?", 1, True)
        await face.ask("conversations.rename", conversation=conversation, title="Stripes")
        await face.event("live.state", title="Stripes")
        (row,) = (await face.ask("conversations.search", words="zebra"))["conversations"]
        assert (row["title"], "zebra" in row["excerpt"]) == ("Stripes", True)
        fork = (await face.ask("conversations.fork", conversation=conversation))["conversation"]
        rows = (await face.ask("conversations.list", **here))["conversations"]
        assert {each["conversation"] for each in rows} == {conversation, fork}
        await face.ask("conversations.delete", conversation=conversation)
        rows = (await face.ask("conversations.list", **here))["conversations"]
        assert [each["conversation"] for each in rows] == [fork]


async def test_nonsense_is_answered(address: ServerAddress) -> None:
    """What is no request is refused with the reason, and the connection stays."""
    async with facing(address) as face:
        for text in (
            "{",
            "[]",
            '{"id": 7}',
            '{"id": 8, "do": "nothing"}',
            '{"id": 9, "do": "hello", "x": 1}',
        ):
            await face.connection.send(text)
        for number in (0, 7, 8, 9):
            refused = await face.until(lambda frame, number=number: frame.get("id") == number)  # type: ignore[misc]
            assert refused["error"]["code"] == "bad_request"
        with pytest.raises(RefusedRequest) as old:
            await face.ask("hello", version=99)
        assert old.value.code == "bad_request"
        with pytest.raises(RefusedRequest) as closed:
            await face.ask("conversation.stop", conversation="x")
        assert closed.value.code == "conversation_not_found"
        assert (await face.ask("hello"))["version"] == 1


async def test_a_mistyped_file_is_refused(address: ServerAddress, folder: Path) -> None:
    """However it comes: sent, queued or as a steer. No turn begins, and the face has its text still."""
    (folder / "task.py").write_text(OLD)
    async with facing(address) as face:
        conversation = await face.begin(folder=str(folder))
        for what in ("conversation.send", "conversation.queue.add", "conversation.steer"):
            with pytest.raises(RefusedRequest) as refused:
                await face.ask(what, conversation=conversation, text="shorten @tsak.py")
            assert refused.value.code == "file_problem", refused.value
        assert not face.events("turn.started")
        await answered(face, conversation, "What is `@tsak.py`?")
