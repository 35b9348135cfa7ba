"""Several models in memory: chosen by name without reloading, closed only when idle and room is needed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.server.inside import Inside, served_here, until
from tests.server.serving import script
from tests.server.talking import talking
from vivace.config import Settings
from vivace.engine.wire import job
from vivace.protocol.shapes.outcomes import Ended
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.server.backends.native import model_pool
from vivace.server.caller import Caller

Model = Callable[[str], str]


@pytest.fixture
def model(tmp_path: Path) -> Model:
    """The name of a scripted model that says its own name."""
    return lambda name: script(tmp_path, name, replies={"long": f"{name} " * 200, "": name}, step_ms=1)


def names(inside: Inside) -> list[str]:
    """The loaded models by their short names, the one used last first."""
    return [Path(name).stem for name in inside.native._pool.names]


async def asked(inside: Inside, model: str) -> int | None:
    """Ask once; the pid of the engine that answered."""
    async with talking(inside.address) as talker:
        answer = await talker.complete(input="hi", model=model)
    assert answer["output"][0]["content"][0]["text"] == Path(model).stem
    return (await inside.native.status()).pid


async def test_a_model_that_stays_loaded_is_not_loaded_again(settings: Settings, model: Model) -> None:
    """Two models asked for in turn keep their engines; status tells of both."""
    one, two = model("one"), model("two")
    async with served_here(settings.having(model=one, max_models=2)) as inside:
        pids = [await asked(inside, each) for each in (one, two, one, two)]
        assert pids[:2] == pids[2:]
        assert pids[0] != pids[1]
        assert (await inside.native.status()).loaded == [two, one]


async def test_the_least_recently_used_model_makes_room(settings: Settings, model: Model) -> None:
    """A third model closes the one that nobody asked for last."""
    one, two, three = model("one"), model("two"), model("three")
    async with served_here(settings.having(model=one, max_models=2)) as inside:
        first = await asked(inside, one)
        for each in (two, one, three):
            await asked(inside, each)
        assert names(inside) == ["three", "one"]
        assert await asked(inside, one) == first


async def test_a_model_that_a_turn_holds_is_not_closed(settings: Settings, model: Model) -> None:
    """Where there is no room the second turn waits for the end of the first, which is whole."""
    one, two = model("one"), model("two")
    async with served_here(settings.having(model=one, max_models=1)) as inside:
        running = await inside.begin(ResponseCreate(input="long", model=one), Caller())
        await anext(running.outcomes())
        waiting = await inside.begin(ResponseCreate(input="hi", model=two), Caller())
        assert names(inside) == ["one"]
        last = [outcome async for outcome in running.outcomes()][-1]
        assert isinstance(last, Ended)
        assert (last.reason, last.usage.output_tokens) == ("stop", len("one " * 200) + 1)
        last = [outcome async for outcome in waiting.outcomes()][-1]
        assert isinstance(last, Ended)
        assert last.reason == "stop"
        await until(lambda: names(inside) == ["two"])


async def test_memory_decides_too(settings: Settings, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit beside another takes its place."""
    monkeypatch.setattr(model_pool, "fits_beside", lambda *_: False)
    one, two = model("one"), model("two")
    async with served_here(settings.having(model=one, max_models=3)) as inside:
        await asked(inside, one)
        await asked(inside, two)
        assert names(inside) == ["two"]


async def test_a_refused_model_closes_nothing(settings: Settings, model: Model) -> None:
    """A name that cannot be loaded leaves the loaded model as it is."""
    one = model("one")
    async with served_here(settings.having(model=one, max_models=1)) as inside:
        pid = await asked(inside, one)
        async with talking(inside.address) as talker:
            await talker.create(input="hi", model="/no/such.gguf")
            refused = await talker.until_type("error")
        assert refused["error"]["code"] == "model_not_found"
        assert await asked(inside, one) == pid


def test_the_estimate_counts_weights_and_kv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model fits while the machine's share, the setting and the free memory all allow it."""
    file = tmp_path / "model.gguf"
    with file.open("wb") as opened:
        opened.truncate(1_117_320_768)
    needed = job.needed_bytes(str(file), 16384)
    assert 1.7e9 < needed < 2.2e9
    assert job.needed_bytes(str(file), 32768) > needed
    monkeypatch.setattr(job, "memory_bytes", lambda: (8 * 2**30, 6 * 2**30))
    assert job.fits_beside(str(file), [str(file)], 16384, 0)
    assert not job.fits_beside(str(file), [str(file)] * 2, 16384, 0)
    assert not job.fits_beside(str(file), [str(file)], 16384, 2 * 2**30)
    monkeypatch.setattr(job, "memory_bytes", lambda: (8 * 2**30, 2**30))
    assert not job.fits_beside(str(file), [], 16384, 0)
