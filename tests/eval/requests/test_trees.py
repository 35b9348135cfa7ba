"""Source packages: fetched once, by their hash, and said plainly where they cannot be had."""

import hashlib
from pathlib import Path

import pytest

from tests.eval.requests.conftest import TREE, make_archive
from vivace.errors import StartError
from vivace.eval.requests.requests import Project
from vivace.eval.requests.trees import fetch_projects, read_texts


def project(sha256: str) -> Project:
    return Project("Shop", "1.0", sha256, ".", "")


def test_a_package_that_is_here_is_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its hash says that it is the one."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    file = make_archive(tmp_path / "shop-1.0.tar.gz", TREE)
    said: list[str] = []
    fetch_projects([project(hashlib.sha256(file.read_bytes()).hexdigest())], tmp_path, said.append)
    assert not said
    assert sorted(read_texts(file)) == ["discounts.py", "shop.py", "tests/test_shop.py"]


def test_another_package_is_not_taken_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the index cannot be reached, the error says where to put the package."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    make_archive(tmp_path / "shop-1.0.tar.gz", TREE)
    with pytest.raises(StartError) as raised:
        fetch_projects([project("0" * 64)], tmp_path, lambda _: None)
    assert "Shop 1.0 could not be fetched" in raised.value.message
    assert str(tmp_path) in raised.value.hint
    assert [file.name for file in tmp_path.iterdir()] == ["shop-1.0.tar.gz"]
