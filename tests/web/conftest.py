"""A real server with a scripted model, and a folder of the user's."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.conversation.talking import EDITING
from tests.agent.edits.test_flow import OLD
from tests.server.serving import LONG, close_connections, script, until_ready
from vivace.client import warm
from vivace.client.warm import ServerAddress
from vivace.config import Settings


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A server with a scripted model: short answers are instant, "long" is answered at length."""
    folder = tmp_path_factory.mktemp("faces")
    model = script(folder, replies={"long": LONG, **EDITING}, step_ms=1, context_tokens=20000)
    settings = Settings(
        cache_dir=folder / "cache",
        state_dir=folder / "state",
        port=0,
        model=model,
        allow_scripted=True,
        context_tokens=20000,
        tune="never",
        threads=1,
    )
    warm.ensure_server(settings)
    until_ready(settings)
    yield settings
    assert warm.stop_server(settings)
    close_connections()


@pytest.fixture(scope="module")
def address(served: Settings) -> ServerAddress:
    return warm.ensure_server(served)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    return folder


@pytest.fixture
def task(folder: Path) -> Path:
    """A file that the scripted model can edit."""
    file = folder / "task.py"
    file.write_text(OLD)
    return file
