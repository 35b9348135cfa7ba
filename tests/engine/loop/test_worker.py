"""The engine as a process: it says Ready, obeys between steps, and never outlives its server."""

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from vivace.child_python import module_command
from vivace.engine.wire.frames import (
    Append,
    Failed,
    Finished,
    Frame,
    FromEngine,
    Generate,
    Interrupt,
    Loading,
    Open,
    Park,
    Ready,
    Stats,
    StatsReply,
    Tokens,
    pack,
    server_unpacker,
)

F = TypeVar("F", bound=Frame)


class EngineProcess:
    def __init__(self, model: str, path: str = "", **wishes: object) -> None:
        self.link, theirs = socket.socketpair()
        self.link.settimeout(60)
        job = json.dumps(
            {"model": model, "path": path, "context_tokens": 2048, "threads": 1, "allow_scripted": True}
            | wishes
        )
        worker = "vivace.testing.worker" if model.startswith("scripted:") else "vivace.engine.loop.worker"
        command = module_command(worker, str(theirs.fileno()), job)
        self.process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE, text=True
        )
        theirs.close()
        self._unpacker = server_unpacker()
        self._waiting: list[FromEngine] = []

    def send(self, *frames: Frame) -> None:
        self.link.sendall(b"".join(map(pack, frames)))

    def next(self, kind: type[F]) -> F:
        """The next frame, which must be of this kind; on a busy machine `Ready` is a while in coming."""
        while not self._waiting:
            data = self.link.recv(65536)
            assert data, "the engine is gone"
            self._waiting += self._unpacker.feed(data)
        frame = self._waiting.pop(0)
        if isinstance(frame, Loading) and kind is Ready:
            return self.next(kind)
        assert isinstance(frame, kind), frame
        return frame

    def close(self) -> None:
        self.link.close()
        self.process.wait(30)
        assert self.process.stderr
        self.process.stderr.close()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EngineProcess]:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"replies": {"": "x" * 500}, "step_ms": 5}))
    engine = EngineProcess(f"scripted:{script}")
    yield engine
    engine.close()


def test_it_says_ready_first(engine: EngineProcess) -> None:
    """The first frame tells what was loaded, and by which process."""
    ready = engine.next(Ready)
    assert ready.pid == engine.process.pid
    assert ready.context_tokens == 4096


def test_an_interrupt_is_obeyed_between_two_steps(engine: EngineProcess) -> None:
    """After an interrupt at most the tokens already on their way come, then the end."""
    engine.next(Ready)
    engine.send(Open("s"), Generate("s", "t", [65], max_tokens=400))
    engine.next(Tokens)
    engine.send(Interrupt("t"), Stats())
    seen: list[FromEngine] = []
    while not isinstance(seen[-1] if seen else None, Finished):
        seen.append(engine.next(Frame))  # type: ignore[arg-type]
    assert len(seen) < 20
    assert engine.next(StatsReply).turns == 0


def test_it_ends_when_its_server_does(engine: EngineProcess) -> None:
    """The socket's end is the engine's end, also in the middle of a turn."""
    engine.next(Ready)
    engine.send(Open("s"), Generate("s", "t", [65], max_tokens=400))
    engine.next(Tokens)
    engine.link.close()
    assert engine.process.wait(30) == 0


def test_a_refused_frame_is_answered(engine: EngineProcess) -> None:
    """A turn on a session that is not there fails by name, and the engine lives on."""
    engine.next(Ready)
    engine.send(Generate("nobody", "t", [1]))
    assert engine.next(Failed).turn == "t"
    engine.send(Stats())
    assert engine.next(StatsReply).sessions == 0


def test_a_file_that_is_no_model_could_not_start(tmp_path: Path) -> None:
    """Exit code 3, and one sentence about the file on stderr."""
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"not a model")
    engine = EngineProcess("broken", str(file))
    _, said = engine.process.communicate(timeout=60)
    engine.link.close()
    assert engine.process.returncode == 3
    assert "broken.gguf" in said
    assert "Traceback" not in said


def test_a_player_fails_a_turn_that_it_cannot_play(tmp_path: Path) -> None:
    """A prompt that is no text ends its turn; the next one is played."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"replies": {"": "x"}, "is_engineless": True}))
    engine = EngineProcess(f"scripted:{script}")
    engine.next(Ready)
    engine.send(Generate("s", "bad", [-1]), Generate("s", "good", [65], max_tokens=1))
    assert engine.next(Failed).turn == "bad"
    assert engine.next(Tokens).turn == "good"
    engine.close()


@pytest.mark.parametrize("is_told", [True, False], ids=["Park", "close"])
def test_what_was_parked_is_written_when_the_process_ends(tmp_path: Path, is_told: bool) -> None:
    """Twenty sessions, a `Park` each and at once the end of the socket, or its end alone: all go on later."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"replies": {"": "x"}}))
    wishes = {"kv_folder": str(tmp_path / "kv"), "kv_disk_bytes": 1 << 24}
    engine = EngineProcess(f"scripted:{script}", **wishes)  # type: ignore[arg-type]
    engine.next(Ready)
    for number in range(20):
        engine.send(Open(f"s{number}"), Append(f"s{number}", "t", [number, *range(100)]))
        engine.next(Finished)
    if is_told:
        engine.send(*(Park(f"s{number}") for number in range(20)))
    engine.close()
    assert engine.process.returncode == 0
    engine = EngineProcess(f"scripted:{script}", **wishes)  # type: ignore[arg-type]
    engine.next(Ready)
    for number in range(20):
        engine.send(Open(f"s{number}"), Append(f"s{number}", "t", [number, *range(100)]))
        assert engine.next(Finished).waterfall.restored_tokens == 101
    engine.close()
