"""Whether programs can be sandboxed here: bubblewrap is installed, and this machine lets it build walls."""

import shutil
import subprocess

import pytest

WALLS = ("--unshare-user", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev")


def can_sandbox() -> bool:
    if not (bubblewrap := shutil.which("bwrap")):
        return False
    return subprocess.run([bubblewrap, *WALLS, "true"], capture_output=True, check=False).returncode == 0


needs_sandbox = pytest.mark.skipif(not can_sandbox(), reason="needs bubblewrap and user namespaces")
