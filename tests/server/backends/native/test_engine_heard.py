"""An engine is heard in the middle of its work and while it loads; one that hangs is not, and is given up."""

import asyncio
from pathlib import Path

import pytest

from tests.server.inside import served_here, until
from tests.server.serving import fetch, script
from vivace.config import Settings
from vivace.engine.wire.frames import FromEngine
from vivace.engine.wire.job import Job
from vivace.errors import StartError
from vivace.protocol.shapes.outcomes import Ended
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.server.backends.native.engines import process as engine_process
from vivace.server.backends.native.engines import supervisor as engine_supervisor
from vivace.server.backends.native.engines.process import EngineProcess
from vivace.server.backends.native.engines.supervisor import EngineSupervisor
from vivace.server.backends.native.engines.transport import SocketTransport
from vivace.server.caller import Caller

LONG = "word " * 20  # with the template, more than one pass of 64 tokens


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked more often than a server asks."""
    monkeypatch.setattr(engine_supervisor, "BEAT_S", 0.05)


async def test_a_long_pass_leaves_the_engine_ready(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass that takes three times as long as an answer may: the engine answers in its middle."""
    monkeypatch.setattr(engine_supervisor, "SILENT_S", 1.0)
    model = script(tmp_path, replies={"": "ok"}, prefill_token_ms=50)
    async with served_here(settings.having(model=model)) as inside:
        turn = inside.native.begin(ResponseCreate(input=LONG), "resp_long", Caller())
        await until(lambda: turn.submitted)
        before = (await inside.native.status()).tokens_prefilled
        while not (status := await inside.native.status()).tokens_prefilled:
            assert inside.native.is_ready
            assert status.turns == 1, "who asks for numbers has them too"
            answer, _ = await asyncio.to_thread(fetch, inside.address, "GET", "/readyz")
            assert answer == 200
        assert before == 0
        turn.interrupt()
        ends = [outcome.reason async for outcome in turn.outcomes() if isinstance(outcome, Ended)]
        assert ends == ["interrupted"]


async def test_a_runner_that_hangs_is_not_ready(settings: Settings, tmp_path: Path) -> None:
    """A pass that asks nobody whether to go on: 503 while it lasts, 200 after it."""
    model = script(tmp_path, replies={"": "ok"}, prefill_token_ms=50, is_deaf=True)
    async with served_here(settings.having(model=model)) as inside:
        turn = inside.native.begin(ResponseCreate(input=LONG), "resp_long", Caller())
        await until(lambda: not inside.native.is_ready)
        answer, _ = await asyncio.to_thread(fetch, inside.address, "GET", "/readyz")
        assert answer == 503
        await until(lambda: inside.native.is_ready)
        turn.interrupt()
        ends = [outcome.reason async for outcome in turn.outcomes() if isinstance(outcome, Ended)]
        assert ends == ["interrupted"]


# ---- loading ------------------------------------------------------------------------------------------


def job(folder: Path, **fields: object) -> Job:
    return Job(model=script(folder, **fields), path="", context_tokens=512, allow_scripted=True)  # type: ignore[arg-type]


async def test_an_engine_that_hangs_while_it_loads_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process is ended, and who waits for it is told what it did and what to do."""
    monkeypatch.setattr(engine_process, "STUCK_S", 1.0)
    life = EngineProcess()
    with pytest.raises(StartError) as raised:
        await life.begin(job(tmp_path, load_ms=3e5, is_stuck=True))
    assert "hangs" in raised.value.message
    assert "vivace doctor" in raised.value.hint
    assert life._process is not None
    assert life._process.returncode is not None


async def test_an_engine_that_gets_on_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It loads for longer than one that does nothing may."""
    monkeypatch.setattr(engine_process, "STUCK_S", 8.0)
    life = EngineProcess()
    ready = await life.begin(job(tmp_path, load_ms=10_000))
    assert ready.load_ms > 1e3 * engine_process.STUCK_S
    await life.close()


async def test_an_engine_that_is_never_done_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it is busy."""
    monkeypatch.setattr(engine_process, "LOADING_S", 1.0)
    with pytest.raises(StartError, match="hangs"):
        await EngineProcess().begin(job(tmp_path, load_ms=3e5))


async def test_whoever_asks_next_starts_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All who waited for the one that hung are told; then it is tried again."""
    monkeypatch.setattr(engine_process, "STUCK_S", 1.0)
    monkeypatch.setattr(engine_supervisor, "START_ATTEMPTS", 1)
    monkeypatch.setattr(engine_supervisor, "RETRY_AFTER_S", 0.0)
    file = tmp_path / "script.json"
    link = EngineSupervisor(job(tmp_path, load_ms=3e5, is_stuck=True))
    waiting = await asyncio.gather(link.up(), link.up(), return_exceptions=True)
    assert [type(each) for each in waiting] == [StartError, StartError]
    assert not link.is_ready
    file.write_text("{}")  # what held it up is gone
    monkeypatch.setattr(engine_process, "STUCK_S", 60.0)
    assert (await link.up()).ready.done()
    assert link.is_ready
    await link.close()


async def test_a_server_that_stops_does_not_wait_for_a_load(tmp_path: Path) -> None:
    """The process is ended with it, and nobody is left who would hear of its end."""
    link = EngineSupervisor(job(tmp_path, load_ms=3e5, is_stuck=True))
    waiting = asyncio.create_task(link.up())
    await asyncio.sleep(0)
    await link.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting


# ---- death just after loading -------------------------------------------------------------------------


class DiesWhenReady(EngineProcess):
    """An engine whose `Ready` and whose end come in the same instant, the first time."""

    count = 0

    def _receive(self, frame: FromEngine) -> None:
        super()._receive(frame)
        if self.ready.done() and not DiesWhenReady.count:
            DiesWhenReady.count += 1
            assert isinstance(self._transport, SocketTransport)
            self._transport.close()
            self._transport.connection_lost(None)


async def test_an_engine_that_dies_as_soon_as_it_is_ready_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one is started: nobody is given the dead one."""
    monkeypatch.setattr(engine_supervisor, "EngineProcess", DiesWhenReady)
    monkeypatch.setattr(DiesWhenReady, "count", 0)
    link = EngineSupervisor(job(tmp_path, replies={"": "x"}))
    assert not (await link.up()).is_dead
    assert DiesWhenReady.count == 1
    await link.close()


async def test_a_turn_on_a_dead_engine_hears_of_it(tmp_path: Path) -> None:
    """Whoever attaches after the death is told, as those before it were."""
    life = EngineProcess()
    await life.begin(job(tmp_path, replies={"": "x"}))
    life.kill()
    while not life.is_dead:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    heard: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    life.attach("turn", heard.set_result)
    assert await asyncio.wait_for(heard, 10) is None
    await life.close()
