"""`vivace memory` and `vivace init` from the command line."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from vivace.cli.main import app
from vivace.errors import UsageError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CACHE", "STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), standalone_mode=False)


def test_notes_are_added_listed_searched_changed_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one command keeps the next one finds."""
    monkeypatch.setenv("EDITOR", "sed -i s/eight/nine/")
    monkeypatch.delenv("VISUAL", raising=False)
    assert "Nothing is remembered here." in run("memory").output
    assert run("memory", "add", "the", "pool", "has", "eight").output == (
        "Remembered: 1  project  the pool has eight\n"
    )
    run("memory", "add", "--user", "speak French")
    assert run("memory").output.splitlines() == [
        "   1  project  the pool has eight",
        "   2  user     speak French",
    ]
    assert run("memory", "edit", "1").output == "Changed: 1  project  the pool has nine\n"
    assert run("memory", "search", "pool").output == "   1  project  the pool has nine\n"
    run("memory", "remove", "1")
    assert run("memory").output == "   2  user     speak French\n"
    assert isinstance(run("memory", "remove", "1").exception, UsageError)


def test_instruction_files_are_listed(home: Path) -> None:
    """The user's own and the project's, as the model would read them."""
    (home / "config" / "vivace").mkdir(parents=True)
    (home / "config" / "vivace" / "AGENTS.md").write_text("mine")
    (home / "work" / "CLAUDE.md").write_text("theirs!")
    own, project = run("memory").output.splitlines()
    assert own.endswith("AGENTS.md  (4 characters)")
    assert project == "CLAUDE.md  (7 characters)"


def test_init_writes_a_first_file_once(home: Path) -> None:
    """`vivace init --yes` writes AGENTS.md; the second time it is refused; --diff writes nothing."""
    (home / "work" / "cart.py").write_text("def total():\n    return 0\n")
    assert "+- top level: 1 file; `total`" in run("init", "--diff").output
    assert not (home / "work" / "AGENTS.md").exists()
    assert run("init", "--yes").return_value == 0
    assert (home / "work" / "AGENTS.md").read_text().startswith("# work\n")
    assert run("init", "--yes").return_value == 2
    assert run("init").return_value == 2
