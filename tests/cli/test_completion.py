"""Completion of our commands in a shell."""

import subprocess
import sys
from pathlib import Path

import pytest

from vivace.cli.commands.completion import SHELLS


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
