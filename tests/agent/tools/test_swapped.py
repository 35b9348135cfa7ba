"""What was judged is what is read and written, while a second process swaps folders and files for links."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import pytest

from tests import REPOSITORY

NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder below ones that everybody may pass."""
    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="vivace-swapped-")))
    yield folder
    rmtree(folder)


def can_start_python(uid: int) -> bool:
    try:
        return subprocess.run([sys.executable, "-c", ""], user=uid, check=False).returncode == 0
    except PermissionError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="swaps with renameat2")
@pytest.mark.parametrize("user", ["this", "ordinary"])
@pytest.mark.parametrize("tool", ["read", "list", "search", "edit", "apply_patch", "browser"])
def test_no_call_is_led_out_of_the_workspace(folder: Path, tool: str, user: str) -> None:
    """Nothing from elsewhere is read or listed and nothing is written there; between two swaps, it works."""
    uid = os.getuid() if user == "this" else NOBODY
    if user == "ordinary" and os.getuid() != 0:
        pytest.skip("this user is an ordinary one")
    if user == "ordinary" and tool == "search" and not can_start_python(NOBODY):
        pytest.skip("an ordinary user cannot start this Python")
    done = subprocess.run(
        [sys.executable, "-B", "-m", "tests.agent.tools.swapping", str(folder), tool, str(uid)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "HOME": str(folder)},
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["leaks"] == []
    assert said["counts"]["done"] > 0, said["counts"]
    assert sum(count for name, count in said["counts"].items() if name != "done") > 0, said["counts"]
