"""The parts of the extension that know nothing of VS Code, in Node.js."""

import shutil
import subprocess

import pytest

from tests import REPOSITORY

TESTS = REPOSITORY / "editors" / "vscode" / "test"


def test_the_pure_parts_hold() -> None:
    """Every test in editors/vscode/test passes."""
    node = shutil.which("node")
    if not node:
        pytest.skip("Node.js is not on this machine (Debian: nodejs)")
    files = sorted(map(str, TESTS.glob("*.test.js")))
    done = subprocess.run([node, "--test", *files], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout
