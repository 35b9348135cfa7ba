"""Ruff and ty beside our own checks, where they are installed."""

from pathlib import Path

import pytest

from vivace.agent.edits.apply.source import read_source
from vivace.agent.edits.check.faults.tools import Tools, find_checker

needs_ruff = pytest.mark.skipif(not find_checker("ruff"), reason="needs ruff")
needs_ty = pytest.mark.skipif(not find_checker("ty"), reason="needs ty")

OLD = "from .store import load\n\n\ndef first(path):\n    return load(path), missing\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text('[tool.ruff.lint]\nignore = ["F"]\n')
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").touch()
    store = "class Row:\n    def name(self, case): ...\n\n\ndef load(path) -> Row: ...\n"
    (package / "store.py").write_text(store)
    path = package / "app.py"
    path.write_text(OLD)
    return path


def faults(file: Path, new: str) -> list[str]:
    return Tools([read_source(file)]).faults({file: new})


@needs_ruff
def test_ruff_says_what_is_new(file: Path) -> None:
    """What was wrong before is not told, and the project's own settings count for nothing."""
    found = faults(file, OLD.replace("path), missing", "path), missing, '%s %s' % (1,)"))
    assert "Ruff (F507): `%`-format string has 2 placeholder(s) but 1 substitution(s)." in found
    assert not any("missing" in each for each in found)


@needs_ty
def test_ty_sees_the_other_files_of_the_project(file: Path) -> None:
    """It reads the project beside the new text, whose file stays as it is."""
    found = faults(file, OLD.replace("load(path),", "load(path).name(),"))
    assert any(each.startswith("ty: ") and "`case`" in each for each in found)
    assert file.read_text() == OLD


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = folder / "checker"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr("vivace.agent.edits.check.faults.tools.find_checker", lambda *_: str(program))


def test_a_checker_that_hangs_says_nothing(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a help, and no edit waits for it."""
    stand_in(tmp_path, monkeypatch, "exec sleep 60")
    monkeypatch.setattr("vivace.agent.edits.check.faults.tools.SECONDS", 0.1)
    assert faults(file, OLD.replace("missing", "nothing")) == []


def test_a_checker_that_fails_once_charges_nothing(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it says nothing of the old text, what it says of the new one may be no news."""
    said = '[{"code": "F821", "check_name": "unresolved-reference", "message": "x", "description": "x"}]'
    seen = tmp_path / "seen"
    stand_in(tmp_path, monkeypatch, f"test -e {seen} && exit 2; touch {seen}; echo '{said}'")
    monkeypatch.setattr("vivace.agent.edits.check.faults.tools.NAMES", ("ruff",))
    assert faults(file, OLD.replace("missing", "nothing")) == []
