"""Which instruction files apply, and how they share a prompt's room."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.memory.instructions import InstructionFile, files_for, fitted, project_root
from vivace.agent.memory.recall import SMALL_CHARS, Memory


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    (root / ".git").mkdir(parents=True)
    (root / "src" / "deep").mkdir(parents=True)
    return root


def shown(files: list[InstructionFile]) -> list[str]:
    return [file.shown for file in files]


def test_every_level_from_the_root_to_the_path_applies(root: Path) -> None:
    """Files are found from the root down to the folder of each path, the nearest last, others not."""
    (root / "AGENTS.md").write_text("root")
    (root / "src" / "AGENTS.md").write_text("src")
    (root / "src" / "deep" / "AGENTS.md").write_text("deep")
    (root / "other").mkdir()
    (root / "other" / "AGENTS.md").write_text("other")
    assert shown(files_for([], root, None)) == ["AGENTS.md"]
    assert shown(files_for([root / "src" / "a.py"], root, None)) == ["AGENTS.md", "src/AGENTS.md"]
    below = files_for([root / "src" / "deep" / "a.py"], root / "src", None)
    assert shown(below) == ["AGENTS.md", "src/AGENTS.md", "src/deep/AGENTS.md"]


def test_the_users_own_file_comes_first(root: Path, tmp_path: Path) -> None:
    """The user's rules stand before the repository's, and are known to be the user's."""
    own = tmp_path / "config"
    own.mkdir()
    (tmp_path / "dotfiles.md").write_text("mine")
    (own / "AGENTS.md").symlink_to(tmp_path / "dotfiles.md")  # one's own links are followed
    (root / "AGENTS.md").write_text("theirs")
    files = files_for([], root, own)
    assert [(file.text, file.is_own) for file in files] == [("mine", True), ("theirs", False)]


def test_agents_wins_over_claude_at_one_level(root: Path) -> None:
    """CLAUDE.md is read where there is no AGENTS.md, or an empty one."""
    (root / "CLAUDE.md").write_text("claude")
    assert shown(files_for([], root, None)) == ["CLAUDE.md"]
    (root / "AGENTS.md").write_text("agents")
    assert shown(files_for([], root, None)) == ["AGENTS.md"]


def test_a_link_out_of_the_repository_is_not_followed(root: Path, tmp_path: Path) -> None:
    """A repository cannot have a file of the user's read; a link inside of it is fine."""
    (tmp_path / "secret").write_text("secret")
    (root / "AGENTS.md").symlink_to(tmp_path / "secret")
    assert files_for([], root, None) == []
    (root / "RULES.md").write_text("rules")
    (root / "CLAUDE.md").symlink_to("RULES.md")
    assert [file.text for file in files_for([], root, None)] == ["rules"]


def test_what_is_no_file_is_passed_over(root: Path) -> None:
    """A folder, a pipe and bytes that are no text stop nobody."""
    (root / "AGENTS.md").mkdir()
    os.mkfifo(root / "CLAUDE.md")
    assert files_for([], root, None) == []
    (root / "src" / "AGENTS.md").write_bytes(b"\xff\xfe rules \0")
    assert "rules" in files_for([root / "src" / "a.py"], root, None)[0].text


def test_secrets_are_taken_out(root: Path) -> None:
    """A token in an instruction file is not sent to a model."""
    (root / "AGENTS.md").write_text("Use ghp_" + "a" * 36)
    assert "ghp_" not in files_for([], root, None)[0].text


def test_a_path_outside_brings_its_own_repositorys_rules(root: Path, tmp_path: Path) -> None:
    """A file of another repository has that one's rules; a file of no repository has none."""
    (tmp_path / "AGENTS.md").write_text("outside")
    assert files_for([tmp_path / "a.py"], root, None) == []
    other = tmp_path / "other"
    (other / ".git").mkdir(parents=True)
    (other / "AGENTS.md").write_text("other")
    (root / "AGENTS.md").write_text("root")
    found = files_for([other / "a.py"], root, None)
    assert sorted(file.text for file in found) == ["other", "root"]
    assert str(other / "AGENTS.md") in shown(found)


def test_without_git_the_folder_is_the_project(tmp_path: Path) -> None:
    """Where there is no repository, the folder itself is the root, and nothing above it is read."""
    (tmp_path / "AGENTS.md").write_text("above")
    folder = tmp_path / "plain"
    folder.mkdir()
    assert project_root(folder) == folder
    assert files_for([], folder, None) == []


@given(st.lists(st.text(max_size=3000), max_size=4), st.integers(0, 4000))
def test_the_room_is_kept(texts: list[str], room: int) -> None:
    """However long the files are, together they take no more than the room, and the nearest goes first."""
    files = [InstructionFile(Path(str(number)), str(number), text) for number, text in enumerate(texts)]
    kept = fitted(files, room)
    assert sum(len(file.text) for file in kept) <= room
    nearest = files[-1:]
    if nearest and 0 < len(nearest[0].text) <= room:
        assert kept[-1] == nearest[0]


def test_a_long_file_is_cut_at_a_line(root: Path, tmp_path: Path) -> None:
    """A small model reads whole lines of the beginning, and a mark that there is more."""
    (root / "AGENTS.md").write_text("\n".join(f"rule {number}" for number in range(1000)))
    recalled = Memory(root, tmp_path, None, SMALL_CHARS).recall("anything")
    text = recalled.files[0].text
    assert len(text) <= SMALL_CHARS
    assert text.endswith("\n…")
    assert text.splitlines()[-2].startswith("rule ")


def test_nothing_there_is_nothing_told(root: Path, tmp_path: Path) -> None:
    """Without files and notes nothing is recalled, and no store is made."""
    state = tmp_path / "state"
    assert not Memory(root, state, tmp_path / "config", SMALL_CHARS).recall("rename show", [root / "a.py"])
    assert not state.exists()
