"""On a machine where something is missing, the scripts say what, and how to install it there."""

import sys
from pathlib import Path

import pytest

from tests.setup.fake_machine import FakeMachine


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


def test_missing_python_is_named(machine: FakeMachine) -> None:
    """Without any Python: exit code 3, the versions that would do, and nothing is made."""
    (machine.bin / "python3.12").unlink()
    answer = machine.start()
    assert (answer.returncode, answer.stdout) == (3, "")
    assert "Python 3.11, 3.12 or 3.13" in answer.stderr
    assert "compiler" not in answer.stderr
    assert not (machine.clone / ".venvs").exists()


def test_old_python_is_named_with_its_version(machine: FakeMachine) -> None:
    """A Python that is too old is told apart from none."""
    (machine.bin / "python3.12").unlink()
    machine.put_found_python("python3", answer="3.9\\n")
    answer = machine.start()
    assert answer.returncode == 3
    assert "found only 3.9" in answer.stderr


def test_python_without_venv_names_the_package(machine: FakeMachine) -> None:
    """Debian splits venv off: the package with that Python's version is named."""
    machine.put_found_python("python3.12", answer="3.12\\n")
    machine.put_script(machine.bin / "apt-get", "#!/bin/sh\n")
    answer = machine.start()
    assert answer.returncode == 3
    assert "sudo apt-get install python3.12-venv\n" in answer.stderr


def test_other_python_is_taken_when_the_first_does_not_fit(machine: FakeMachine) -> None:
    """One Python that does not fit does not hide another that does."""
    machine.put_found_python("python3.13", answer="3.13\\n")
    assert machine.start("x").stdout == "<x>\n"


def test_missing_compiler_is_named(machine: FakeMachine) -> None:
    """Without a compiler: exit code 3, before anything is made."""
    (machine.bin / "c++").unlink()
    answer = machine.start()
    assert answer.returncode == 3
    assert "a C and C++ compiler" in answer.stderr
    assert "Python" not in answer.stderr


def test_compiler_that_does_not_compile_is_missing(machine: FakeMachine) -> None:
    """A `c++` that only tells you to install the real one does not count."""
    machine.put_script(machine.bin / "c++", "#!/bin/sh\ncat >/dev/null\nexit 1\n")
    assert machine.start().returncode == 3


@pytest.mark.parametrize(
    ("manager", "command"),
    [
        ("apt-get", "sudo apt-get install python3 python3-venv build-essential"),
        ("dnf", "sudo dnf install python3.12 gcc gcc-c++"),
        ("zypper", "sudo zypper install python312 gcc gcc-c++"),
        ("pacman", "sudo pacman -S python base-devel"),
        ("apk", "sudo apk add python3 build-base linux-headers"),
        ("brew", "brew install python@3.12\n  xcode-select --install"),
    ],
)
def test_all_that_is_missing_is_in_one_command(machine: FakeMachine, manager: str, command: str) -> None:
    """Both missing: one answer lists both, with the command of this system's package manager."""
    for name in ("python3.12", "c++", "cc"):
        (machine.bin / name).unlink()
    machine.put_script(machine.bin / manager, "#!/bin/sh\n")
    answer = machine.start()
    assert answer.returncode == 3
    assert f"  {command}\n" in answer.stderr


def test_warm_start_asks_for_nothing(machine: FakeMachine) -> None:
    """Once set up, neither compiler nor the first Python are asked for."""
    machine.start()
    for name in ("python3.12", "c++", "cc"):
        (machine.bin / name).unlink()
    assert machine.start("x").stdout == "<x>\n"


@pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")
@pytest.mark.parametrize(
    ("manager", "command"),
    [("apt-get", "sudo apt-get install bubblewrap"), ("pacman", "sudo pacman -S bubblewrap")],
)
def test_a_missing_sandbox_is_told_and_set_up_goes_on(
    machine: FakeMachine, manager: str, command: str
) -> None:
    """What is lost and the one command that brings it; Vivace is set up all the same, and says it once."""
    machine.put_script(machine.bin / manager, "#!/bin/sh\n")
    done = machine.start("--version")
    assert done.returncode == 0, done.stderr
    assert "tests of edits (--test) do not run" in done.stderr
    assert f"  {command}\n" in done.stderr
    assert "sandbox" not in machine.start("--version").stderr


@pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")
@pytest.mark.parametrize(("ends", "told"), [("exit 0", False), ("exit 1", True)])
def test_a_sandbox_is_tried(machine: FakeMachine, ends: str, told: bool) -> None:
    """A bubblewrap that builds none is told of, with where to read why; one that works is not."""
    machine.put_script(machine.bin / "bwrap", f"#!/bin/sh\n{ends}\n")
    done = machine.start("--version")
    assert (done.returncode, "`vivace doctor` says why" in done.stderr) == (0, told)
