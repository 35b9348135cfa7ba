"""Servers in this process, on which races are brought about by holding something open.

Held open are a write, the engine, or a place in the line. The random races are in `test_races_random`.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.server.inside import Inside, served_here
from tests.server.turns.races.staging import settings_in


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Inside]:
    async with served_here(settings_in(tmp_path_factory.mktemp("wide"))) as inside:
        yield inside


@pytest_asyncio.fixture(loop_scope="package")
async def inside(shared: Inside) -> AsyncIterator[Inside]:
    yield shared
    await shared.calm()


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def shared_narrow(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Inside]:
    async with served_here(settings_in(tmp_path_factory.mktemp("narrow"), max_running=1)) as inside:
        yield inside


@pytest_asyncio.fixture(loop_scope="package")
async def narrow(shared_narrow: Inside) -> AsyncIterator[Inside]:
    """One turn at a time; the others wait."""
    yield shared_narrow
    await shared_narrow.calm()
