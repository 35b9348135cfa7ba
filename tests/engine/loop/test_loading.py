"""While a model is loaded the engine tells that it gets on, and only then."""

import json
import time
from pathlib import Path

import pytest

from tests.engine.loop.test_worker import EngineProcess
from vivace.engine.loop import loading
from vivace.engine.loop.loading import ProcessActivity, loading_heartbeat
from vivace.engine.loop.opening import open_runner
from vivace.engine.wire.frames import Frame, Loading, Ready
from vivace.engine.wire.job import Job


def work() -> None:
    begun = time.process_time()
    while time.process_time() - begun < 2 * loading.MIN_CPU_S:
        pass


def test_what_counts_is_what_was_done_since(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processor time, or a read; not time that has passed."""
    done = (1.0, 5)
    monkeypatch.setattr(loading, "_activity", lambda: done)
    effort = ProcessActivity()
    assert not effort.has_grown()
    done = (1.0 + 2 * loading.MIN_CPU_S, 5)
    assert effort.has_grown()
    assert not effort.has_grown()
    done = (done[0] + loading.MIN_CPU_S / 2, 5)
    assert not effort.has_grown()
    done = (done[0], 6)
    assert effort.has_grown()


def test_work_is_noticed() -> None:
    """As the system counts it."""
    effort = ProcessActivity()
    work()
    assert effort.has_grown()


def test_nothing_is_told_after_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sends next has the socket alone."""
    monkeypatch.setattr(loading, "BEAT_S", 0.001)
    told: list[Loading] = []
    with loading_heartbeat(told.append):
        while not told:
            work()
    count = len(told)
    for _ in range(10):
        work()
        time.sleep(0.001)
    assert len(told) == count


def test_a_server_that_is_gone_ends_the_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread ends; what loads hears nothing of it."""
    monkeypatch.setattr(loading, "BEAT_S", 0.001)
    calls = []

    def send(frame: Loading) -> None:
        calls.append(frame)
        raise BrokenPipeError

    with loading_heartbeat(send):
        while not calls:
            work()
        work()
    assert len(calls) == 1


def test_what_is_read_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A beat has what the runner told last."""
    monkeypatch.setattr(loading, "BEAT_S", 0.001)
    told: list[Loading] = []
    with loading_heartbeat(told.append) as tell:
        tell(3, 7)
        while not told:
            work()
    assert told[-1] == Loading(read_bytes=3, total_bytes=7)


def test_a_real_model_tells_how_much_of_it_is_read(smol: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With llama.cpp: more and more, in the end the whole file."""
    monkeypatch.setattr(loading, "BEAT_S", 0.001)
    told, read, size = list[Loading](), list[tuple[int, int]](), smol.stat().st_size
    with loading_heartbeat(told.append) as tell:

        def both(done: int, total: int) -> None:
            read.append((done, total))
            tell(done, total)

        job = Job("smol", str(smol), context_tokens=256, threads=1, device="cpu")
        runner = open_runner(job, tell=both).runner
        while told[-1].read_bytes < size:
            work()
    runner.close()
    assert [done for done, _ in read] == sorted(done for done, _ in read)
    assert {total for _, total in read} == {size}
    assert 0 < read[1][0] < size


def test_a_process_tells_that_it_loads(tmp_path: Path) -> None:
    """`Loading`, as often as there is news, then `Ready`."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"load_ms": 2500}))
    engine = EngineProcess(f"scripted:{script}")
    frames: list[Frame] = []
    while not frames or isinstance(frames[-1], Loading):
        frames.append(engine.next(Frame))  # type: ignore[type-var]
    assert isinstance(frames[-1], Ready)
    assert frames[:-1]
    engine.close()
