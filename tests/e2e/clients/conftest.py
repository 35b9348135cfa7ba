"""A stage for each test, and no server left behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.clients.stage import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()
