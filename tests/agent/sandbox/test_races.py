"""A second program in the same folder that swaps names while a sandbox is built: it gains nothing."""

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.sandboxes import needs_sandbox
from vivace.agent.sandbox.run import Limits, run_sandboxed
from vivace.agent.sandbox.workspace import Workspace
from vivace.errors import SandboxUnavailable

LIMITS = Limits(seconds=60, cpu_seconds=60)
ATTEMPTS = 40
EXCHANGE, HERE = 2, -100  # of renameat2
pytestmark = needs_sandbox


@contextmanager
def swapping(one: Path, two: Path) -> Iterator[None]:
    """Exchange two names all the time."""
    libc = ctypes.CDLL(None)
    is_over = threading.Event()

    def swap() -> None:
        while not is_over.is_set():
            libc.renameat2(HERE, bytes(one), HERE, bytes(two), EXCHANGE)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        yield
    finally:
        is_over.set()
        swapper.join()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    (root / "v" / "real").mkdir(parents=True)
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key").write_text("hush")
    (tmp_path / "secrets" / ".git").mkdir()
    (tmp_path / "secrets" / ".git" / "key").write_text("hush")
    return root


async def seen(root: Path) -> bytes:
    """Return what commands saw of the secrets while names were swapped."""
    output = b""
    workspace = Workspace(root, is_writable=True, state=root.parent / "state")
    for _ in range(ATTEMPTS):
        try:
            outcome = await run_sandboxed(["grep", "-rhoa", "hush", "."], workspace=workspace, limits=LIMITS)
            output += outcome.output
        except SandboxUnavailable:
            continue
    return output


class TestSwapped:
    async def test_a_protected_folder_that_becomes_a_link_shows_nothing(self, root: Path) -> None:
        """What is mounted is what was judged, or nothing runs."""
        (root / "v" / ".git").mkdir()
        (root / "v" / "link").symlink_to(root.parent / "secrets")
        with swapping(root / "v" / ".git", root / "v" / "link"):
            assert b"hush" not in await seen(root)

    async def test_a_folder_above_that_becomes_a_link_shows_nothing(self, root: Path) -> None:
        """The walk follows no link, and neither does what it judged."""
        (root / "v" / "real" / ".git").mkdir()
        (root / "v" / "link").symlink_to(root.parent / "secrets")
        with swapping(root / "v" / "real", root / "v" / "link"):
            assert b"hush" not in await seen(root)
