"""Real programs from PyPI for tests: exact versions, installed once into the user's cache, beside ours.

Owns installing, and the words with which a test is skipped where that cannot be done. Nothing is installed
into the environment.
"""

import fcntl
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from vivace.child_python import module_command
from vivace.config import load_settings

INSTALL_S = 240


def python_path(*packages: str) -> str:
    """Return a folder with just these packages, for PYTHONPATH; what they need is in our environment."""
    quiet = ("--quiet", "--no-deps", "--disable-pip-version-check", "--no-input")

    def install(aside: Path) -> None:
        _run(packages[0], module_command("pip", "install", *quiet, "--target", str(aside), *packages))

    return str(_made(packages[0], install))


def command(name: str, *packages: str) -> str:
    """Return a command of packages that need other versions than ours, in an environment of its own."""

    def install(aside: Path) -> None:
        _run(packages[0], module_command("venv", str(aside)))
        quiet = ("--quiet", "--disable-pip-version-check", "--no-input")
        _run(packages[0], [str(aside / "bin" / "python"), "-m", "pip", "install", *quiet, *packages])

    folder = _made(f"{packages[0]}==environment", install)
    # a script names the interpreter by the path at which it was installed: it is started by ours instead
    script = folder / "bin" / name
    text = script.read_text().partition("\n")
    if str(folder) not in text[0]:
        script.write_text(f"#!{folder / 'bin' / 'python'}\n{text[2]}")
    return str(script)


def _made(name: str, install: Callable[[Path], None]) -> Path:
    """Return a folder that `install` has filled: aside, and then moved, so that what is there is whole."""
    folder = load_settings().cache_dir / "clients" / name.replace("==", "-")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            aside = folder.parent / f".{folder.name}.part"
            shutil.rmtree(aside, ignore_errors=True)
            install(aside)
            aside.rename(folder)
    return folder


def _run(package: str, line: list[str]) -> None:
    """Run a step of an installation. Skip the test where it does not work."""
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"pip could not install {package} in {INSTALL_S} s")
    if done.returncode:
        pytest.skip(f"pip could not install {package}: {done.stderr.strip()[-200:]}")
