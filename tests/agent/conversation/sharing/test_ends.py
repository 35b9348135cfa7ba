"""Holders that die, faces that misbehave, and two faces that do everything in any order."""

import asyncio
import os
import pickle
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import REPOSITORY
from tests.agent.conversation.sharing.sharing import Share, Shared, agree
from tests.agent.conversation.talking import Face
from vivace.agent.conversation.sharing import face_link
from vivace.agent.conversation.sharing.places import MAX_PATH_BYTES, make_room, socket_of
from vivace.agent.conversation.sharing.wire import frames, from_face, from_holder
from vivace.agent.conversation.transcript.file import Transcript, file_named
from vivace.errors import ConversationBusy, HolderGone, VivaceError


@asynccontextmanager
async def victim(shared: Shared) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Start a process that holds a conversation; yield it and the conversation's id."""
    given_settings = pickle.dumps((shared.settings, str(shared.folder))).hex()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.agent.conversation.sharing.holding_process", given_settings),
        cwd=REPOSITORY,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        yield process, (await process.stdout.readline()).decode().strip()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_holder_that_is_killed_in_a_turn(share: Share, face: Face, other: Face) -> None:
    """One of two attached faces takes over, the other joins it; the turn is stopped and nothing is lost."""
    shared = share({"long": "beer " * 400, "": "Hello there."}, step_ms=5)
    async with victim(shared) as (process, talk_id):
        one = await shared.open(face, talk_id, "terminal")
        two = await shared.open(other, talk_id, "browser")
        await face.until(lambda: len(face.said) > 20)
        await other.until(lambda: len(other.said) > 20)
        waiting = asyncio.create_task(two.steer("turn around"))
        process.send_signal(signal.SIGKILL)
        await face.until(lambda: face.talk is not one)
        await other.until(lambda: other.talk is not two)
        await asyncio.gather(waiting, return_exceptions=True)
    assert face.talk is not None
    assert other.talk is not None
    shared.talks += [face.talk, other.talk]
    assert sorted([face.talk.is_held, other.talk.is_held]) == [False, True]
    held, attached = (face.talk, other.talk) if face.talk.is_held else (other.talk, face.talk)
    watcher = other if attached is other.talk else face
    assert [turn.status for turn in held.turns] == ["completed", "stopped"]
    assert held.turns[1].answer.startswith("beer beer")
    assert [message.text for message in held.queue.messages] == ["And then?"]
    held.queue.remove(held.queue.messages[0].id)
    turn = await attached.send("Still there?")
    assert turn.status == "completed"
    await agree(held, attached, watcher)
    with pytest.raises(ConversationBusy):
        Transcript(file_named(shared.settings, talk_id))


async def test_what_waits_for_a_dead_holder_is_told(share: Share, face: Face) -> None:
    """A command that was on its way raises `HolderGone`, and so does one behind the end."""
    shared = share({"long": "beer " * 400, "": "Hello there."}, step_ms=5)
    async with victim(shared) as (process, talk_id):
        talk = await shared.open(face, talk_id, "terminal")
        beside = asyncio.create_task(talk.wait_idle())
        asking = asyncio.create_task(talk.context())
        await face.until(lambda: len(face.said) > 5)
        process.send_signal(signal.SIGKILL)
        await face.until(lambda: face.talk is not talk)
        with pytest.raises(VivaceError):  # busy if it was answered before
            await asking
        with pytest.raises(HolderGone):
            await talk.undo()
        beside.cancel()
    assert face.talk is not None
    shared.talks.append(face.talk)


HELLO = frames.frame(from_face.Hello(version=frames.VERSION, name="x"))


@pytest.mark.parametrize(
    "hostile",
    [
        b"\xff" * 64,
        b"GET / HTTP/1.1\r\n\r\n",
        (2**31).to_bytes(4, "big"),
        frames.frame(from_face.Stop()),
        HELLO + b"\x00\x00\x00\x01\xc1",
        HELLO + frames.frame(from_holder.Welcome(version=1, faces=())),
        HELLO + HELLO,
        HELLO + frames.frame(from_face.Answer(question="q1")) + b"\xff" * 4,
        b"",
    ],
)
async def test_hostile_bytes_end_only_their_connection(
    share: Share, face: Face, other: Face, hostile: bytes
) -> None:
    """The holder closes that connection; its own face and the attached one go on."""
    shared = share()
    held, attached = await shared.pair(face, other)
    reader, writer = await asyncio.open_unix_connection(socket_of(file_named(shared.settings, held.id)))
    writer.write(hostile)
    if not hostile:
        writer.close()
    async with asyncio.timeout(30):
        while await reader.read(65536):
            pass
    writer.close()
    assert (await attached.send("What is this?")).status == "completed"
    await agree(held, attached, other)


async def test_a_face_that_reads_too_slowly_is_dropped(
    share: Share, face: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn does not wait for it, and it can attach again."""
    monkeypatch.setattr(face_link, "MAX_BEHIND_BYTES", 2000)
    shared = share({"long": "beer " * 40, "": "Hello there."})
    held = await shared.open(face, shared.folder, "terminal")
    held.note("It begins.")
    path = socket_of(file_named(shared.settings, held.id))
    reader, writer = await asyncio.open_unix_connection(path, limit=1024)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(HELLO)
    await face.until(lambda: held.others == ("x",))
    for _ in range(30):
        held.note("something to read " * 400)
    await face.until(lambda: held.others == ())
    writer.close()
    del reader
    again = Face()
    attached = await shared.open(again, held.id, "x")
    await agree(held, attached, again)


def test_a_long_path_has_a_short_socket(tmp_path: Path) -> None:
    """Its folder is this user's alone, or it is refused."""
    deep = tmp_path / ("d" * 90) / "conversations" / "20260101-000000-abcdef.jsonl"
    path = socket_of(deep)
    assert len(os.fsencode(path)) <= MAX_PATH_BYTES
    assert path == socket_of(deep) != socket_of(deep.parent.parent / "x" / deep.name)
    make_room(path)
    path.parent.chmod(0o755)
    with pytest.raises(PermissionError):
        make_room(path)
    path.parent.rmdir()


STEPS = st.lists(
    st.tuples(
        st.booleans(), st.sampled_from(["send", "queue", "note", "stop", "rename", "effort", "rewind"])
    ),
    min_size=2,
    max_size=8,
)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
async def test_any_order_leaves_both_with_the_same(share: Share, steps: list[tuple[bool, str]]) -> None:
    """Whatever two faces do at once, both have the same records in the same order, and a third reads them."""
    face, other = Face(), Face()
    shared = share({"": "Hello there."})
    held, attached = await shared.pair(face, other)
    running = []
    for index, (is_held, what) in enumerate(steps):
        talk = held if is_held else attached
        match what:
            case "send":
                running.append(asyncio.create_task(talk.send(f"What is {index}?")))
            case "queue":
                talk.queue.add(f"What was {index}?")
            case "note":
                talk.note(f"note {index}")
            case "stop":
                talk.stop()
            case "rename":
                running.append(asyncio.create_task(talk.rename(f"title {index}")))  # type: ignore[arg-type]
            case "effort":
                talk.effort = "high" if index % 2 else "low"
            case "rewind":
                running.append(asyncio.create_task(talk.rewind(1)))  # type: ignore[arg-type]
        await asyncio.sleep(0)
    await asyncio.gather(*running, return_exceptions=True)
    await attached.rename("the end")  # everything that was sent before it has arrived
    await held.wait_idle()
    await agree(held, attached, other)
    third = Face()
    late = await shared.open(third, held.id, "late")
    await agree(held, late, third)
    for talk in (late, attached, held):
        await talk.close()
    shared.talks.clear()
