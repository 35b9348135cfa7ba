"""A workspace for tools."""

from pathlib import Path

import pytest

from tests.agent.tools.workbench import context_for
from vivace.agent.tools.base import ToolContext


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    root.mkdir()
    return root


@pytest.fixture
def context(root: Path) -> ToolContext:
    return context_for(root)
