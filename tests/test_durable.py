"""Small files that are replaced whole: what is there afterwards, and who may read it."""

import os
import stat
from pathlib import Path

import pytest

from vivace.durable import replace_file


def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    """The new bytes are there, in a folder that was made for them, and no temporary file."""
    file = tmp_path / "new" / "record.json"
    replace_file(file, b"old")
    replace_file(file, b"new")
    assert file.read_bytes() == b"new"
    assert list(file.parent.iterdir()) == [file]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes nothing costs only the new bytes."""
    file = tmp_path / "record.json"
    replace_file(file, b"old")

    def refuse(_: int) -> None:
        raise OSError("no space")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="no space"):
        replace_file(file, b"new")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_private_file_is_never_readable_by_others(tmp_path: Path) -> None:
    """The mode is that of the file from its first byte on."""
    replace_file(tmp_path / "secret", b"x", mode=0o600)
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
