"""Our own Git calls run nothing that a repository names."""

import subprocess
from pathlib import Path

from vivace.agent.conversation.message.repository import list_files
from vivace.agent.git import git_command


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


def test_a_hostile_repository_runs_nothing(tmp_path: Path) -> None:
    """Its file system monitor and its hooks would leave a mark, and there is none after our calls."""
    mark = tmp_path / "mark"
    repository = tmp_path / "repository"
    repository.mkdir()
    git(repository, "init", "-q")
    (repository / "a.py").write_text("x = 1\n")
    git(repository, "add", "a.py")
    program = tmp_path / "hostile"
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    git(repository, "config", "core.fsmonitor", str(program))
    hook = repository / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(program.read_text())
    hook.chmod(0o755)
    assert [listed.path for listed in list_files(repository)] == [Path("a.py")]
    subprocess.run(git_command(repository, "status", "--short"), check=True, capture_output=True)
    assert not mark.exists()
    subprocess.run(["git", "-C", str(repository), "status"], check=True, capture_output=True)
    assert mark.exists(), "the trap itself works"
