"""Which way of installing is recognised."""

from pathlib import Path

import pytest

from vivace.installation import find_installation


@pytest.mark.parametrize(
    ("file", "way", "is_checked"),
    [
        ("ready", "./vivace in ", True),
        ("ready-dev", "./vivace in ", True),
        ("pipx_metadata.json", "pipx, in ", False),
        ("uv-receipt.toml", "uv tool, in ", False),
        ("pyvenv.cfg", "pip, in ", False),
    ],
)
def test_each_way_leaves_its_mark(tmp_path: Path, file: str, way: str, is_checked: bool) -> None:
    """The file that a way leaves in its environment names it."""
    (tmp_path / file).touch()
    found = find_installation(tmp_path, tmp_path)
    assert found.way == f"{way}{tmp_path}"
    assert found.is_checked == is_checked
    assert str(found).startswith(found.way)
