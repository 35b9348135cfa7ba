"""Real clients from npm: one pinned version of each, installed once into the user's cache.

Owns installing, and the words with which a test is skipped where that cannot be done. Nothing is installed
into the repository or the system.
"""

import fcntl
import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from vivace.config import load_settings

INSTALL_S = 240  # less than a test may take, so that it is skipped and does not fail


def command(package: str, version: str, name: str) -> Path:
    """The command `name` of a package; the test is skipped where it cannot be had."""
    _check_npm()
    folder = load_settings().cache_dir / "clients" / f"{package.rpartition('/')[2]}-{version}"
    found = folder / "node_modules" / ".bin" / name
    if not found.exists():
        _install(folder, f"{package}@{version}")
    return found


def packages(name: str, *wanted: str) -> Path:
    """The `node_modules` with these packages; the test is skipped where they cannot be had."""
    _check_npm()
    mark = hashlib.sha256(" ".join(wanted).encode()).hexdigest()[:12]
    folder = load_settings().cache_dir / "clients" / f"{name}-{mark}"
    if not folder.exists():
        _install(folder, *wanted, "--ignore-scripts")
    return folder / "node_modules"


def _check_npm() -> None:
    if not shutil.which("node") or not shutil.which("npm"):
        pytest.skip("Node.js and npm are not on this machine (Debian: nodejs npm)")


def _install(folder: Path, *wanted: str) -> None:
    """Beside its place and then moved into it, so that what is there is whole; one process at a time."""
    what = wanted[0]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return
        aside = folder.parent / f".{folder.name}.part"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        quiet = ("--no-audit", "--no-fund", "--no-progress", "--fetch-retries=1")
        line = ["npm", "install", "--prefix", str(aside), *quiet, *wanted]
        try:
            done = subprocess.run(line, capture_output=True, text=True, timeout=INSTALL_S, check=False)
        except subprocess.TimeoutExpired:
            pytest.skip(f"npm could not install {what} in {INSTALL_S} s")
        if done.returncode:
            why = [text for text in done.stderr.splitlines() if "error" in text][:1]
            pytest.skip(f"npm could not install {what}: {' '.join(why)}")
        aside.rename(folder)
