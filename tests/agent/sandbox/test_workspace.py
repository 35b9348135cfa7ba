"""Commands that may write a folder of the user's, and try to write more than that."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.sandboxes import needs_sandbox
from vivace.agent.permissions.paths import PROTECTED
from vivace.agent.sandbox.plain import run_plainly
from vivace.agent.sandbox.run import Limits, Outcome, run_sandboxed
from vivace.agent.sandbox.workspace import STUB_TIME_NS, Workspace
from vivace.errors import SandboxUnavailable

LIMITS = Limits(seconds=60, cpu_seconds=60, memory_bytes=512 << 20, processes=32)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    root.mkdir()
    (root / "a.txt").write_text("old\n")
    return root


async def sh(root: Path, command: str, *, writable: bool = True, limits: Limits = LIMITS) -> Outcome:
    return await run_sandboxed(
        ["sh", "-c", command], workspace=Workspace(root, is_writable=writable), limits=limits
    )


def listing(root: Path) -> list[str]:
    return sorted(each.name for each in root.iterdir())


def worktree_of(root: Path) -> Path:
    """Make a repository of the folder, and a worktree beside it."""
    tree = root.parent / "tree"
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    for arguments in (
        ["init", "-q"],
        ["add", "."],
        [*identity, "commit", "-qm", "one"],
        ["worktree", "add", "-q", str(tree)],
    ):
        subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True)
    return tree


@needs_sandbox
class TestWritable:
    async def test_a_command_starts_in_the_folder_and_may_write_it(self, root: Path) -> None:
        """What it writes is there afterwards, owned by the user, and nothing else is."""
        outcome = await sh(root, "cat a.txt; echo new > a.txt; mkdir b; echo x > b/c; pwd")
        assert (outcome.exit_code, outcome.output.decode()) == (0, f"old\n{root}\n")
        assert (root / "a.txt").read_text() == "new\n"
        assert (root / "b" / "c").stat().st_uid == os.getuid()
        assert listing(root) == ["a.txt", "b"]

    async def test_a_missing_protected_name_cannot_be_made(self, root: Path) -> None:
        """Neither as a file nor as a folder nor as a link, and nothing is left of the attempt."""
        tries = """for n in NAMES; do
  mkdir -p $n/hooks; echo x > $n; rm -rf $n; mkdir $n; mkdir -p t; echo x > t/y; mv t $n; mv $n other
  ln -sfn /tmp $n; echo x > $n/config; rm -rf t
done; true"""
        outcome = await sh(root, tries.replace("NAMES", " ".join(PROTECTED)))
        assert outcome.exit_code == 0
        assert listing(root) == ["a.txt"]

    async def test_what_is_protected_stays_as_it_is(self, root: Path) -> None:
        """Also in a folder below; it can be read."""
        for folder in (root / ".git", root / "sub" / ".git"):
            (folder / "hooks").mkdir(parents=True)
            (folder / "config").write_text("[core]\n")
        (root / ".bashrc").write_text("true\n")
        command = """cat .git/config
for d in .git sub/.git; do
  echo evil >> $d/config; echo evil > $d/hooks/post-checkout; rm -rf $d; mv $d gone; chmod -R 777 $d
  ln $d/config link && echo evil > link
done
echo evil >> .bashrc; rm -f .bashrc; mount -o remount,rw $PWD/.git; umount $PWD/.git; true"""
        outcome = await sh(root, command)
        assert outcome.output.startswith(b"[core]\n")
        for folder in (root / ".git", root / "sub" / ".git"):
            assert (folder / "config").read_text() == "[core]\n"
            assert list((folder / "hooks").iterdir()) == []
        assert (root / ".bashrc").read_text() == "true\n"
        assert not (root / "link").exists()

    async def test_outside_of_the_folder_nothing_is_seen_or_written(self, root: Path, tmp_path: Path) -> None:
        """Not by dots, not through a link that was there, not in the home folder."""
        (tmp_path / "secret").write_text("hush")
        (root / "out").symlink_to(tmp_path)
        home = Path.home()
        command = f"cat ../secret out/secret; echo x > ../new; echo x > out/new; ls {home}; echo $HOME"
        outcome = await sh(root, command)
        assert b"hush" not in outcome.output
        assert outcome.output.endswith(b"/sandbox\n")
        assert not (tmp_path / "new").exists()

    async def test_a_link_made_inside_leads_nowhere_outside(self, root: Path, tmp_path: Path) -> None:
        """A link that is swapped for a file while the command runs still ends at the walls."""
        (tmp_path / "target").write_text("safe")
        command = f"""for i in 1 2 3 4 5 6 7 8 9; do
  ln -sfn {tmp_path} swap; echo evil > swap/target; rm -f swap; mkdir -p swap; rm -rf swap
done"""
        await sh(root, command)
        assert (tmp_path / "target").read_text() == "safe"

    async def test_a_protected_link_or_a_second_name_is_not_run_over(self, root: Path) -> None:
        """What a mount cannot protect ends the matter before the command begins."""
        (root / "real").mkdir()
        (root / ".git").symlink_to("real")
        with pytest.raises(SandboxUnavailable, match="symbolic link"):
            await sh(root, "touch ran")
        (root / ".git").unlink()
        (root / ".git" / "hooks").mkdir(parents=True)
        (root / ".git" / "config").write_text("")
        os.link(root / ".git" / "config", root / "other")
        with pytest.raises(SandboxUnavailable, match="hard link"):
            await sh(root, "touch ran")
        assert not (root / "ran").exists()

    async def test_there_is_no_network(self, root: Path) -> None:
        """Neither TCP nor UDP nor a socket of another process."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            code = f"""import socket
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    for host, port in (('127.0.0.1', {port}), ('192.0.2.1', 53)):
        try:
            s = socket.socket(socket.AF_INET, kind); s.settimeout(2); s.connect((host, port)); s.send(b'x')
            print('reached', host, s.recv(1))
        except OSError as error: pass"""
            outcome = await run_sandboxed(
                [sys.executable, "-c", code], workspace=Workspace(root, is_writable=True), limits=LIMITS
            )
        assert (outcome.exit_code, outcome.output) == (0, b"")

    async def test_secrets_of_the_environment_are_not_there(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Not even in another process's environment: there is no other process."""
        monkeypatch.setenv("GITHUB_TOKEN", "hush-hush")
        outcome = await sh(root, "env; cat /proc/*/environ")
        assert b"hush-hush" not in outcome.output

    async def test_a_killed_run_is_cleaned_up_by_the_next(self, root: Path) -> None:
        """What stood in for a missing file is known by its time, and a file of the user's is not."""
        (root / ".envrc").touch()
        os.utime(root / ".envrc", ns=(STUB_TIME_NS, STUB_TIME_NS))
        (root / ".vscode").mkdir()
        os.utime(root / ".vscode", ns=(STUB_TIME_NS, STUB_TIME_NS))
        (root / ".profile").touch()
        await sh(root, "true")
        assert listing(root) == [".profile", "a.txt"]

    async def test_git_works_in_a_worktree_and_cannot_be_changed_there(self, root: Path) -> None:
        """The repository that a worktree belongs to can be read, and its configuration not be written."""
        tree = worktree_of(root)
        outcome = await sh(tree, f"git log --oneline | wc -l; git config x.y z; echo e > {root}/.git/evil")
        assert outcome.output.startswith(b"1\n")
        assert "[x]" not in (root / ".git" / "config").read_text()
        assert not (root / ".git" / "evil").exists()

    async def test_a_file_cannot_have_a_foreign_folder_shown(self, root: Path, tmp_path: Path) -> None:
        """A `.git` that names a folder which does not name it back opens nothing."""
        secrets = tmp_path / "secrets"
        secrets.mkdir()
        (secrets / "key").write_text("hush")
        for name, text in {"gitdir": f"{tmp_path}/other/.git", "commondir": ".", "HEAD": "x"}.items():
            (secrets / name).write_text(text)
        (root / ".git").write_text(f"gitdir: {secrets}\n")
        outcome = await sh(root, f"cat {secrets}/key")
        assert b"hush" not in outcome.output


@needs_sandbox
class TestReadOnly:
    async def test_a_folder_may_be_read_only(self, root: Path) -> None:
        """Nothing in it changes, and nothing is put into it."""
        outcome = await sh(root, "cat a.txt; echo new > a.txt; touch b; rm a.txt", writable=False)
        assert outcome.output.startswith(b"old\n")
        assert (listing(root), (root / "a.txt").read_text()) == (["a.txt"], "old\n")


@needs_sandbox
class TestExhaustion:
    async def test_endless_processes_are_ended(self, root: Path) -> None:
        """By their number. They come one by one here: as root only we count them, and not the kernel."""
        outcome = await sh(root, "while true; do sleep 60 & sleep 0.01; done")
        assert outcome.stopped_by == "processes"

    async def test_endless_output_is_ended(self, root: Path) -> None:
        """At its limit, of which no more than that is kept."""
        limits = Limits(seconds=60, cpu_seconds=60, output_bytes=1 << 20)
        outcome = await sh(root, "yes", limits=limits)
        assert (outcome.stopped_by, len(outcome.output)) == ("output", 1 << 20)

    async def test_endless_writing_is_ended(self, root: Path) -> None:
        """By the size of one file, or by the room that all of them take."""
        limits = Limits(seconds=60, cpu_seconds=60, file_bytes=1 << 20)
        outcome = await sh(root, "yes > big", limits=limits)
        assert outcome.exit_code != 0
        assert (root / "big").stat().st_size <= 1 << 20
        limits = Limits(seconds=60, cpu_seconds=60, file_bytes=4 << 20, disk_bytes=32 << 20)
        many = "i=0; while true; do i=$((i+1)); head -c 4000000 /dev/zero > f$i; done"
        assert (await sh(root, many, limits=limits)).stopped_by == "disk"


class TestWithoutWalls:
    async def test_a_command_that_was_allowed_out_has_limits_and_no_secrets(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its output is cut, its time is short, and its children end with it."""
        monkeypatch.setenv("MY_API_KEY", "hush-hush")
        outcome = await run_plainly(["sh", "-c", "cat a.txt; env; exit 3"], root, LIMITS)
        assert outcome.exit_code == 3
        assert outcome.output.startswith(b"old\n")
        assert b"hush-hush" not in outcome.output
        outcome = await run_plainly(["yes"], root, Limits(output_bytes=1000))
        assert (outcome.stopped_by, len(outcome.output)) == ("output", 1000)
        outcome = await run_plainly(["head", "-c", "1000", "/dev/zero"], root, Limits(output_bytes=1000))
        assert (outcome.stopped_by, len(outcome.output)) == ("", 1000)
        outcome = await run_plainly(["sh", "-c", "sleep 600 & sleep 600"], root, Limits(seconds=0.2))
        assert outcome.stopped_by == "time"

    async def test_a_child_in_a_session_of_its_own_is_not_waited_for(self, root: Path) -> None:
        """It holds the output still; the command's time is over all the same."""
        leaves = "import os, time; os.fork() or (os.setsid(), time.sleep(20))"
        began_s = time.monotonic()
        outcome = await run_plainly([sys.executable, "-c", leaves], root, Limits(seconds=1))
        assert outcome.stopped_by == "time"
        assert time.monotonic() - began_s < 15
