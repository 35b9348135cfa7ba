"""Git, called so that a repository that nobody has read cannot make it run anything.

Owns the options of every call of ours: hooks, the file system monitor and the pager are off, whatever the
repository's own configuration says. Does not call it.
"""

from pathlib import Path

# Options on the command line win over every configuration file.
_SAFE = {
    "core.fsmonitor": "false",  # else the name of a program that Git runs to list changes
    "core.hooksPath": "/dev/null",
    "core.pager": "cat",
    "core.sshCommand": "false",
    "protocol.ext.allow": "never",
}


def git_command(folder: Path, *arguments: str) -> list[str]:
    """Return the command line of a Git call in `folder`."""
    options = [part for name, value in _SAFE.items() for part in ("-c", f"{name}={value}")]
    return ["git", "--no-optional-locks", "-C", str(folder), *options, *arguments]
