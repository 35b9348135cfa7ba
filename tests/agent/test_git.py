"""Our own Git calls run nothing that a repository names, and believe nothing that leads out of it."""

import ast
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import REPOSITORY
from vivace.agent.conversation.message.repository import list_files
from vivace.agent.git import git_files, run_git
from vivace.agent.tasks.workplace import make_workplace, remove_workplace, visible_files


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


class Trap:
    """A program that leaves a mark."""

    def __init__(self, folder: Path) -> None:
        self.mark = folder / "mark"
        self.program = folder / "trap"
        self.program.write_text(f"#!/bin/sh\ntouch '{self.mark}'\nexit 1\n")
        self.program.chmod(0o755)
        self.line = f"{self.program}"

    @property
    def is_sprung(self) -> bool:
        sprung = self.mark.exists()
        self.mark.unlink(missing_ok=True)
        return sprung


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with two files, one of them in a folder with a file that Git does not know."""
    folder = tmp_path / "repository"
    (folder / "sub").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "a.py").write_text("x = 1\n")
    (folder / "sub" / "b.py").write_text("y = 1\n")
    (folder / "sub" / ".gitignore").write_text("ignored\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    (folder / "sub" / "new.py").write_text("z = 1\n")
    return folder


def everything(repository: Path, tmp_path: Path) -> None:
    """All that we ever ask of Git in somebody's folder."""
    list_files(repository)
    visible_files(repository)
    make_workplace(repository, tmp_path / "work", tmp_path / "start.zip")
    remove_workplace(tmp_path / "work", repository)


# ---- programs ---------------------------------------------------------------------------------------


def monitor(repository: Path, trap: Trap) -> None:
    git(repository, "config", "core.fsmonitor", trap.line)


def hooks(repository: Path, trap: Trap) -> None:
    git(repository, "config", "core.hooksPath", str(repository / "hooks"))
    for folder in (repository / ".git" / "hooks", repository / "hooks"):
        folder.mkdir(exist_ok=True)
        for name in ("post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc"):
            shutil.copy(trap.program, folder / name)


def hooks_of_newer_versions(repository: Path, trap: Trap) -> None:
    for event in ("post-checkout", "post-index-change", "reference-transaction"):
        git(repository, "config", f"hook.{event}.event", event)
        git(repository, "config", f"hook.{event}.command", trap.line)


def missing_object(repository: Path, trap: Trap, url: str = "") -> None:
    """A file that is not checked out, and whose object is to be fetched from a remote that runs a program."""
    missing = git(repository, "rev-parse", "HEAD:sub/.gitignore")
    git(repository, "update-index", "--skip-worktree", "sub/.gitignore")
    (repository / "sub" / ".gitignore").unlink()
    (repository / ".git" / "objects" / missing[:2] / missing[2:]).unlink()
    git(repository, "config", "core.repositoryformatversion", "1")
    git(repository, "config", "extensions.partialClone", "origin")
    git(repository, "config", "remote.origin.url", url or str(repository))
    git(repository, "config", "remote.origin.promisor", "true")
    git(repository, "config", "remote.origin.uploadpack", f"{trap.line}; false")


def missing_object_of_an_allowed_protocol(repository: Path, trap: Trap) -> None:
    missing_object(repository, trap)
    git(repository, "config", "protocol.file.allow", "always")


def missing_object_behind_a_helper(repository: Path, trap: Trap) -> None:
    missing_object(repository, trap, f"ext::sh -c {trap.line}")
    git(repository, "config", "protocol.ext.allow", "always")


def missing_object_behind_ssh(repository: Path, trap: Trap) -> None:
    missing_object(repository, trap, "ssh://127.0.0.1/x")
    git(repository, "config", "core.sshCommand", f"{trap.line} ; true")


def missing_commit(repository: Path, trap: Trap) -> None:
    """What HEAD names is to be fetched."""
    missing_object(repository, trap)
    head = git(repository, "rev-parse", "HEAD")
    (repository / ".git" / "objects" / head[:2] / head[2:]).unlink()


def filters(repository: Path, trap: Trap) -> None:
    (repository / ".gitattributes").write_text("* filter=hostile\n")
    (repository / ".git" / "info" / "attributes").write_text("* filter=hostile\n")
    for kind in ("clean", "smudge", "process"):
        git(repository, "config", f"filter.hostile.{kind}", trap.line)
    git(repository, "config", "filter.hostile.required", "true")


def filters_of_an_odd_name(repository: Path, trap: Trap) -> None:
    """A name that would be read as another setting, if it stood on a command line."""
    (repository / ".git" / "info" / "attributes").write_text("* filter=a=b.clean\n")
    with (repository / ".git" / "config").open("a") as config:
        config.write(f'[filter "a=b.clean"]\n\tclean = {trap.line}\n\tsmudge = {trap.line}\n')


def filters_of_an_included_file(repository: Path, trap: Trap) -> None:
    (repository / ".git" / "info" / "attributes").write_text("* filter=hostile\n")
    (repository / "more").write_text(f'[filter "hostile"]\n\tclean = {trap.line}\n\tsmudge = {trap.line}\n')
    git(repository, "config", "include.path", "../more")


def filters_included_by_the_branch(repository: Path, trap: Trap) -> None:
    filters_of_an_included_file(repository, trap)
    git(repository, "config", "--unset", "include.path")
    git(repository, "config", "includeIf.onbranch:main.path", "../more")


ATTACKS: list[Callable[[Path, Trap], None]] = [
    monitor,
    hooks,
    hooks_of_newer_versions,
    missing_object,
    missing_object_of_an_allowed_protocol,
    missing_object_behind_a_helper,
    missing_object_behind_ssh,
    missing_commit,
    filters,
    filters_of_an_odd_name,
    filters_of_an_included_file,
    filters_included_by_the_branch,
]
# What Git itself does where these traps are; each is a call that we could make one day, or make.
SPRINGING = [
    ("ls-files", "-co", "--exclude-standard"),
    ("ls-files", "-m"),  # looks into files, through a filter
    ("read-tree", "HEAD"),
    ("read-tree", "--reset", "-u", "HEAD"),  # writes files, through a filter
    ("worktree", "add", "--detach", "{place}", "HEAD"),
    ("rev-parse", "HEAD^{{tree}}"),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_nothing_of_a_hostile_repository_runs(
    attack: Callable[[Path, Trap], None], repository: Path, tmp_path: Path, trap: Trap
) -> None:
    """No call of ours springs a trap, and Git itself does, where this version knows it."""
    attack(repository, trap)
    trap.mark.unlink(missing_ok=True)  # laying it calls Git, too
    everything(repository, tmp_path)
    assert not trap.is_sprung
    _touch(repository)
    for number, words in enumerate(SPRINGING):
        run_git(repository, *(word.format(place=tmp_path / f"place{number}") for word in words))
        assert not trap.is_sprung, words
    _touch(repository)
    for number, words in enumerate(SPRINGING):
        place = str(tmp_path / f"sprung{number}")
        command = ["git", "-C", str(repository), *(word.format(place=place) for word in words)]
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=20)
    if attack is not hooks_of_newer_versions:
        assert trap.is_sprung, "the trap itself works"


def _touch(repository: Path) -> None:
    """Make Git look into the files again, and write one of them anew."""
    (repository / "a.py").write_text("x = 2\n")
    (repository / "sub" / "b.py").unlink(missing_ok=True)


@pytest.mark.parametrize("name", ["GIT_SSH_COMMAND", "GIT_EXTERNAL_DIFF", "GIT_CONFIG_PARAMETERS", "GIT_DIR"])
def test_no_variable_leads_git_elsewhere(
    name: str, repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those of a hook that we run in, say; what names the user's own configuration stays."""
    monkeypatch.setenv(name, "'core.bare=true'" if name.endswith("PARAMETERS") else "/nowhere")
    mine = tmp_path / "mine"
    (tmp_path / "never").write_text("*.py\n")
    mine.write_text(f"[core]\n\texcludesFile = {tmp_path / 'never'}\n")
    assert sorted(git_files(repository) or []) == ["a.py", "sub/.gitignore", "sub/b.py", "sub/new.py"]
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(mine))
    assert sorted(git_files(repository) or []) == ["a.py", "sub/.gitignore", "sub/b.py"]


@pytest.mark.parametrize("entry", ["", ".", "bin", "{folder}/bin", "{outside}"])
def test_a_git_of_the_folder_is_not_run(
    entry: str, repository: Path, trap: Trap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever leads there: an entry of PATH that is relative, or inside, or a link from outside."""
    (repository / "bin").mkdir()
    (repository / "sub" / "ignored").write_text("")
    for folder in (repository, repository / "bin"):
        shutil.copy(trap.program, folder / "git")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "git").symlink_to(repository / "bin" / "git")
    monkeypatch.chdir(repository)
    before = entry.format(folder=repository, outside=outside)
    monkeypatch.setenv("PATH", f"{before}{os.pathsep}{os.environ['PATH']}")
    assert "sub/ignored" not in (git_files(repository) or ["sub/ignored"])
    everything(repository, tmp_path)
    assert not trap.is_sprung


# ---- places -----------------------------------------------------------------------------------------


def rename_in_index(repository: Path, old: str, new: str) -> None:
    """Write another path of the same length into the index, as Git itself never would."""
    assert len(old) == len(new)
    index = repository / ".git" / "index"
    data = index.read_bytes()[:-20].replace(old.encode(), new.encode())
    index.write_bytes(data + hashlib.sha1(data).digest())


@pytest.mark.parametrize(
    "path", ["../secret.py", "sub/../../secret.py", "/tmp/x/secret.py", ".GIT/secret.py"]
)
def test_a_path_of_the_index_never_leads_out(path: str, repository: Path, tmp_path: Path) -> None:
    """A delivered index may name any file of the machine; nothing outside is read, shown or copied."""
    path = str(tmp_path / "secret.py") if path.startswith("/") else path
    inner = "i" * (len(path) - 3) + ".py"
    (repository / inner).write_text("harmless = 1\n")
    git(repository, "add", inner)
    (repository / inner).unlink()
    (tmp_path / "secret.py").write_text("password = 'x'\n")
    (repository / ".GIT").mkdir(exist_ok=True)
    (repository / ".GIT" / "secret.py").write_text("password = 'x'\n")
    rename_in_index(repository, inner, path)
    assert path in git(repository, "ls-files").splitlines() or ".." in path or "GIT" in path
    assert [str(listed.path) for listed in list_files(repository)] == ["a.py", "sub/b.py", "sub/new.py"]
    place = make_workplace(repository, tmp_path / "work", tmp_path / "start.zip")
    assert not list((tmp_path / "work").rglob("secret.py"))
    assert (place / "a.py").exists()
    assert b"password" not in (tmp_path / "start.zip").read_bytes()


def test_a_linked_folder_of_the_index_is_not_followed(repository: Path, tmp_path: Path) -> None:
    """A file that Git knows in a folder that is a link by now would be one of another folder."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "b.py").write_text("password = 'x'\n")
    shutil.rmtree(repository / "sub")
    (repository / "sub").symlink_to(home)
    assert [str(listed.path) for listed in list_files(repository)] == ["a.py"]
    place = make_workplace(repository, tmp_path / "work", tmp_path / "start.zip")
    assert (place / "sub").is_symlink()
    assert [each.name for each in home.iterdir()] == ["b.py"]
    assert "sub/b.py" not in visible_files(repository)


def test_another_work_tree_is_not_taken(tmp_path: Path) -> None:
    """A repository inside of another one cannot say that its files are those of the folder above."""
    outer = tmp_path / "outer"
    inner = outer / "inner"
    inner.mkdir(parents=True)
    for folder in (outer, inner):
        git(folder, "init", "-q")
        (folder / f"{folder.name}.py").write_text("x = 1\n")
        git(folder, "add", f"{folder.name}.py")
        git(folder, "commit", "-q", "-m", "first")
    git(inner, "config", "core.worktree", "../../")
    place = make_workplace(inner, tmp_path / "work", tmp_path / "start.zip")
    assert sorted(path.name for path in place.rglob("*.py")) == ["inner.py"]
    assert not list((tmp_path / "work").rglob("outer.py"))


def test_a_bare_repository_among_the_files_is_none(repository: Path, trap: Trap, tmp_path: Path) -> None:
    """A folder that looks like the inside of `.git` may come with any clone, and has a configuration."""
    bare = tmp_path / "clone" / "tests" / "data"
    bare.parent.mkdir(parents=True)
    git(tmp_path, "clone", "-q", "--bare", str(repository), str(bare))
    git(bare, "config", "core.bare", "false")
    git(bare, "config", "core.worktree", str(bare))
    git(bare, "config", "core.fsmonitor", trap.line)
    (bare / "a.py").write_text("x = 1\n")
    assert run_git(bare, "rev-parse", "--show-toplevel") is None
    everything(bare, tmp_path)
    assert not trap.is_sprung


# ---- nothing else starts it -------------------------------------------------------------------------


def starts_git(tree: ast.AST) -> bool:
    """Whether a list, a tuple or a call begins with the name of Git, or a text is a command line of it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.List | ast.Tuple):
            first = node.elts[0] if node.elts else None
        elif isinstance(node, ast.Call):
            first = node.args[0] if node.args else None
        else:
            continue
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            words = first.value.split()
            if words and Path(words[0]).name == "git":
                return True
    return False


def test_there_is_one_place_that_starts_git() -> None:
    """No other module has a command line that begins with it."""
    found = {
        str(file.relative_to(REPOSITORY))
        for folder in ("src", "setup", "editors")
        for file in (REPOSITORY / folder).rglob("*.py")
        if starts_git(ast.parse(file.read_text("utf-8")))
    }
    quoted = {"src/vivace/bench/wire/conversation.py"}  # what a model says
    assert found - quoted == {"src/vivace/agent/git.py"}
    assert starts_git(ast.parse("run(['git', 'status'])"))
    assert starts_git(ast.parse("system('/usr/bin/git status')"))
