"""Editors on this machine, and our extension in them.

Owns which commands are editors of VS Code's kind, and installing through them. Does not build (`vsix`).
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vivace.child_python import module_command
from vivace.editors.vsix import NAME, PUBLISHER, build_vsix
from vivace.errors import StartError, UsageError
from vivace.programs import find_program

COMMANDS = ("code", "code-insiders", "codium", "code-server", "cursor", "windsurf")
ASK_S = 60.0
INSTALL_S = 300.0
_CLONE = Path(__file__).parents[3]


@dataclass(frozen=True)
class Editor:
    """An editor that takes .vsix files."""

    name: str
    program: str  # its path
    version: str | None  # of our extension in it; None: it is not there


def find_editors(names: tuple[str, ...] = COMMANDS) -> list[Editor]:
    """Return the editors on the PATH, each with the version of our extension in it."""
    found = [(name, find_program(name)) for name in names]
    return [Editor(name, program, _version_in(program)) for name, program in found if program]


def install(say: Callable[[str], None], given: str | None = None) -> None:
    """Build the extension and install it into every editor that is here, or into the given one only."""
    names = (given,) if given else COMMANDS
    programs = [program for program in map(_program, names) if program]
    if not programs:
        raise _no_editor(given)
    with tempfile.TemporaryDirectory(prefix="vivace-vsix-") as folder:
        file = build_vsix(Path(folder) / f"{NAME}.vsix", own_command())
        for program in programs:
            say(f"Installing into {program}…")
            _install(program, file)


def own_command() -> list[str]:
    """Return the command line that runs this vivace: the clone's own script, or this Python."""
    script = _CLONE / "vivace"
    if (_CLONE / "pyproject.toml").exists() and os.access(script, os.X_OK):
        return [str(script)]
    return module_command("vivace")


def _program(name: str) -> str | None:
    """Return where a command is; a path says so itself."""
    return shutil.which(name) if os.sep in name else find_program(name)


def _install(program: str, file: Path) -> None:
    done = _run(program, "--install-extension", str(file), "--force", limit_s=INSTALL_S)
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise StartError(
            f"{program} did not install the extension: {said}",
            "`vivace editors build vscode` writes the .vsix file for the editor's Extensions view.",
        )


def _version_in(program: str) -> str | None:
    try:
        done = _run(program, "--list-extensions", "--show-versions", limit_s=ASK_S)
    except StartError:
        return None
    ours = f"{PUBLISHER}.{NAME}@"
    rows = [row.strip() for row in done.stdout.splitlines()]
    return next((row.removeprefix(ours) for row in rows if row.startswith(ours)), None)


def _run(program: str, *words: str, limit_s: float) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            [program, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StartError(f"{program} cannot be run: {error}") from error


def _no_editor(given: str | None) -> Exception:
    if given:
        return UsageError(
            f"There is no command {given!r} here.", f"Name one of {', '.join(COMMANDS)}, or a path."
        )
    return StartError(
        f"No editor is on the PATH ({', '.join(COMMANDS)}).",
        "In VS Code run `Shell Command: Install 'code' command in PATH`, then try again. Or run "
        "`vivace editors build vscode` and install the .vsix file from the Extensions view.",
    )
