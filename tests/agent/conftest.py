"""The flow is tested against the server's own fixtures: a real server with a scripted model."""

from pathlib import Path

import pytest

from tests.server.conftest import address, served, shallow_served, smol_address, smol_served

__all__ = ["address", "served", "shallow_served", "smol_address", "smol_served"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder in which a task or a conversation works."""
    folder = tmp_path / "repository"
    folder.mkdir()
    return folder
