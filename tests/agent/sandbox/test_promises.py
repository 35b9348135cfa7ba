"""What the sandbox promises, asked of the kernel and of real daemons."""

import asyncio
import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.sandboxes import needs_sandbox
from tests.server.serving import until
from vivace.agent.sandbox.run import HOLDS_SOCKETS, Limits, Outcome, landlock_version, run_sandboxed
from vivace.agent.sandbox.workspace import Workspace

LIMITS = Limits(seconds=60, cpu_seconds=60)
NAMESPACES = ("user", "mnt", "pid", "net", "ipc", "uts")
LIMITED = Path(__file__).parents[3] / "src" / "vivace" / "agent" / "sandbox" / "limited.py"
pytestmark = needs_sandbox


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    root.mkdir()
    return root


async def python(root: Path, code: str) -> Outcome:
    workspace = Workspace(root, is_writable=True, state=root.parent / "state")
    return await run_sandboxed([sys.executable, "-S", "-c", code], workspace=workspace, limits=LIMITS)


class TestKernel:
    async def test_every_namespace_is_its_own(self, root: Path) -> None:
        """Users, mounts, processes, network, shared memory and the machine's name."""
        code = f"import os\nfor each in {NAMESPACES}: print(os.readlink('/proc/self/ns/' + each))"
        inside = (await python(root, code)).output.decode().split()
        outside = [os.readlink(f"/proc/self/ns/{each}") for each in NAMESPACES]  # noqa: PTH115
        assert len(inside) == len(NAMESPACES)
        assert not set(inside) & set(outside)

    async def test_no_privilege_is_left_and_none_can_be_gained(self, root: Path) -> None:
        """Every set of capabilities is empty, and the filter of system calls is on."""
        code = """for line in open('/proc/self/status'):
    if line.startswith(('Cap', 'NoNewPrivs', 'Seccomp:')): print(*line.split())"""
        told = dict(line.split() for line in (await python(root, code)).output.decode().splitlines())
        assert {each for name, each in told.items() if name.startswith("Cap")} == {"0" * 16}
        assert (told["NoNewPrivs:"], told["Seccomp:"]) == ("1", "2")

    async def test_no_descriptor_of_ours_is_inherited(self, root: Path) -> None:
        """But for the three that every program has."""
        code = """import os
for each in os.listdir('/proc/self/fd'):
    try: print(each, os.readlink('/proc/self/fd/' + each))
    except OSError: pass"""
        lines = (await python(root, code)).output.decode().splitlines()
        assert sorted(line.split()[0] for line in lines) == ["0", "1", "2"]

    async def test_the_network_has_only_its_own_loopback(self, root: Path) -> None:
        """No other device, no route."""
        code = """import socket
print([name for _, name in socket.if_nameindex()])
print(open('/proc/net/route').read())"""
        lines = (await python(root, code)).output.decode().splitlines()
        assert lines[0] == "['lo']"
        assert len(lines) <= 3  # the heading of the table and nothing below

    async def test_no_dump_is_given_to_a_program_outside(self, root: Path) -> None:
        """The kernel hands dumps to the system's crash handler unless the limit is just one byte."""
        code = "import resource; print(resource.getrlimit(resource.RLIMIT_CORE))"
        assert (await python(root, code)).output == b"(1, 1)\n"

    async def test_no_device_but_the_harmless_ones(self, root: Path) -> None:
        """None of a disk, of memory, of a virtual machine or of input."""
        code = "import os; print(*sorted(os.listdir('/dev')))"
        names = set((await python(root, code)).output.decode().split())
        harmless = {
            "null",
            "zero",
            "full",
            "random",
            "urandom",
            "tty",
            "pts",
            "ptmx",
            "shm",
            "console",
            "core",
        }
        assert names <= harmless | {"fd", "stdin", "stdout", "stderr"}

    async def test_files_outside_cannot_be_watched(self, root: Path) -> None:
        """What the user does elsewhere is not told by inotify either."""
        code = f"""import ctypes
libc = ctypes.CDLL(None, use_errno=True)
watch = libc.inotify_init1(0)
for path in ({str(root.parent / "state")!r}, '/etc/passwd', '/run', '/var'):
    print(libc.inotify_add_watch(watch, path.encode(), 0xfff))
print(libc.inotify_add_watch(watch, b'.', 0xfff))"""
        lines = (await python(root, code)).output.decode().splitlines()
        assert lines == ["-1"] * 4 + ["1"]


AUTH = r"""import socket, sys
try:
    bus = socket.socket(socket.AF_UNIX); bus.settimeout(10); bus.connect({place!r})
    bus.send(b'\0AUTH EXTERNAL\r\n'); print(bus.recv(100))
except OSError as error: print(type(error).__name__)
import os; print(os.environ.get('DBUS_SESSION_BUS_ADDRESS'), os.environ.get('XDG_RUNTIME_DIR'))
"""


@asynccontextmanager
async def bus_at(address: str) -> AsyncIterator[None]:
    """Run a D-Bus daemon at an address."""
    daemon = await asyncio.create_subprocess_exec(
        *("dbus-daemon", "--session", "--nofork", "--print-address", f"--address={address}"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert daemon.stdout
    try:
        assert (await daemon.stdout.readline()).startswith(b"unix:")
        yield
    finally:
        daemon.kill()
        await daemon.wait()


@pytest.mark.skipif(not shutil.which("dbus-daemon"), reason="needs dbus-daemon")
class TestBus:
    @pytest.mark.parametrize("where", ["runtime folder", "abstract", "workspace"])
    async def test_the_users_bus_is_not_reached(
        self, root: Path, monkeypatch: pytest.MonkeyPatch, where: str
    ) -> None:
        """Nor is its address known. It could start programs outside of every wall."""
        short = Path(os.path.relpath(root)) if len(str(root)) > 80 else root  # noqa: ASYNC240
        place = {
            "runtime folder": str(short.parent / "bus"),
            "abstract": f"\0vivace-bus-{os.getpid()}",
            "workspace": str(short / "bus"),
        }[where]
        address = f"unix:abstract={place[1:]}" if where == "abstract" else f"unix:path={place}"
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(root.parent))
        async with bus_at(address):
            with socket.socket(socket.AF_UNIX) as outside:
                outside.connect(place)
            outcome = await python(root, AUTH.format(place=place))
        answer, variables = outcome.output.decode().splitlines()
        assert answer in ("ConnectionRefusedError", "FileNotFoundError")
        assert variables == "None None"


class TestLaterSockets:
    @pytest.mark.skipif(
        landlock_version() < HOLDS_SOCKETS, reason="needs Linux 7.1: Landlock knows sockets by their path"
    )
    async def test_a_socket_that_comes_later_is_not_reached(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A daemon that begins to listen in the folder while the command runs answers nobody inside."""
        monkeypatch.chdir(root)
        code = """import os, socket, time
open('began', 'w').close()
while not os.path.exists('late.sock'): time.sleep(0.01)
time.sleep(0.1)
try: socket.socket(socket.AF_UNIX).connect('late.sock'); print('reached')
except OSError as error: print(type(error).__name__)"""
        inside = asyncio.create_task(python(root, code))
        await asyncio.to_thread(until, (root / "began").exists)
        with socket.socket(socket.AF_UNIX) as daemon:
            daemon.bind("late.sock")
            daemon.listen()
            assert (await inside).output == b"PermissionError\n"

    @pytest.mark.skipif(not landlock_version(), reason="needs Landlock")
    async def test_landlock_leaves_honest_programs_alone(self, root: Path) -> None:
        """Files are moved between folders, and programs inside reach each other by paths."""
        code = f"""import os, socket, sys
sys.path.insert(0, '.')
import limited
limited.keep_to_own_sockets({landlock_version()})
os.mkdir('one'); os.mkdir('two'); open('one/file', 'w').close(); os.rename('one/file', 'two/file')
server = socket.socket(socket.AF_UNIX); server.bind('/tmp/own'); server.listen()
socket.socket(socket.AF_UNIX).connect('/tmp/own'); print('fine')"""
        shutil.copy(LIMITED, root / "limited.py")
        assert (await python(root, code)).output == b"fine\n"
