"""Programs that try to get out of the sandbox, or to use up the machine: each is refused or ended."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sandboxes import needs_sandbox
from tests.server.serving import until
from vivace.agent.sandbox.bubblewrap import FOLDER, find_bubblewrap, python_folders, unavailable
from vivace.agent.sandbox.run import Limits, Outcome, run_sandboxed
from vivace.errors import COULD_NOT_START, SandboxUnavailable

SMALL = Limits(seconds=60, cpu_seconds=60, memory_bytes=128 << 20, processes=16)


async def run_python(code: str, limits: Limits | None = None) -> Outcome:
    return await run_sandboxed([sys.executable, "-c", code], limits=limits)


@needs_sandbox
class TestInside:
    async def test_a_program_runs_with_its_files_in_a_folder_of_its_own(self) -> None:
        """It starts in a writable folder with its files, and its output and exit code come back."""
        code = "open('new', 'w').write(open('given').read()); print(open('new').read()); raise SystemExit(7)"
        outcome = await run_sandboxed([sys.executable, "-c", code], files={"given": b"hello"})
        assert (outcome.exit_code, outcome.output, outcome.stopped_by) == (7, b"hello\n", "")
        assert not outcome.is_success

    async def test_nothing_is_left_for_the_next_program(self) -> None:
        """Each run has a folder of its own."""
        await run_python("open('left', 'w')")
        outcome = await run_python("import os; print(os.listdir())")
        assert outcome.output == b"[]\n"

    async def test_the_environment_is_clean(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """No variable of ours is seen inside; home is the private folder."""
        monkeypatch.setenv("SECRET_KEY", "hush")
        outcome = await run_python("import os; print(os.environ.get('SECRET_KEY'), os.environ['HOME'])")
        assert outcome.output == f"None {FOLDER}\n".encode()

    async def test_a_command_that_is_not_there_fails_inside(self) -> None:
        """It is the program's failure, not the sandbox's."""
        outcome = await run_sandboxed(["no-such-program"])
        assert outcome.exit_code == 127
        assert b"no-such-program" in outcome.output


@needs_sandbox
class TestEscapes:
    async def test_the_network_is_not_there(self) -> None:
        """A server on this machine's loopback cannot be reached, nor is there a way out."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            outcome = await run_python(f"import socket; socket.create_connection(('127.0.0.1', {port}))")
        assert b"ConnectionRefusedError" in outcome.output
        outcome = await run_python("import socket; socket.create_connection(('192.0.2.1', 80))")
        assert b"Network is unreachable" in outcome.output

    @pytest.mark.parametrize("path", ["/x", "/usr/x", "/dev/x", "/etc/x", "/proc/x"])
    async def test_outside_of_the_folder_nothing_can_be_written(self, path: str) -> None:
        """The system's folders and the root of the sandbox are read-only."""
        outcome = await run_python(f"open({path!r}, 'w')")
        assert outcome.exit_code == 1
        assert not is_there(path)

    async def test_no_setting_of_the_kernel_can_be_opened_for_writing(self) -> None:
        """Also when this runs as root, whose user id passes the kernel's own checks."""
        code = """import os
for base, _, names in os.walk('/proc/sys'):
    for name in names:
        try: os.close(os.open(f'{base}/{name}', os.O_WRONLY)); print(name)
        except OSError: pass"""
        outcome = await run_python(code)
        assert (outcome.exit_code, outcome.output) == (0, b"")

    async def test_this_pythons_packages_cannot_be_changed(self, tmp_path: Path) -> None:
        """What is shown read-only stays as it is."""
        for folder in (*python_folders(), tmp_path):
            outcome = await run_sandboxed(["touch", f"{folder}/x"], read_only=[tmp_path])
            assert b"Read-only file system" in outcome.output

    async def test_the_home_cannot_be_read(self) -> None:
        """Neither a file in it, nor its list beyond what leads to this Python."""
        secret = Path.home() / f".vivace-sandbox-test-{os.getpid()}"
        secret.write_text("hush")
        try:
            outcome = await run_python(f"print(open({str(secret)!r}).read())")
        finally:
            secret.unlink()
        assert b"FileNotFoundError" in outcome.output

    async def test_no_process_outside_can_be_seen_or_killed(self) -> None:
        """Its parent is the sandbox's first process; ours has no number inside."""
        outcome = await run_python(f"import os; os.kill({os.getpid()}, 9)")
        assert b"ProcessLookupError" in outcome.output
        outcome = await run_python("import os; os.kill(os.getppid(), 9); print('still here')")
        assert outcome.output == b"still here\n"

    async def test_the_user_inside_is_nobody(self) -> None:
        """Capabilities are gone: no mount, no other user."""
        outcome = await run_python("import os; print(os.getuid()); os.setuid(0)")
        assert b"65534\n" in outcome.output
        assert outcome.exit_code == 1


@needs_sandbox
class TestLimits:
    async def test_too_many_processes_are_ended(self) -> None:
        """All of them. They wait instead of forking on: the machine has other users."""
        code = "import os, time\nfor _ in range(40):\n    if not os.fork(): break\ntime.sleep(600)"
        outcome = await run_python(code, SMALL)
        assert outcome.stopped_by == "processes"

    async def test_one_process_gets_no_more_memory(self) -> None:
        """Its allocation fails."""
        outcome = await run_python("x = bytearray(1 << 30)", SMALL)
        assert b"MemoryError" in outcome.output

    async def test_many_processes_share_one_limit_of_memory(self) -> None:
        """Each is below the limit; together they are not."""
        code = """import os, time
for _ in range(4):
    if not os.fork(): break
held = b'x' * (60 << 20)
time.sleep(600)"""
        outcome = await run_python(code, SMALL)
        assert outcome.stopped_by == "memory"

    async def test_endless_output_is_cut(self) -> None:
        """The program ends at the limit, and no more than that is kept."""
        outcome = await run_python("while True: print('x' * 1000)", SMALL)
        assert (outcome.stopped_by, len(outcome.output)) == ("output", SMALL.output_bytes)

    async def test_time_ends_what_waits_and_what_computes(self) -> None:
        """On the clock, and in processor time."""
        outcome = await run_python("import time; time.sleep(600)", Limits(seconds=0.5))
        assert outcome.stopped_by == "time"
        outcome = await run_python("while True: pass", Limits(seconds=600, cpu_seconds=1))
        assert outcome.stopped_by == "time"

    async def test_a_file_and_the_folder_can_be_full(self) -> None:
        """Writing beyond either limit fails inside."""
        outcome = await run_python("open('f', 'wb').write(bytes(17 << 20))")
        assert b"File too large" in outcome.output
        outcome = await run_python("for i in range(9): open(f'f{i}', 'wb').write(bytes(10 << 20))")
        assert b"No space left" in outcome.output

    async def test_what_a_program_leaves_running_ends_with_it(self) -> None:
        """A process in the background does not keep the sandbox open."""
        outcome = await run_python("import os, time\nif not os.fork(): os.setsid(); time.sleep(600)")
        assert outcome.is_success

    async def test_a_cancelled_run_ends_its_program(self) -> None:
        """Nothing goes on behind a cancel."""
        task = asyncio.create_task(run_python("import time; time.sleep(600)", Limits(seconds=600)))
        children = await asyncio.to_thread(until, own_children)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not any(is_there(f"/proc/{pid}") for pid in children)


def own_children() -> list[int]:
    """Return this process's children that are bubblewrap."""
    tasks = Path("/proc/self/task").iterdir()
    pids = [int(pid) for task in tasks for pid in (task / "children").read_text().split()]
    return [pid for pid in pids if Path(f"/proc/{pid}/comm").read_text() == "bwrap\n"]


def is_there(path: str) -> bool:
    return Path(path).exists()


class TestUnavailable:
    async def test_without_bubblewrap_nothing_runs(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """The error says how to install it."""
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(SandboxUnavailable) as caught:
            await run_sandboxed([sys.executable, "-c", f"open({str(tmp_path / 'ran')!r}, 'w')"])
        assert "apt install bubblewrap" in caught.value.hint or sys.platform != "linux"
        assert caught.value.exit_code == COULD_NOT_START
        assert not (tmp_path / "ran").exists()

    def test_elsewhere_than_on_linux_there_is_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The error names the reason."""
        monkeypatch.setattr(sys, "platform", "darwin")
        with pytest.raises(SandboxUnavailable, match="Linux only"):
            find_bubblewrap()

    @needs_sandbox
    @pytest.mark.skipif(not shutil.which("unshare"), reason="needs util-linux")
    def test_a_machine_that_forbids_user_namespaces_is_told_so(self) -> None:
        """The setting that forbids them is named, and what to do about it."""
        code = (
            "import asyncio\nfrom vivace.agent.sandbox.run import run_sandboxed\n"
            "try: asyncio.run(run_sandboxed(['true']))\n"
            "except Exception as error: print(error, error.hint)"
        )
        forbid = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
        command = ["unshare", "-Ur", "sh", "-c", forbid, "sh", sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "does not allow unprivileged user namespaces" in done.stdout
        assert "sysctl user.max_user_namespaces" in done.stdout

    def test_other_failures_are_told_in_bubblewraps_words(self) -> None:
        """Nothing is guessed."""
        error = unavailable("bwrap: Can't mount proc on /newroot/proc: Invalid argument\n")
        assert "Can't mount proc" in error.message
        assert "nothing was run" in error.message
