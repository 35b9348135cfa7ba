"""Folders that Git would take for a repository, however a command makes or moves them: none is left."""

import subprocess
from pathlib import Path

import pytest

from tests.agent.sandbox.test_undoing import EVIL, git, repository, sh, status_runs_nothing, taken
from tests.sandboxes import needs_sandbox

pytestmark = needs_sandbox


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def settings(root: Path, work_tree: Path) -> str:
    """Return settings that make the user's Git run something, for a work tree."""
    return (
        "[core]\nrepositoryformatversion = 0\nbare = false\n"
        f'worktree = {work_tree}\nfsmonitor = "{EVIL.format(root)}"\n'
    )


def delivered(root: Path, work_tree: Path) -> Path:
    """Make a repository with such settings that came with the folder, where nobody goes."""
    git(root, "init", "-q", "--bare", "data")
    (root / "data" / "config").write_text(settings(root, work_tree))
    return root / "data"


def files_known(folder: Path) -> list[str]:
    command = ["git", "-C", str(folder), "ls-files"]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()


async def test_one_that_shares_the_settings_of_another_folder_is_none(root: Path) -> None:
    """A worktree's folder has a HEAD and names another one, which has the rest and no HEAD."""
    (root / "config").write_text(
        settings(root, root / "pkg").replace("version = 0", "version = 1").replace("bare = false\n", "")
        + "[extensions]\nworktreeConfig = true\n"
    )
    (root / "own").write_text(f"[core]\nbare = false\nworktree = {root / 'pkg'}\n")
    command = """mkdir -p pkg store/objects store/refs; echo 'ref: refs/heads/main' > pkg/HEAD
mv config store; mv own pkg/config.worktree; echo ../store > pkg/commondir"""
    outcome = await sh(root, command)
    assert status_runs_nothing(root / "pkg", root)
    assert "pkg/HEAD" in outcome.undone


async def test_one_whose_folders_are_files_is_none(root: Path) -> None:
    """Git asks only whether `objects` and `refs` can be entered or run."""
    (root / "config").write_text(settings(root, root / "pkg"))
    command = """mkdir pkg; mv config pkg; cd pkg; echo 'ref: refs/heads/main' > HEAD
: > objects; : > refs; chmod +x objects refs"""
    outcome = await sh(root, command)
    assert status_runs_nothing(root / "pkg", root)
    assert "pkg/HEAD" in outcome.undone


async def test_a_worktree_beside_a_bare_repository_keeps_its_settings(root: Path) -> None:
    """Where its own folder names those of another one, and a command would name yet another."""
    library = repository(root.parent / "library")
    git(root, "clone", "-q", "--bare", str(library), ".bare")
    (root / ".git").write_text("gitdir: ./.bare\n")
    git(root, "worktree", "add", "-q", "main")
    (root / "config").write_text(settings(root, root / "main").replace("bare = false\n", ""))
    command = f"""cp -r .bare/objects .bare/refs .; mkdir evil; mv objects refs config evil
echo {root}/evil > .bare/worktrees/main/commondir || echo no"""
    outcome = await sh(root, command)
    assert outcome.output.endswith(b"no\n")
    assert status_runs_nothing(root / "main", root)
    assert files_known(root / "main") == ["file"]


async def test_a_repository_that_was_there_cannot_become_that_of_a_folder(root: Path) -> None:
    """Neither as its `.git` nor as the folder itself: its settings are those of whoever delivered it."""
    (root / "src").mkdir()
    delivered(root, root / "sub")
    outcome = await sh(root, "mkdir sub; mv data sub/.git")
    assert status_runs_nothing(root / "sub", root)
    assert "sub/.git" in outcome.undone
    delivered(root, root / "src")
    outcome = await sh(root, "rmdir src; mv data src")
    assert status_runs_nothing(root / "src", root)
    assert "src/HEAD" in outcome.undone


@pytest.mark.parametrize(
    "hiding",
    [
        pytest.param("mkdir -p q/.vscode; mv lib q/.vscode/lib", id="below a protected name"),
        pytest.param("mkdir -p q/objects q/refs q/hooks; : > q/HEAD; mv lib q/hooks/lib", id="in hooks"),
        pytest.param(f"P=$PWD; {'mkdir d; cd d; ' * 250} mv $P/lib .; cd $P", id="deep"),
    ],
)
async def test_a_file_that_was_hidden_is_not_one_that_its_user_replaced(root: Path, hiding: str) -> None:
    """The `.git` of a submodule cannot be moved out of sight, and another one left in its place."""
    library = repository(root.parent / "library")
    repository(root)
    git(root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "lib")
    delivered(root, root / "lib")
    outcome = await sh(root, f"{hiding} && echo moved; mkdir lib; echo 'gitdir: ../data' > lib/.git")
    assert outcome.output == b"moved\n"
    assert status_runs_nothing(root / "lib", root)
    assert "lib/.git" in outcome.undone
    assert any(each.endswith("lib%2F.git") for each in taken(root))


async def test_the_workspace_itself_cannot_become_one(root: Path) -> None:
    """Nor does a command leave what would be the rest of one beside a HEAD of the user's."""
    (root / "config").write_text(settings(root, root))
    outcome = await sh(root, "echo 'ref: refs/heads/main' > HEAD; mkdir objects refs")
    assert status_runs_nothing(root, root)
    assert "Taken away: HEAD." in outcome.undone
    (root / "config").unlink()
    (root / "HEAD").write_text("ref: refs/heads/main\n")
    await sh(root, f"printf '{settings(root, root)}' > config")
    assert status_runs_nothing(root, root)
