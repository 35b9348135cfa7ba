"""A journal in the test's folder, and files that are edited through it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from vivace.agent.edits.apply.journal import Change, Entry, Journal
from vivace.agent.edits.apply.source import new_source, read_source

Edit = Callable[..., Entry]


@pytest.fixture
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for the disk: only what a power cut leaves depends on that."""
    monkeypatch.setattr(os, "fsync", lambda _fd: None)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "state" / "undo")


@pytest.fixture
def edit(journal: Journal) -> Edit:
    """Give each file its new content, None for none, as one edit."""

    def edit(contents: dict[Path, str | None], instruction: str = "change it") -> Entry:
        changes = []
        for path, content in contents.items():
            source = read_source(path) if path.exists() else new_source(path)
            changes.append(Change(source, None if content is None else content.encode(), "unit"))
        return journal.apply_all(changes, instruction)

    return edit
