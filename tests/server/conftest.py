"""Servers for the tests: real ones, in processes of their own, on loopback."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.server.backends.upstream.fake import Fake
from tests.server.serving import LONG, close_connections, script, until_ready
from vivace.client import warm
from vivace.client.warm import ServerAddress
from vivace.config import Settings


@pytest.fixture(autouse=True)
def no_connection_left() -> Iterator[None]:
    yield
    close_connections()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A server with a scripted model: short answers are instant, and "long" is answered at length."""
    folder = tmp_path_factory.mktemp("served")
    model = script(
        folder, replies={"long": LONG, "emoji": "a\u00e9\u20ac\U0001f600z", "": "Hello there."}, step_ms=1
    )
    yield from _server(folder, model)


@pytest.fixture(scope="session")
def smol_served(tmp_path_factory: pytest.TempPathFactory, smol: Path) -> Iterator[Settings]:
    """A server with the small real model; one for all, because it takes seconds to load."""
    yield from _server(tmp_path_factory.mktemp("smol"), str(smol))


@pytest.fixture(scope="session")
def shallow_served(tmp_path_factory: pytest.TempPathFactory, shallow: Path) -> Iterator[Settings]:
    """A server with two layers of the small real model: real tokens that make no sense."""
    yield from _server(tmp_path_factory.mktemp("shallow-served"), str(shallow))


def _server(folder: Path, model: str) -> Iterator[Settings]:
    settings = Settings(
        cache_dir=folder / "cache",
        state_dir=folder / "state",
        port=0,
        model=model,
        allow_scripted=True,
        context_tokens=4096,
        tune="never",
        threads=1,  # on a busy machine two threads wait for each other: ten times slower
    )
    warm.ensure_server(settings)
    until_ready(settings)
    yield settings
    assert warm.stop_server(settings)


@pytest.fixture(scope="module")
def address(served: Settings) -> ServerAddress:
    return warm.ensure_server(served)


@pytest.fixture(scope="session")
def smol_address(smol_served: Settings) -> ServerAddress:
    return warm.ensure_server(smol_served)


@pytest.fixture(scope="session")
def shallow_address(shallow_served: Settings) -> ServerAddress:
    return warm.ensure_server(shallow_served)


@pytest.fixture
def start(settings: Settings) -> Iterator[Callable[..., Settings]]:
    """Start a server of one's own with other settings; it is stopped afterwards if it still runs."""
    started: list[Settings] = []

    def begin(**changes: object) -> Settings:
        started.append(settings.having(**changes))
        warm.ensure_server(started[-1])
        return started[-1]

    yield begin
    for one in started:
        warm.stop_server(one)


@pytest.fixture
def fake() -> Iterator[Fake]:
    """An upstream that says what a test tells it to."""
    fake = Fake()
    yield fake
    fake.close()
