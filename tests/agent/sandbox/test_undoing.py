"""Protected names that a command makes, moves or copies: undone before its user has the folder back."""

import asyncio
import fcntl
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.agent.tools.workbench import call, context_for
from tests.sandboxes import needs_sandbox
from tests.server.serving import until
from vivace.agent.sandbox import workspace
from vivace.agent.sandbox.looking import SETTLED_NS
from vivace.agent.sandbox.run import Limits, Outcome, run_sandboxed
from vivace.agent.sandbox.workspace import Workspace
from vivace.agent.tools.shell import Shell
from vivace.errors import SandboxUnavailable

LIMITS = Limits(seconds=120, cpu_seconds=60, memory_bytes=512 << 20, processes=32)
pytestmark = needs_sandbox
EVIL = "touch {}/owned; false"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    root.mkdir()
    (root / "a.txt").write_text("old\n")
    return root


async def sh(root: Path, command: str, *, writable: bool = True) -> Outcome:
    workspace = Workspace(root, is_writable=writable, state=root.parent / "state")
    return await run_sandboxed(["sh", "-c", command], workspace=workspace, limits=LIMITS)


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


def repository(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q")
    (folder / "file").write_text("text\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    return folder


def status_runs_nothing(folder: Path, root: Path) -> bool:
    """Return whether Git, called by the user in a folder, leaves the marker of an attack unmade."""
    subprocess.run(["git", "-C", str(folder), "status"], capture_output=True, check=False)
    return not (root / "owned").exists()


def repositories(root: Path) -> list[Path]:
    return list(root.rglob(".git"))


def taken(root: Path) -> list[str]:
    return sorted(each.name for each in (root.parent / "state" / "taken").glob("*/*"))


class TestMissing:
    async def test_a_repository_made_below_runs_nothing(self, root: Path) -> None:
        """The next `git status` of the user in it starts no monitor."""
        command = f"git init -q sub; git -C sub config core.fsmonitor '{EVIL.format(root)}'; echo done"
        outcome = await sh(root, command)
        assert (outcome.exit_code, outcome.output) == (0, b"done\n")
        assert status_runs_nothing(root / "sub", root)
        assert not (root / "sub" / ".git").exists()

    async def test_settings_of_editors_and_shells_made_below_are_undone(self, root: Path) -> None:
        """As folders, files and links, in any case; what is beside them stays."""
        command = """mkdir -p pkg/.vscode pkg/.GIT/hooks; echo x > pkg/.vscode/tasks.json; echo x > pkg/.envrc
ln -s ../a.txt pkg/.bashrc; echo y > pkg/kept"""
        await sh(root, command)
        assert [each.name for each in (root / "pkg").iterdir()] == ["kept"]

    async def test_nothing_is_lost_and_it_is_told(self, root: Path) -> None:
        """What was taken away is in a private folder, which the outcome names."""
        outcome = await sh(root, "mkdir -p pkg/.vscode; echo x > pkg/.vscode/tasks.json; echo y > pkg/.envrc")
        assert taken(root) == ["made%2Fpkg%2F.envrc", "made%2Fpkg%2F.vscode"]
        kept = next((root.parent / "state" / "taken").iterdir())
        assert (kept / "made%2Fpkg%2F.vscode" / "tasks.json").read_text() == "x\n"
        assert (kept.parent.stat().st_mode & 0o077, kept.stat().st_mode & 0o077) == (0, 0)
        assert outcome.exit_code == 0
        assert "pkg/.vscode" in outcome.undone
        assert "pkg/.envrc" in outcome.undone
        assert str(kept) in outcome.undone

    async def test_a_command_that_makes_none_is_told_nothing(self, root: Path) -> None:
        """Nor is anything written outside."""
        outcome = await sh(root, "mkdir -p deep/er; echo x > deep/er/file")
        assert outcome.undone == ""
        assert not (root.parent / "state" / "taken").exists()

    async def test_what_it_made_is_there_while_it_runs(self, root: Path) -> None:
        """A test suite that makes repositories works."""
        (root / "suite.sh").write_text("git init -q t/r && cd t/r && git config a.b c && git config a.b\n")
        outcome = await sh(root, "sh suite.sh")
        assert (outcome.exit_code, outcome.output) == (0, b"c\n")

    async def test_folders_that_cannot_be_read_hide_nothing(self, root: Path) -> None:
        """Neither for their mode nor for their depth: they go as a whole."""
        await sh(root, "git init -q h/sub; git -C h/sub config core.fsmonitor x; chmod 0 h/sub; chmod 500 h")
        deep = "for i in $(seq 300); do mkdir d; cd d; done; mkdir .git; echo x > .git/config"
        outcome = await sh(root, deep)
        assert "300" not in outcome.output.decode()
        (root / "h").chmod(0o700)
        if (root / "h" / "sub").exists():
            (root / "h" / "sub").chmod(0o700)
        assert not repositories(root)

    async def test_a_stopped_command_is_undone_too(self, root: Path) -> None:
        """Also one that was ended for its time, with something in the background."""
        workspace = Workspace(root, is_writable=True, state=root.parent / "state")
        limits = Limits(seconds=2, cpu_seconds=60)
        outcome = await run_sandboxed(
            ["sh", "-c", "mkdir -p x/.git; sleep 600 & sleep 600"], workspace=workspace, limits=limits
        )
        assert outcome.stopped_by == "time"
        assert not (root / "x" / ".git").exists()

    async def test_a_cancelled_command_is_undone_and_the_next_one_tells(self, root: Path) -> None:
        """A cancelled command has no outcome that could say it."""
        running = asyncio.create_task(sh(root, "mkdir -p x/.git; touch made; sleep 600"))
        await asyncio.to_thread(until, (root / "made").exists)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not (root / "x" / ".git").exists()
        assert "x/.git" in (await sh(root, "true")).undone
        assert (await sh(root, "true")).undone == ""

    async def test_a_folder_that_poses_as_a_repository_is_none(self, root: Path) -> None:
        """Git takes a folder for a repository by its content: the user's Git in it runs nothing."""
        command = f"""git init -q --bare docs; git -C docs config core.bare false
git -C docs config core.worktree {root}; git -C docs config core.fsmonitor '{EVIL.format(root)}'"""
        outcome = await sh(root, command)
        assert status_runs_nothing(root / "docs", root)
        assert "docs/HEAD" in outcome.undone
        assert (root / "docs" / "config").exists()


class TestExisting:
    async def test_a_copy_in_the_place_of_a_moved_repository_is_undone(self, root: Path) -> None:
        """The one that was moved is as it was, and may be moved back."""
        lib = repository(root / "vendor" / "lib")
        before = (lib / ".git" / "config").read_bytes()
        command = f"""mv vendor/lib old; cp -r old vendor/lib
git -C vendor/lib config core.fsmonitor '{EVIL.format(root)}'; git -C old config core.fsmonitor x"""
        await sh(root, command)
        assert status_runs_nothing(lib, root)
        assert not (lib / ".git").exists()
        assert (root / "old" / ".git" / "config").read_bytes() == before

    async def test_a_repository_may_be_moved_with_its_folder(self, root: Path) -> None:
        """It is the same as before: nothing is taken away."""
        repository(root / "vendor" / "lib")
        outcome = await sh(root, "mv vendor/lib libs")
        assert outcome.undone == ""
        assert (root / "libs" / ".git" / "config").is_file()

    async def test_a_bare_repository_cannot_be_made_to_run_something(self, root: Path) -> None:
        """Its settings and hooks are protected like those of a folder `.git`; it can be pushed to."""
        repository(root)
        git(root, "clone", "-q", "--bare", ".", "remote")
        (root / "remote" / "hooks" / "post-update.sample").unlink(missing_ok=True)
        before = (root / "remote" / "config").read_bytes()
        command = """git --git-dir=remote config core.fsmonitor x; echo x > remote/hooks/pre-receive
echo x > remote/config.worktree; git push -q remote HEAD:refs/heads/new && echo pushed"""
        outcome = await sh(root, command)
        assert outcome.output.endswith(b"pushed\n")
        assert (root / "remote" / "config").read_bytes() == before
        assert not (root / "remote" / "hooks" / "pre-receive").exists()
        assert not (root / "remote" / "config.worktree").exists()
        assert (root / "remote" / "HEAD").is_file()

    async def test_a_file_that_its_user_saves_meanwhile_stays(self, root: Path) -> None:
        """An editor puts a new file in the place of the old one; that is told, and not undone."""
        (root / "pkg").mkdir()
        (root / "pkg" / ".envrc").write_text("old")
        os.mkfifo(root / "go")
        command = "echo ready > go; read x < go"

        def save() -> None:
            (root / "go").read_text()
            (root / "pkg" / "new").write_text("saved")
            (root / "pkg" / "new").rename(root / "pkg" / ".envrc")
            (root / "go").write_text("on\n")

        outcome, _ = await asyncio.gather(sh(root, command), asyncio.to_thread(save))
        assert (root / "pkg" / ".envrc").read_text() == "saved"
        assert "pkg/.envrc" in outcome.undone
        assert taken(root) == []


@pytest.fixture(scope="class")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 20,100 folders before the one that counts."""
    root = tmp_path_factory.mktemp("many") / "work"
    for number in range(201):
        for each in range(100):
            os.makedirs(root / f"a{number:03}" / f"b{each:03}", exist_ok=True)  # noqa: PTH103
    deep = root / "a000" / "b000" / "c" / "d"
    repository(deep)
    return root


class TestManyFolders:
    async def test_what_is_deep_in_many_folders_is_protected(self, many: Path) -> None:
        """After 20,000 folders as after ten."""
        config = many / "a000" / "b000" / "c" / "d" / ".git" / "config"
        before = config.read_bytes()
        await sh(many, f"echo '[core]' >> {config.relative_to(many)}; mkdir -p a200/b099/e/.git")
        assert config.read_bytes() == before
        assert not (many / "a200" / "b099" / "e" / ".git").exists()

    async def test_a_daemon_deep_in_many_folders_is_not_reached(
        self, many: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its socket is covered."""
        monkeypatch.chdir(many / "a000" / "b000" / "c")
        with socket.socket(socket.AF_UNIX) as daemon:
            daemon.bind("deep.sock")
            daemon.listen()
            code = "import socket; socket.socket(socket.AF_UNIX).connect('a000/b000/c/deep.sock')"
            outcome = await run_sandboxed(
                [sys.executable, "-S", "-c", code],
                workspace=Workspace(many, is_writable=True, state=many.parent / "state"),
                limits=LIMITS,
            )
        assert b"ConnectionRefusedError" in outcome.output


RUN = """import asyncio, sys
from pathlib import Path
from vivace.agent.sandbox.looking import SETTLED_NS
from vivace.agent.sandbox.run import run_sandboxed
from vivace.agent.sandbox.workspace import Workspace
root = Path(sys.argv[1])
workspace = Workspace(root, is_writable=True, state=root.parent / "state")
asyncio.run(run_sandboxed(["sh", "-c", sys.argv[2]], workspace=workspace))
"""


async def started(root: Path, command: str) -> asyncio.subprocess.Process:
    """Start a command with a supervisor of its own, and wait until it has made the file `made`."""
    running = await asyncio.create_subprocess_exec(sys.executable, "-c", RUN, str(root), command)
    await asyncio.to_thread(until, (root / "made").exists)
    return running


class TestKilled:
    async def test_what_a_killed_run_left_is_undone_by_the_next(self, root: Path) -> None:
        """A kill -9 of ours gives a command no way to leave a protected name."""
        command = "git init -q sub; git -C sub config core.fsmonitor x; touch made; sleep 600"
        running = await started(root, command)
        running.kill()
        await running.wait()
        assert (root / "sub" / ".git").exists()
        outcome = await sh(root, "true")
        assert not (root / "sub" / ".git").exists()
        assert "sub/.git" in outcome.undone

    async def test_what_its_user_made_since_then_stays(self, root: Path) -> None:
        """A repository that is newer than the killed run's last sign of life is the user's."""
        command = "touch made; sleep 600"
        running = await started(root, command)
        running.kill()
        await running.wait()
        record = next((root.parent / "state" / "running").iterdir())
        long_ago = time.time() - 60
        os.utime(record, (long_ago, long_ago))
        repository(root / "sub")
        outcome = await sh(root, "true")
        assert outcome.undone == ""
        assert (root / "sub" / ".git").is_dir()

    async def test_commands_side_by_side_are_undone_by_the_last(self, root: Path) -> None:
        """While one still runs, what another one made there stays for it."""
        os.mkfifo(root / "go")
        command = (
            "mkdir -p sub/.git; touch made; read x < go; test -d sub/.git && test -d other/.git && touch ok"
        )
        running = await started(root, command)
        await sh(root, "mkdir -p other/.git; echo on > go")
        assert await running.wait() == 0
        assert (root / "ok").exists()
        assert not (root / "sub" / ".git").exists()
        assert not (root / "other" / ".git").exists()


class TestBeside:
    async def test_what_another_command_may_have_hidden_is_waited_for(self, root: Path) -> None:
        """A repository that was there, and is not found, could be written where it is now: nothing runs."""
        repository(root / "vendor" / "lib")
        os.mkfifo(root / "go")
        running = await started(root, "touch made; read x < go")
        (root / "vendor").rename(root.parent / "elsewhere")
        with pytest.raises(SandboxUnavailable, match=r"vendor/lib/\.git was there"):
            await sh(root, "touch ran")
        (root.parent / "elsewhere").rename(root / "moved")
        assert (await sh(root, "echo on > go; echo x >> moved/lib/.git/config || echo no")).output.endswith(
            b"no\n"
        )
        assert await running.wait() == 0
        assert not (root / "ran").exists()

    async def test_what_stays_while_another_program_holds_the_folder_is_told(self, root: Path) -> None:
        """Another user of the machine can hold it for as long as he likes, and hides nothing so."""
        with holding(root, fcntl.LOCK_SH) as holder:
            outcome = await sh(root, "mkdir -p x/.git")
            assert "still there: x/.git." in outcome.undone
            fcntl.flock(holder, fcntl.LOCK_UN)
            assert "Taken away: x/.git." in (await sh(root, "true")).undone

    async def test_folders_that_a_command_made_hold_up_no_loop(self, root: Path) -> None:
        """A small folder may be a large one by the end of a command."""
        await sh(root, "true")
        running = asyncio.create_task(sh(root, "seq 20000 | xargs mkdir; touch done"))
        turns = 0
        while not running.done():
            await asyncio.sleep(0.001)
            turns += (root / "done").exists()
        assert (await running).exit_code == 0
        assert turns >= 20

    async def test_a_folder_that_another_program_holds_for_itself_holds_up_no_loop(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The command waits a while and is not run; everything else goes on."""
        await sh(root, "true")
        monkeypatch.setattr(workspace, "HOLDING_S", 0.2)
        turns = 0
        with holding(root, fcntl.LOCK_EX):
            running = asyncio.create_task(sh(root, "touch ran"))
            while not running.done():
                await asyncio.sleep(0.01)
                turns += 1
            with pytest.raises(SandboxUnavailable, match="holds"):
                await running
        assert turns >= 5
        assert not (root / "ran").exists()


@contextmanager
def holding(root: Path, how: int) -> Iterator[int]:
    """Hold a folder as another program would."""
    holder = os.open(root, os.O_RDONLY)
    try:
        fcntl.flock(holder, how)
        yield holder
    finally:
        os.close(holder)


async def test_a_workspace_inside_a_protected_link_is_still_refused(root: Path) -> None:
    """What a mount cannot protect ends the matter before the command begins, at any depth."""
    (root / "pkg").mkdir()
    (root / "pkg" / ".vscode").symlink_to("elsewhere")
    with pytest.raises(SandboxUnavailable, match="symbolic link"):
        await sh(root, "touch ran")
    assert not (root / "ran").exists()


async def test_an_environment_in_the_folder_is_shown_as_it_is(root: Path) -> None:
    """Names in it that are protected elsewhere are no reason against a command."""
    environment = root / "environment"
    (environment / "lib" / ".vscode").mkdir(parents=True)
    workspace = Workspace(root, is_writable=True, state=root.parent / "state")
    command = ["sh", "-c", "ls -A environment/lib; touch environment/x || echo no"]
    outcome = await run_sandboxed(command, workspace=workspace, limits=LIMITS, read_only=[environment])
    assert outcome.output.startswith(b".vscode\n")
    assert outcome.output.endswith(b"no\n")


class TestRepositories:
    async def test_submodules_worktrees_and_nested_repositories_work(self, root: Path) -> None:
        """Git answers in each of them, nothing is taken away, and no setting of theirs is written."""
        library = repository(root.parent / "library")
        repository(root)
        git(root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "vendor/lib")
        git(root, "commit", "-qm", "two")
        git(root, "worktree", "add", "-q", "trees/one")
        repository(root / "nested" / "deep")
        command = """for each in . vendor/lib trees/one nested/deep; do
  git -C $each log --oneline | wc -l; git -C $each config x.y z 2>/dev/null || echo no
done"""
        outcome = await sh(root, command)
        assert outcome.output.split() == [b"2", b"no", b"1", b"no", b"2", b"no", b"1", b"no"]
        assert outcome.undone == ""

    async def test_an_unchanged_folder_is_not_read_again(self, root: Path) -> None:
        """Yet what is made in it later is seen."""
        (root / "pkg").mkdir()
        long_ago = time.time() - 60
        os.utime(root / "pkg", (long_ago, long_ago))
        assert (await sh(root, "true")).undone == ""
        await asyncio.sleep(
            SETTLED_NS / 1e9 + 0.1
        )  # the kernel sets the time of a change, and nobody else can
        assert (await sh(root, "true")).undone == ""
        outcome = await sh(root, "mkdir pkg/.vscode; touch -d '2 hours ago' pkg")
        assert "pkg/.vscode" in outcome.undone

    async def test_a_model_and_a_person_are_told(self, root: Path) -> None:
        """The output of the tool names what was taken away and where it is, and so does its summary."""
        context = context_for(root)
        context.sandbox_state = root.parent / "state"
        result = await call(Shell(), context, command="mkdir -p pkg/.vscode; echo fine")
        assert result.output.startswith("fine\n[exit code 0]\n[Taken away: pkg/.vscode.")
        assert str(root.parent / "state" / "taken") in result.output
        assert "pkg/.vscode" in result.summary
        assert not result.is_error
