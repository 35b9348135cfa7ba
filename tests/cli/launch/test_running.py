"""A client in the foreground: its end, and what is done while it runs."""

import os
from pathlib import Path

import pytest

from vivace.cli.launch import running
from vivace.cli.launch.running import run_in_foreground
from vivace.errors import StartError


def nothing() -> None:
    """What is done every few minutes."""


@pytest.mark.parametrize(("end", "code"), [("exit 0", 0), ("exit 9", 9), ("kill -TERM $$", 128 + 15)])
def test_the_exit_code_is_as_a_shell_has_it(end: str, code: int) -> None:
    """Its own, or 128 and the number of the signal that ended it."""
    assert run_in_foreground(["sh", "-c", end], os.environ, nothing) == code


def test_the_server_hears_of_a_client_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Again and again, until the client ends."""
    monkeypatch.setattr(running, "BEAT_S", 0.01)
    heard = tmp_path / "heard"

    def beat() -> None:
        heard.write_text("yes")

    wait = f"while [ ! -s {heard} ]; do sleep 0.01; done"
    assert run_in_foreground(["sh", "-c", wait], os.environ, beat) == 0


def test_a_program_that_cannot_be_run_is_said(tmp_path: Path) -> None:
    """In one sentence with the system's reason."""
    program = tmp_path / "claude"
    program.write_text("no program")
    program.chmod(0o755)
    with pytest.raises(StartError, match=r"claude cannot be run: Exec format error\."):
        run_in_foreground([str(program)], os.environ, nothing)
