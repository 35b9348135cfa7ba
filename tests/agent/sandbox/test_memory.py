"""Memory that no process shows: it counts as what is mapped does."""

import asyncio
import sys
from pathlib import Path

import pytest

from tests.sandboxes import needs_sandbox
from tests.server.serving import until
from vivace.agent.sandbox.run import Limits, Outcome, run_sandboxed
from vivace.agent.sandbox.usage import memory_of_machine
from vivace.agent.sandbox.workspace import Workspace

MUCH = 320 << 20
LIMITS = Limits(
    seconds=60,
    cpu_seconds=60,
    memory_bytes=128 << 20,
    processes=32,
    file_bytes=1 << 30,
    folder_bytes=1 << 30,
)
pytestmark = needs_sandbox
HEAD = """import array, ctypes, mmap, os, socket, sys, time
block = bytes(1 << 20)
libc = ctypes.CDLL(None, use_errno=True)
"""
# Each holds MUCH and then waits. What it writes is not mapped by any process.
HIDDEN = {
    "a memfd": """
held = os.memfd_create('x')
for _ in range(MUCH >> 20): os.write(held, block)
""",
    "memfds that wait in a socket": """
one, two = socket.socketpair()
for _ in range(10):
    held = os.memfd_create('x')
    for _ in range((MUCH // 10) >> 20): os.write(held, block)
    one.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [held]))])
    os.close(held)
""",
    "segments of System V": """
libc.shmat.restype = ctypes.c_void_p
for _ in range(10):
    at = libc.shmat(libc.shmget(0, MUCH // 10, 0o1600), None, 0)
    ctypes.memset(at, 1, MUCH // 10)
    libc.shmdt(ctypes.c_void_p(at))
""",
    "a file of POSIX's shared memory": """
held = os.open('/dev/shm/x', os.O_RDWR | os.O_CREAT)
for _ in range(MUCH >> 20): os.write(held, block)
""",
    "pages that a process has let go": """
held = mmap.mmap(-1, MUCH)
for place in range(0, MUCH, 1 << 20):
    held[place : place + len(block)] = block
    held.madvise(mmap.MADV_DONTNEED, place, 1 << 20)
""",
}


async def run(code: str, root: Path) -> Outcome:
    code = f"{HEAD}MUCH = {MUCH}\n{code}\nprint('held', flush=True)\ntime.sleep(600)"
    return await run_sandboxed(
        [sys.executable, "-S", "-c", code], workspace=Workspace(root, is_writable=False), limits=LIMITS
    )


@pytest.mark.parametrize("how", HIDDEN)
async def test_hidden_memory_ends_the_command(how: str, tmp_path: Path) -> None:
    """Whatever holds it, and though no process has it mapped."""
    outcome = await run(HIDDEN[how], tmp_path)
    assert outcome.stopped_by == "memory"


async def test_a_little_shared_memory_is_no_reason(tmp_path: Path) -> None:
    """Programs share memory with each other as ever: what they share counts once."""
    code = """
held = mmap.mmap(-1, 40 << 20)
for place in range(0, 40 << 20, 1 << 20): held[place : place + len(block)] = block
if not os.fork(): held[:10]; os._exit(0)
os.wait(); time.sleep(0.2); print('fine', flush=True); os._exit(0)"""
    outcome = await run(code, tmp_path)
    assert (outcome.stopped_by, outcome.output) == ("", b"fine\n")


async def test_memory_that_programs_outside_share_is_theirs(tmp_path: Path) -> None:
    """A command is not ended for what the user's other programs hold."""
    code = f"""import mmap, sys
held = mmap.mmap(-1, {MUCH})
sys.stdin.read(1)
for place in range(0, {MUCH}, 1 << 20): held[place : place + (1 << 20)] = bytes(1 << 20)
print('held', flush=True)
sys.stdin.read()"""
    outside = await asyncio.create_subprocess_exec(
        sys.executable, "-S", "-c", code, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert outside.stdin
    assert outside.stdout
    before = memory_of_machine().shared_bytes
    inside = asyncio.create_task(
        run_sandboxed(
            ["sh", "-c", "touch began; while test ! -e held; do sleep 0.05; done; sleep 0.2; echo fine"],
            workspace=Workspace(tmp_path, is_writable=True, state=tmp_path.parent / "state"),
            limits=LIMITS,
        )
    )
    await asyncio.to_thread(until, (tmp_path / "began").exists)
    outside.stdin.write(b"x")
    assert await outside.stdout.readline() == b"held\n"
    assert memory_of_machine().shared_bytes - before > LIMITS.memory_bytes
    (tmp_path / "held").touch()
    outcome = await inside
    outside.stdin.close()
    await outside.wait()
    assert (outcome.stopped_by, outcome.output) == ("", b"fine\n")
