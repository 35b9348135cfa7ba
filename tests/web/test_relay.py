"""The way between a face and the face host: what happens when one of them fails or is slow."""

import asyncio
import contextlib
import os
import signal
import stat
from pathlib import Path

import pytest

from tests.server.serving import LONG, script, until
from tests.web.facing import facing
from vivace.client import warm
from vivace.client.warm import ServerAddress
from vivace.config import Settings
from vivace.protocol.face_frames import framed
from vivace.web.host import Host

pytestmark = pytest.mark.asyncio(loop_scope="module")


def hosts(address: ServerAddress) -> list[int]:
    """Return the processes of the face host: children of the server that run `vivace.web`."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int(folder.joinpath("stat").read_text().rpartition(")")[2].split()[1])
            is_it = b"vivace.web\0" in folder.joinpath("cmdline").read_bytes()
            if parent == address.pid and is_it:
                found.append(int(folder.name))
    return found


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="Needs /proc, which Linux has.")


@needs_proc
async def test_a_killed_host_is_started_again(address: ServerAddress, folder: Path) -> None:
    """The face is told to come again, finds a new host, and its conversation is there."""
    async with facing(address) as face:
        conversation = await face.begin(folder=str(folder))
        await face.ask("conversation.send", conversation=conversation, text="a long one, please?")
        await face.event("answer.delta")
        (pid,) = hosts(address)
        os.kill(pid, signal.SIGKILL)
        await face.connection.wait_closed()
        assert face.connection.close_code == 1012
    async with facing(address) as face:
        await face.ask("hello")
        snapshot = await face.ask("conversation.open", conversation=conversation)
        assert (snapshot["is_whole"], snapshot["is_running"]) == (True, False)
        assert [each["text"] for each in snapshot["records"] if each["type"] == "turn.started"] == [
            "a long one, please?"
        ]
        assert hosts(address) != [pid]


async def test_the_socket_is_for_this_user_alone(address: ServerAddress, served: Settings) -> None:
    """Nobody else can connect to the host."""
    async with facing(address) as face:
        await face.ask("hello")
        mode = (served.run_dir / "faces.sock").stat().st_mode
        assert (stat.S_ISSOCK(mode), stat.S_IMODE(mode)) == (True, 0o600)
        assert stat.S_IMODE(served.run_dir.stat().st_mode) == 0o700


async def test_a_face_that_reads_nothing_stops_nobody(address: ServerAddress, folder: Path) -> None:
    """Others hear everything meanwhile."""
    async with facing(address) as face, facing(address, max_queue=1) as slow:
        conversation = await face.begin(folder=str(folder))
        await slow.ask("conversation.open", conversation=conversation)
        slow.connection.transport.pause_reading()
        for _ in range(3):
            heard = len(face.heard)
            await face.ask("conversation.send", conversation=conversation, text="a long one, please?")
            assert (await face.event("turn.ended", heard))["status"] == "completed"
        slow.connection.transport.abort()


@needs_proc
async def test_hostile_bytes_end_only_their_own_connection(address: ServerAddress, served: Settings) -> None:
    """On the host's own socket nonsense closes that connection, and faces go on."""
    async with facing(address) as face:
        await face.ask("hello")
        before = hosts(address)
        for data in (
            b"\xff\xff\xff\xff",
            b"\0\0\0\5hello",
            b"\0\0\0\2{}\xff\xff\xff\xff",
            b"\0\0\0\2{}\0\0\0\3abc",
        ):
            reader, writer = await asyncio.open_unix_connection(str(served.run_dir / "faces.sock"))
            writer.write(data)
            writer.write_eof()
            async with asyncio.timeout(60):
                await reader.read()
            writer.close()
        assert (await face.ask("hello"))["version"] == 1
        assert hosts(address) == before


@needs_proc
async def test_the_host_ends_with_the_server(start_own: Settings) -> None:
    """Also when the server is killed: the end of its standard input is the host's end."""
    address = await asyncio.to_thread(warm.ensure_server, start_own)
    async with facing(address) as face:
        await face.ask("hello")
        (pid,) = hosts(address)
        os.kill(address.pid, signal.SIGKILL)
    await asyncio.to_thread(until, lambda: not is_alive(pid))


def is_alive(pid: int) -> bool:
    """Return whether a process runs. One that has ended and nobody has waited for does not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.fixture
def start_own(settings: Settings, tmp_path: Path) -> Settings:
    return settings.having(model=script(tmp_path, replies={"long": LONG, "": "Hello."}, step_ms=5))


@needs_proc
async def test_a_stopped_server_stays_stopped(start_own: Settings, folder: Path) -> None:
    """The host is a child of the server: in the middle of a turn too, it ends with it and starts no other."""
    address = await asyncio.to_thread(warm.ensure_server, start_own)
    async with facing(address) as face:
        conversation = await face.begin(folder=str(folder))
        (pid,) = hosts(address)
        await face.ask("conversation.send", conversation=conversation, text="a long one, please?")
        await asyncio.to_thread(warm.stop_server, start_own, is_hurried=True)
        await face.connection.wait_closed()
        assert face.connection.close_code == 1012
    await asyncio.to_thread(until, lambda: not is_alive(pid))
    assert await asyncio.to_thread(warm.find_server, start_own) is None


async def test_a_host_without_faces_ends(settings: Settings, tmp_path: Path) -> None:
    """It ends by itself, and takes its socket along; while a face is here it stays."""
    socket_file = tmp_path / "faces.sock"
    host = Host(settings, idle_s=0.2, grace_s=0.05)
    serving = asyncio.create_task(host.serve(socket_file))
    await asyncio.to_thread(until, lambda: socket_file.exists())
    _, writer = await asyncio.open_unix_connection(str(socket_file))
    writer.write(framed(b"{}"))
    await asyncio.to_thread(until, lambda: host.faces)
    await asyncio.sleep(0.5)
    assert not serving.done()
    writer.close()
    async with asyncio.timeout(60):
        await serving
    assert not socket_file.exists()
