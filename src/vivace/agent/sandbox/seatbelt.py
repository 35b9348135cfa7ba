"""The sandbox of macOS: a profile for `sandbox-exec`, with the same walls as bubblewrap's.

Owns the profile's text. Seatbelt matches paths and mounts nothing, so what is missing is protected by its
name, at any depth. Nothing here runs a program yet: on macOS commands are asked for or refused (`decision`).
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from vivace.agent.sandbox.workspace import Workspace

SYSTEM = ("/usr", "/bin", "/sbin", "/System", "/Library", "/opt/homebrew", "/private/etc", "/private/var/db")
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/tty")
_HEAD = """(version 1)
(deny default)
(deny network*)
(allow process-fork)
(allow process-exec)
(allow signal (target same-sandbox))
(allow sysctl-read)
(allow file-read-metadata)"""


def seatbelt_profile(workspace: Workspace, private: Path, read_only: Sequence[Path] = ()) -> str:
    """Return the profile. `private` is a folder for temporary files. The last rule that matches counts."""
    root, private = workspace.path, Path(os.path.realpath(private))
    rules = [
        _HEAD,
        _rule(
            "allow file-read*", [_subpath(path) for path in (*map(Path, SYSTEM), root, private, *read_only)]
        ),
        _rule("allow file-read* file-write*", [f"(literal {_quoted(device)})" for device in DEVICES]),
        _rule("allow file-write*", [_subpath(private)]),
    ]
    if workspace.is_writable:
        rules.append(_rule("allow file-write*", [_subpath(root)]))
        names = sorted(workspace.protected)
        rules.append(_rule("deny file-write* file-link", [_protecting(root, name) for name in names]))
    return "\n".join(rules) + "\n"


def seatbelt_command(profile: str, command: Sequence[str]) -> list[str]:
    """Return the command line that runs a command under the profile."""
    return ["/usr/bin/sandbox-exec", "-p", profile, "--", *command]


def _rule(what: str, filters: Sequence[str]) -> str:
    return "\n".join([f"({what}", *(f"  {each}" for each in filters)]) + ")"


def _subpath(path: Path) -> str:
    return f"(subpath {_quoted(str(path))})"


def _protecting(root: Path, name: str) -> str:
    """Return the filter for a name at any depth below the folder, in any case."""
    letters = "".join(
        f"[{each.lower()}{each.upper()}]" if each.isalpha() else re.escape(each) for each in name
    )
    return f'(regex #"^{_escaped(str(root))}/(.*/)?{letters}(/|$)")'


def _escaped(path: str) -> str:
    return re.escape(path).replace('"', '\\"')


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
