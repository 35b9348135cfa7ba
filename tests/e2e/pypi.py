"""Real programs from PyPI for tests: exact versions, installed once into the user's cache, beside ours.

Owns installing, and the words with which a test is skipped where that cannot be done. Nothing is installed
into the environment.
"""

import fcntl
import shutil
import subprocess
from pathlib import Path

import pytest

from vivace.child_python import module_command
from vivace.config import load_settings

INSTALL_S = 240


def python_path(*packages: str) -> str:
    """Return a folder with just these packages, for PYTHONPATH; what they need is in our environment."""
    folder = load_settings().cache_dir / "clients" / packages[0].replace("==", "-")
    if not folder.exists():
        _install(packages, folder)
    return str(folder)


def _install(packages: tuple[str, ...], folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return
        aside = folder.parent / f".{folder.name}.part"
        shutil.rmtree(aside, ignore_errors=True)
        quiet = ("--quiet", "--no-deps", "--disable-pip-version-check", "--no-input")
        line = module_command("pip", "install", *quiet, "--target", str(aside), *packages)
        try:
            done = subprocess.run(line, capture_output=True, text=True, timeout=INSTALL_S, check=False)
        except subprocess.TimeoutExpired:
            pytest.skip(f"pip could not install {packages[0]} in {INSTALL_S} s")
        if done.returncode:
            pytest.skip(f"pip could not install {packages[0]}: {done.stderr.strip()[-200:]}")
        aside.rename(folder)
