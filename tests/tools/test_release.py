"""The release script, in a repository of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import REPOSITORY

CHANGELOG = """# Changelog

## Unreleased

- Something new.

## 0.1.0 (2026-11-15)

- The first version.
"""


class Repository:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.changelog = folder / "CHANGELOG.md"
        self.version = folder / "src" / "vivace" / "__init__.py"
        self.version.parent.mkdir(parents=True)
        self.version.write_text('"""A program."""\n\n__version__ = "0.1.0"\n')
        self.changelog.write_text(CHANGELOG)
        (folder / "tools").mkdir()
        shutil.copy(REPOSITORY / "tools" / "release.py", folder / "tools")
        self.git("init", "--quiet", "--initial-branch", "main")
        self.commit()

    def git(self, *arguments: str) -> str:
        person = {"NAME": "A", "EMAIL": "a@example.org"}
        who = {
            f"GIT_{role}_{what}": text for role in ("AUTHOR", "COMMITTER") for what, text in person.items()
        }
        quiet = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        self.environment = os.environ | who | quiet
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def commit(self) -> None:
        self.git("add", ".")
        self.git("commit", "--quiet", "--message", "As it is")

    def release(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "tools/release.py", *arguments]
        return subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_a_dry_run_shows_and_changes_nothing(repository: Repository) -> None:
    """Without `--do` the diff is printed; files, commits and tags stay as they are."""
    done = repository.release("0.2.0")
    assert done.returncode == 0
    assert '+__version__ = "0.2.0"' in done.stdout
    assert "Nothing was changed" in done.stdout
    assert repository.changelog.read_text() == CHANGELOG
    assert repository.git("status", "--porcelain") == ""
    assert repository.git("tag") == ""


def test_a_release_has_a_version_a_date_and_a_tag(repository: Repository) -> None:
    """The news get the version and the date, an empty part is left above them, and the commit is tagged."""
    done = repository.release("0.2.0", "--do")
    assert done.returncode == 0, done.stderr
    assert '__version__ = "0.2.0"' in repository.version.read_text()
    headings = [line for line in repository.changelog.read_text().splitlines() if line.startswith("## ")]
    assert headings[0] == "## Unreleased"
    assert headings[1].startswith("## 0.2.0 (20")
    assert headings[2] == "## 0.1.0 (2026-11-15)"
    assert repository.git("describe", "--exact-match") == "v0.2.0"
    assert repository.git("log", "-1", "--format=%s") == "Release 0.2.0"
    assert repository.git("status", "--porcelain") == ""
    assert "nothing new" in repository.release("0.3.0", "--do").stderr


@pytest.mark.parametrize(
    ("version", "said"),
    [("0.1.0", "not above"), ("0.0.9", "not above"), ("two", "no version"), ("0.2", "no version")],
)
def test_a_version_must_be_a_step_up(repository: Repository, version: str, said: str) -> None:
    """What is no version, or not above the present one, is refused."""
    done = repository.release(version, "--do")
    assert done.returncode == 1
    assert said in done.stderr
    assert repository.git("tag") == ""


def test_a_dirty_tree_is_refused(repository: Repository) -> None:
    """What is not committed would not be in the release."""
    (repository.folder / "left.txt").write_text("behind")
    done = repository.release("0.2.0", "--do")
    assert done.returncode == 1
    assert "not committed" in done.stderr
    assert repository.changelog.read_text() == CHANGELOG


def test_a_tag_is_made_once(repository: Repository) -> None:
    """A tag that is there already is not moved."""
    repository.git("tag", "v0.2.0")
    assert "already" in repository.release("0.2.0", "--do").stderr


def test_our_own_changelog_can_be_released() -> None:
    """It has the heading that the script looks for, directly above the latest version."""
    lines = (REPOSITORY / "CHANGELOG.md").read_text().splitlines()
    headings = [line for line in lines if line.startswith("## ")]
    assert headings[0] == "## Unreleased"
    assert all(line[3:].split()[1].strip("()").count("-") == 2 for line in headings[1:])
