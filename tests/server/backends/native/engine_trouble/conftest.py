"""A server in this process whose patience with its engine is short."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.server.backends.native.engine_trouble.troubling import CALL, TEXT
from tests.server.inside import Inside, served_here, until
from tests.server.serving import script
from vivace.config import Settings
from vivace.server.backends.native.engines import supervisor as engine_supervisor


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Inside]:
    folder = tmp_path_factory.mktemp("hang")
    replies = {"call": CALL, "brief": "Fine.", "": TEXT}
    model = script(folder, replies=replies, step_ms=2, prefill_token_ms=0.2, context_tokens=16384)
    settings = Settings(
        cache_dir=folder / "cache", state_dir=folder, port=0, threads=1, model=model, allow_scripted=True
    )
    assert engine_supervisor.BEAT_S + engine_supervisor.SILENT_S < 3.0, "the truth within three seconds"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_supervisor, "BEAT_S", 0.05)
        patch.setattr(engine_supervisor, "SILENT_S", 0.2)
        patch.setattr(engine_supervisor, "HUNG_S", 2.0)
        patch.setattr(engine_supervisor, "STATS_S", 0.2)
        patch.setattr(engine_supervisor, "CALM_S", 0.0)  # so that deaths in other tests delay nothing here
        async with served_here(settings.having(max_running=4)) as inside:
            yield inside


@pytest_asyncio.fixture(loop_scope="package")
async def inside(shared: Inside) -> AsyncIterator[Inside]:
    await until(lambda: shared.native.is_ready)
    yield shared
    await until(lambda: shared.native.is_ready)
    await shared.calm()
