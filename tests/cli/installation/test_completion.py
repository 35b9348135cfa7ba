"""Completion of our commands in a shell."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from vivace.cli.installation.completion import SHELLS

HANG_S = 120.0


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_a_script(shell: str) -> None:
    """The script asks the program itself, through click's variable."""
    command = [sys.executable, "-m", "vivace", "completion", shell]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "_VIVACE_COMPLETE" in done.stdout


def test_bash_completes_a_command(tmp_path: Path) -> None:
    """What bash would ask for the beginning `vivace compl` names the command."""
    environment = {"COMP_WORDS": "vivace compl", "COMP_CWORD": "1", "_VIVACE_COMPLETE": "bash_complete"}
    command = [sys.executable, "-m", "vivace"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert done.stdout.split() == ["plain,completion"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A home of its own, with `vivace` on the path."""
    program = tmp_path / "bin" / "vivace"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m vivace "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {
        "PATH": path,
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
        "TERM": "dumb",
    }


def run_shell(environment: dict[str, str], *command: str) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=HANG_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_fish_completes(environment: dict[str, str]) -> None:
    """A real fish that has read the script knows our commands and their options."""
    asked = "vivace completion fish | source; complete -C 'vivace compl'; complete -C 'vivace ask --js'"
    lines = run_shell(environment, "fish", "-c", asked).splitlines()
    assert [line.partition("\t")[0] for line in lines] == ["completion", "--json"]


ZSH = r"""
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1=; autoload -Uz compinit; compinit -D; eval \"\$(vivace completion zsh)\"; print is-''ready"
zpty -r shell shown '*is-ready*'
zpty -n -w shell $'vivace compl\t'
zpty -r shell shown '*vivace completion *'
print -r -- $shown
zpty -d shell
"""


def test_zsh_completes(environment: dict[str, str]) -> None:
    """In a real zsh that has read the script, Tab ends the name of a command."""
    assert "vivace completion " in run_shell(environment, "zsh", "-f", "-c", ZSH)
