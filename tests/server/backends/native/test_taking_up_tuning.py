"""What tuning found is taken over by the engine between two turns, and conversations go on."""

from pathlib import Path

from msgspec.structs import replace

from tests.server.inside import served_here
from vivace.client.responses import ResponsesClient
from vivace.config import Settings
from vivace.engine.tuning import profile


async def test_the_engine_is_restarted_only_for_something_better(settings: Settings, shallow: Path) -> None:
    """Not without a measurement, nor for one that changes nothing; otherwise, and the talk is continued."""
    settings = settings.having(model=str(shallow))
    body = {"model": settings.model, "temperature": 0, "max_output_tokens": 4}
    async with served_here(settings) as inside, ResponsesClient(inside.address) as client:
        first = await client.complete(body | {"input": "My name is Ada."})
        before = await inside.native.status()
        assert not await inside.native.apply_tuning()
        found = replace(profile.skipped("m", shallow, ""), state="measured", threads=1, chunk_tokens=64)
        profile.write(settings, shallow, found)
        assert not await inside.native.apply_tuning(), "the same weights, run as before"
        profile.write(settings, shallow, replace(found, use_extra_bufts=False))
        assert await inside.native.apply_tuning()
        assert not await inside.native.apply_tuning()
        second = await client.complete(body | {"input": "What is my name?", "previous_response_id": first.id})
        after = await inside.native.status()
    assert second.status in ("completed", "incomplete")
    assert (after.is_ready, before.is_ready) == (True, True)
    assert after.pid != before.pid
