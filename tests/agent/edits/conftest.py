"""Sources for the edit tests, in memory and on disk."""

from collections.abc import Callable
from pathlib import Path

import pytest

from vivace.agent.edits.apply.source import SourceFile, read_source


@pytest.fixture
def on_disk(tmp_path: Path) -> Callable[..., SourceFile]:
    """Write a file into the test's folder and read it as a source."""

    def write(content: str | bytes, name: str = "app.py") -> SourceFile:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_source(path)

    return write
