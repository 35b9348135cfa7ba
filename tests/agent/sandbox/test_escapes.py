"""Ways out of a sandbox past files and networks: sockets, system calls, other processes, terminals."""

import contextlib
import errno
import os
import shutil
import socket
import stat
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sandboxes import needs_sandbox
from vivace.agent.sandbox.run import Limits, Outcome, run_sandboxed
from vivace.agent.sandbox.seccomp import _MACHINES, FAMILIES, TERMINAL_REQUESTS, seccomp_filter
from vivace.agent.sandbox.workspace import Workspace
from vivace.agent.tools.shell import limits_for

LIMITS = Limits(seconds=60, cpu_seconds=60, memory_bytes=512 << 20, processes=32)
needs_filter = pytest.mark.skipif(not seccomp_filter(), reason="no filter of system calls for this machine")
CALL = """import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    return os.strerror(ctypes.get_errno()) if result == -1 else 'done'
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    root.mkdir()
    return root


@pytest.fixture
def repository(root: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root


async def python(root: Path, code: str, *, writable: bool = True) -> Outcome:
    return await run_sandboxed(
        [sys.executable, "-S", "-c", code], workspace=Workspace(root, is_writable=writable), limits=LIMITS
    )


@needs_sandbox
class TestSockets:
    @pytest.mark.parametrize("writable", [True, False])
    async def test_a_socket_in_the_folder_cannot_be_reached(
        self, root: Path, monkeypatch: pytest.MonkeyPatch, writable: bool
    ) -> None:
        """Such as a daemon's that would do anything for its user; at any depth, in protected folders too."""
        monkeypatch.chdir(root)  # a socket's path is short
        names = ("daemon.sock", "deep/daemon.sock", ".git/daemon.sock", "deep/.vscode/in/daemon.sock")
        with contextlib.ExitStack() as stack:
            for name in names:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                daemon = stack.enter_context(socket.socket(socket.AF_UNIX))
                daemon.bind(name)
                daemon.listen()
            code = f"""import socket
for name in {names!r}:
    try: socket.socket(socket.AF_UNIX).connect(name); print('reached')
    except OSError as error: print(type(error).__name__)"""
            outcome = await python(root, code, writable=writable)
        assert outcome.output == b"ConnectionRefusedError\n" * len(names)

    async def test_a_socket_without_a_file_cannot_be_reached(self, root: Path) -> None:
        """Names of the kernel's own are those of the sandbox's network, and nobody else's."""
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(f"\0vivace-test-{os.getpid()}")
            server.listen()
            code = f"import socket; socket.socket(socket.AF_UNIX).connect('\\0vivace-test-{os.getpid()}')"
            outcome = await python(root, code)
        assert b"ConnectionRefusedError" in outcome.output

    async def test_programs_inside_may_talk_to_each_other(self, root: Path) -> None:
        """Sockets of their own work: test suites start servers."""
        code = """import socket
a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))
s = socket.socket(socket.AF_UNIX); s.bind('/tmp/own'); s.listen()
socket.socket(socket.AF_UNIX).connect('/tmp/own')
t = socket.create_server(('127.0.0.1', 0)); socket.create_connection(t.getsockname()); print('both')"""
        assert (await python(root, code)).output == b"b'x'\nboth\n"


@needs_sandbox
@needs_filter
class TestSystemCalls:
    async def test_what_attacks_are_made_of_is_denied(self, root: Path) -> None:
        """Rings, keys, other processes' memory, mounts, the clock: each call is answered with an error."""
        known = _MACHINES[os.uname().machine]
        numbers = known.all_denied
        code = f"{CALL}for name, number in {numbers!r}.items(): print(name, call(number, 0, 0, 0, 0, 0, 0))"
        lines = (await python(root, code)).output.decode().splitlines()
        assert lines == [f"{name} Operation not permitted" for name in numbers]

    @pytest.mark.parametrize("call", [0, 1])
    async def test_sockets_have_only_the_families_that_the_walls_hold(self, root: Path, call: int) -> None:
        """No virtual machine's host (AF_VSOCK), no cipher, packet or radio: the kernel says so of each."""
        known = _MACHINES[os.uname().machine]
        code = f"""{CALL}import ctypes
pair = (ctypes.c_int * 2)()
kinds = [call({known.sockets[call]}, family, kind, 0, ctypes.addressof(pair))
         for family in range(64) for kind in (1, 2, 3, 5)]
print([family for family in range(64)
       if set(kinds[4 * family : 4 * family + 4]) != {{os.strerror(97)}}])
print(call({known.sockets[call]}, (1 << 32) | 40, 1, 0, ctypes.addressof(pair)))"""
        lines = (await python(root, code)).output.decode().splitlines()
        assert lines == [str(list(FAMILIES.values())), os.strerror(errno.EAFNOSUPPORT)]

    async def test_nothing_is_typed_into_a_terminal_of_its_own(self, root: Path) -> None:
        """Nor is its line discipline changed; a pair of terminals works otherwise."""
        code = f"""{CALL}import fcntl, termios, struct
master, slave = os.openpty()
for request in {list(TERMINAL_REQUESTS.values())}:
    try: fcntl.ioctl(slave, request, b'x' * 8); print('done')
    except OSError as error: print(error.strerror)
print(os.isatty(slave), len(termios.tcgetattr(slave)), fcntl.ioctl(slave, termios.TIOCGWINSZ, b'x' * 8))"""
        lines = (await python(root, code)).output.decode().splitlines()
        assert lines[:-1] == ["Operation not permitted"] * len(TERMINAL_REQUESTS)
        assert lines[-1].startswith("True 7")

    async def test_no_user_namespace_is_made(self, root: Path) -> None:
        """Its maker would have all capabilities inside of it; threads and processes are made as ever."""
        known = _MACHINES[os.uname().machine]
        new_user = 0x10000000
        code = f"""{CALL}import threading, subprocess
print(call({known.unshare}, {new_user}), call({known.clone}, {new_user} | 17, 0, 0, 0, 0), call(435, 0, 0))
threading.Thread(target=lambda: print('thread')).start()
print(subprocess.run(['echo', 'process'], capture_output=True).stdout)"""
        output = (await python(root, code)).output.decode()
        assert output.startswith("Operation not permitted Operation not permitted Function not implemented\n")
        assert "thread" in output
        assert "process" in output

    @pytest.mark.parametrize("machine", sorted(_MACHINES))
    def test_the_filter_is_a_program_that_ends(self, machine: str) -> None:
        """Every jump stays inside, and the last instruction returns: the kernel would refuse it otherwise."""
        data = seccomp_filter(machine)
        steps = list(struct.iter_unpack("=HBBI", data))
        for at, (_, yes, no, _) in enumerate(steps):
            assert at + 1 + max(yes, no) < len(steps) or steps[at][0] == 0x06
        assert steps[-1] == (0x06, 0, 0, 0x7FFF0000)
        assert len(steps) < 4096

    def test_an_unknown_machine_has_no_filter(self) -> None:
        """The walls stand without it."""
        assert seccomp_filter("s390x") == b""


@needs_sandbox
class TestProcesses:
    async def test_the_first_process_is_no_way_out(self, root: Path) -> None:
        """Its memory is not written; it has no capability; and no process of ours is seen."""
        code = """import os
wanted = ('CapEff', 'CapPrm', 'NoNewPrivs')
print([line.split()[1] for line in open('/proc/1/status') if line.split(':')[0] in wanted])
print(max(int(each) for each in os.listdir('/proc') if each.isdigit()) < 100)
try: open('/proc/1/mem', 'r+b'); print('opened')
except OSError as error: print(error.strerror)"""
        lines = (await python(root, code)).output.decode().splitlines()
        assert lines == [
            "['0000000000000000', '0000000000000000', '1']",
            "True",
            "Read-only file system",
        ]

    async def test_a_setuid_program_gives_nothing(self, root: Path) -> None:
        """Privileges are never gained inside, whoever owns the file."""
        copy = root / "id"
        shutil.copy(shutil.which("id") or "/usr/bin/id", copy)
        copy.chmod(copy.stat().st_mode | stat.S_ISUID | stat.S_ISGID)
        outcome = await run_sandboxed(
            ["sh", "-c", "./id -u; ./id -ru"], workspace=Workspace(root, is_writable=True), limits=LIMITS
        )
        assert outcome.output == b"65534\n65534\n"

    async def test_there_is_no_terminal_to_type_at(self, root: Path) -> None:
        """A program could otherwise put a command into the user's shell."""
        code = """import fcntl, os, termios
for name in ('/dev/tty', '/dev/console'):
    try: fcntl.ioctl(os.open(name, os.O_RDWR), termios.TIOCSTI, b'x'); print('typed')
    except OSError: pass"""
        assert (await python(root, code)).output == b""


@needs_sandbox
async def test_ten_gigabytes_of_output_are_cut(root: Path) -> None:
    """At the limit that a task's command has, of which no more is kept."""
    outcome = await run_sandboxed(
        ["head", "-c", "10000000000", "/dev/zero"],
        workspace=Workspace(root, is_writable=True),
        limits=limits_for(120),
    )
    assert (outcome.stopped_by, len(outcome.output)) == ("output", limits_for(120).output_bytes)


@needs_sandbox
async def test_a_hostile_monitor_cannot_be_planted(repository: Path) -> None:
    """Neither into the configuration that is there, nor into one that Git would look for, nor a hook."""
    root = repository
    before = (root / ".git" / "config").read_bytes()
    command = """git config core.fsmonitor 'touch owned'
git config --file .git/config.worktree core.fsmonitor x
echo '#!/bin/sh' > .git/hooks/pre-commit; echo '[core]' > .gitconfig; mkdir -p sub/.git/hooks
git -C sub config core.fsmonitor 'touch owned'; true"""
    await run_sandboxed(["sh", "-c", command], workspace=Workspace(root, is_writable=True), limits=LIMITS)
    assert (root / ".git" / "config").read_bytes() == before
    assert not (root / ".git" / "config.worktree").exists()
    assert not (root / ".git" / "hooks" / "pre-commit").exists()
    assert not (root / ".gitconfig").exists()
