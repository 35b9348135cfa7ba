"""Whether programs can be sandboxed here: bubblewrap is installed, and this machine lets it build walls."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

WALLS = ("--unshare-user", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev")


def can_sandbox() -> bool:
    if not (bubblewrap := shutil.which("bwrap")):
        return False
    return subprocess.run([bubblewrap, *WALLS, "true"], capture_output=True, check=False).returncode == 0


def path_without_bubblewrap(folder: Path, instead: str = "") -> str:
    """Return a PATH with all programs but bubblewrap; `instead` is a line of shell in its place."""
    folder.mkdir()
    for place in os.environ["PATH"].split(":"):
        for program in sorted(Path(place).glob("*")) if Path(place).is_dir() else []:
            if program.name != "bwrap" and not os.path.lexists(folder / program.name):
                (folder / program.name).symlink_to(program)
    if instead:
        (folder / "bwrap").write_text(f"#!/bin/sh\n{instead}\n")
        (folder / "bwrap").chmod(0o755)
    return str(folder)


needs_sandbox = pytest.mark.skipif(not can_sandbox(), reason="needs bubblewrap and user namespaces")
