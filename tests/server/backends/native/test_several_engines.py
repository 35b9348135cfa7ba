"""Several engines of one model: sessions spread over them, stay where they are, and go on when one dies."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.server.inside import Inside, served_here, until
from tests.server.serving import script
from tests.server.talking import ENDS, Talker, talking
from vivace.config import Settings
from vivace.engine.wire.frames import Ready
from vivace.engine.wire.job import Job, engine_jobs

TEXT = "".join(f"{number:03} " for number in range(150))
LONG = TEXT * 10
READY = Ready(
    "m", 1024, 1024, 1024, 1.0, 1, 1.0, 1, device="cuda", gpu_devices=["cuda:1", "cuda:0", "cuda:2"]
)


def homes(inside: Inside) -> dict[int, list[str]]:
    """Return the open sessions of each engine, by its process."""
    loaded = inside.native._pool.latest
    assert loaded is not None
    found: dict[int, list[str]] = {process.ready.result().pid: [] for process in loaded.engines.processes}
    for session in loaded._open.values():
        if session.open_in in loaded.engines.processes:
            found[session.open_in.ready.result().pid].append(session.name)  # type: ignore[attr-defined]
    return found


async def beside_a_long_one(inside: Inside, talker: Talker) -> list[dict[str, Any]]:
    """Return two responses: one that was interrupted, and one that began and ended while it ran."""
    await talker.create(input="long", stream_id="a")
    await talker.until_type("response.output_text.delta")
    running = next(iter(inside.native._turns))
    await talker.create(input="short", stream_id="b", temperature=0, max_output_tokens=64)
    short = (await talker.until(lambda e: e["type"] in ENDS and e["stream_id"] == "b"))["response"]
    assert not running.is_over
    running.interrupt()
    return [(await talker.ended())["response"], short]


async def both_up(inside: Inside, talker: Talker) -> None:
    await talker.complete(input="hello", store=False, max_output_tokens=4)
    await until(lambda: len(homes(inside)) == 2)


async def test_sessions_spread_and_stay(settings: Settings, tmp_path: Path) -> None:
    """Two that run at once are on two engines; what continues one stays with it, and so does a fork."""
    model = script(tmp_path, replies={"long": LONG, "": TEXT}, step_ms=2.0, context_tokens=16384)
    several = settings.having(model=model, cpu_engines=2)
    async with served_here(several) as inside, talking(inside.address) as talker:
        await both_up(inside, talker)
        first = await beside_a_long_one(inside, talker)
        before = homes(inside)
        assert all(before.values())
        for response in first:
            then = await talker.complete(
                input="more", previous_response_id=response["id"], max_output_tokens=4
            )
            assert then["vivace"]["waterfall"]["cached_tokens"] > 4
            assert homes(inside) == before
        forked = await talker.complete(
            input="other", previous_response_id=first[1]["id"], max_output_tokens=4
        )
        assert forked["vivace"]["waterfall"]["cached_tokens"] > 64
        status = await inside.native.status()
        counts = {pid: len(sessions) for pid, sessions in homes(inside).items()}
        assert {each.pid: each.sessions for each in status.engines} == counts
        assert all(each.is_ready and each.kv_cells == 16384 for each in status.engines)
        assert (status.sessions, status.kv_cells) == (sum(counts.values()), 2 * 16384)


async def test_a_history_that_is_sent_again_goes_where_its_kv_is(settings: Settings, tmp_path: Path) -> None:
    """A client that names no response is known by what its prompt begins with."""
    model = script(tmp_path, replies={"": "Fine."})
    several = settings.having(model=model, cpu_engines=2)
    async with served_here(several) as inside, talking(inside.address) as talker:
        await both_up(inside, talker)
        long = "This is how it began. " * 20
        await talker.complete(input=long)
        again = await talker.complete(input=f"{long} And this is how it goes on.")
        assert again["vivace"]["waterfall"]["cached_tokens"] > len(long) - 10


async def test_an_engine_that_dies_hands_its_sessions_over(settings: Settings, tmp_path: Path) -> None:
    """Its turn goes on on the other one, with the same text, and says so; then there are two again."""
    model = script(tmp_path, replies={"": TEXT}, step_ms=4.0)
    several = settings.having(model=model, cpu_engines=2)
    async with served_here(several) as inside, talking(inside.address) as talker:
        await both_up(inside, talker)
        await talker.create(input="one", stream_id="a")
        await talker.create(input="two", stream_id="b")
        await until(
            lambda: (
                all(turn.output_tokens for turn in inside.native._turns) and len(inside.native._turns) == 2
            )
        )
        turn = next(iter(inside.native._turns))
        assert turn.session is not None
        victim = turn.session.open_in.ready.result().pid  # type: ignore[union-attr, attr-defined]
        os.kill(victim, signal.SIGKILL)
        ended = {e["stream_id"]: e["response"] for e in [await talker.ended() for _ in range(2)]}
        assert {each["output"][0]["content"][0]["text"] for each in ended.values()} == {TEXT}
        assert sorted(each["vivace"]["waterfall"]["restarts"] for each in ended.values()) == [0, 1]
        await until(lambda: len(homes(inside)) == 2 and victim not in homes(inside))
        moved = next(each for each in ended.values() if each["vivace"]["waterfall"]["restarts"])
        then = await talker.complete(input="more", previous_response_id=moved["id"])
        assert then["vivace"]["waterfall"]["cached_tokens"] > len(TEXT)  # it stayed where it went


async def test_the_death_of_one_does_not_touch_the_other(settings: Settings, tmp_path: Path) -> None:
    """While it starts again, the other's turn goes on, its sessions stay, and the status tells both apart."""
    weights, gate = tmp_path / "weights", 20
    weights.touch()
    os.truncate(weights, gate)
    fields: dict[str, Any] = {"load_file": str(weights), "load_bytes": gate}
    model = script(tmp_path, replies={"long": LONG, "": "ok"}, step_ms=10.0, context_tokens=16384, **fields)
    several = settings.having(model=model, cpu_engines=2)
    async with served_here(several) as inside, talking(inside.address) as talker:
        await both_up(inside, talker)
        await talker.create(input="long", stream_id="a")
        await talker.until_type("response.output_text.delta")
        turn = next(iter(inside.native._turns))
        assert turn.session is not None
        alive = turn.session.open_in.ready.result().pid  # type: ignore[union-attr, attr-defined]
        (victim,) = homes(inside).keys() - {alive}
        os.truncate(weights, gate // 2)
        os.kill(victim, signal.SIGKILL)
        await until(lambda: list(homes(inside)) == [alive])
        for _ in range(3):  # new sessions have only the one that is left
            assert (await talker.complete(input="hi", stream_id="b"))["vivace"]["waterfall"]["restarts"] == 0
        while (status := await inside.native.status()).engines[0].loading == status.engines[1].loading:
            pass
        assert inside.native.is_ready
        assert status.loading is None, "nobody waits for it"
        up, coming = sorted(status.engines, key=lambda each: each.pid is None)
        assert (up.pid, up.is_ready, up.turns) == (alive, True, 1)
        assert (coming.pid, coming.is_ready) == (None, False)
        assert coming.loading is not None
        assert coming.loading.done == gate // 2
        os.truncate(weights, gate)
        await until(lambda: len(homes(inside)) == 2)
        said = turn.output_tokens
        await until(lambda: turn.output_tokens > said)
        turn.interrupt()
        ended = (await talker.ended())["response"]
        assert LONG.startswith(ended["output"][0]["content"][0]["text"])
        assert ended["vivace"]["waterfall"]["restarts"] == 0


@pytest.mark.parametrize(
    ("changes", "devices"),
    [
        ({}, ["auto", "cuda:0", "cuda:2"]),
        ({"gpus": "1"}, ["auto"]),
        ({"gpus": 2}, ["auto", "cuda:0"]),
        ({"gpus": "0,2"}, ["auto", "cuda:2"]),
        ({"device": "cuda:1"}, ["auto"]),
    ],
)
def test_which_gpus_get_an_engine(settings: Settings, changes: dict[str, object], devices: list[str]) -> None:
    """All that can run the same, as many as were asked for, or those that were named."""
    first = Job("m", "", context_tokens=256, kv_disk_bytes=900, kv_memory_bytes=900)
    jobs = engine_jobs(settings.having(**changes), first, READY)
    assert [job.device for job in jobs] == devices
    assert {job.kv_disk_bytes for job in jobs} == {900}, "they share a folder"
    assert all(job.kv_memory_bytes == 900 // len(jobs) for job in jobs[1:])


async def test_a_model_says_the_same_on_every_engine(settings: Settings, shallow: Path) -> None:
    """Two layers of a real model: two sessions at once, each on an engine of its own, greedily."""
    several = settings.having(model=str(shallow), cpu_engines=2, threads=1, context_tokens=8192)
    question = {"input": "Count from 1 to 9.", "temperature": 0, "store": False}
    async with served_here(several) as inside, talking(inside.address) as talker:
        await both_up(inside, talker)
        await talker.create(**question, max_output_tokens=4000, stream_id="a")
        await talker.until_type("response.output_text.delta")
        running = next(iter(inside.native._turns))
        await talker.create(**question, max_output_tokens=12, stream_id="b")
        short = (await talker.until(lambda e: e["type"] in ENDS and e["stream_id"] == "b"))["response"]
        assert not running.is_over
        await until(lambda: running.output_tokens >= 12)
        running.interrupt()
        long = (await talker.ended())["response"]
        texts = [each["output"][0]["content"][0]["text"] for each in (long, short)]
        assert texts[0].startswith(texts[1])
        assert all(homes(inside).values())
