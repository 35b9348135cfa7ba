"""A project's configuration as it is now: every file of it read once, and a digest over all.

Owns which files can start something, and that what is used is what was read: users of a file take its bytes
from here and never from the disk again. The file that only tightens (`permissions.policy`) is not among them.
Does not own who is trusted (`store`), nor what the files mean.
"""

import hashlib
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from vivace.agent.mcp.servers import PROJECT_FILE as MCP_FILE
from vivace.agent.mcp.servers import project_servers
from vivace.agent.permissions.policy import PROJECT_FILE as PERMISSIONS_FILE
from vivace.errors import ConfigError

FOLDER = ".vivace"
WORKFLOWS = f"{FOLDER}/workflows"
MAX_FILES = 200
MAX_BYTES = 256 << 10  # of one configuration file
MAX_PROGRAM_BYTES = 16 << 20  # of a program in the project that a server is started with


@dataclass(frozen=True)
class ProjectFiles:
    root: Path  # with links followed
    files: dict[str, bytes] = field(default_factory=dict)  # by the path below the root
    programs: dict[str, str] = field(default_factory=dict)  # sha-256 of files that command lines name

    def __bool__(self) -> bool:
        return bool(self.files)

    @property
    def digest(self) -> str:
        """Return a hash of all of it. Whatever changes, appears or goes changes it."""
        whole = hashlib.sha256()
        for name, data in sorted(self.files.items()):
            whole.update(f"{len(name)}:{name}:{hashlib.sha256(data).hexdigest()}\n".encode())
        for name, digest in sorted(self.programs.items()):
            whole.update(f"program {len(name)}:{name}:{digest}\n".encode())
        return whole.hexdigest()


def read_project(folder: Path) -> ProjectFiles:
    """Read what the project would have loaded. Raise ConfigError for what cannot be read with safety."""
    root = Path(os.path.realpath(folder))
    files = {name: _bytes_of(root, name) for name in _names(root)}
    return ProjectFiles(root, files, _programs(root, files.get(MCP_FILE)))


def _names(root: Path) -> list[str]:
    """Return the paths of the configuration files that are there."""
    names = [MCP_FILE] if os.path.lexists(root / MCP_FILE) else []
    for folder, suffixes in ((FOLDER, (".toml",)), (WORKFLOWS, (".toml", ".md"))):
        try:
            entries = sorted(each.name for each in (root / folder).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise _unreadable(root / folder, str(error.strerror)) from error
        names += [f"{folder}/{each}" for each in entries if each.endswith(suffixes)]
    names = [name for name in names if name != PERMISSIONS_FILE]
    if len(names) > MAX_FILES:
        raise _unreadable(root / FOLDER, f"there are more than {MAX_FILES} files of configuration")
    return names


def _bytes_of(root: Path, name: str) -> bytes:
    """Read one file, if it is a plain one of a sensible size: no pipe to wait at, no link to elsewhere."""
    data = _read_plain(root / name, MAX_BYTES)
    if data is None:
        raise _unreadable(root / name, f"it must be a plain file of at most {MAX_BYTES:,} bytes")
    return data


def _read_plain(path: Path, most_bytes: int) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return None
    with os.fdopen(fd, "rb") as file:
        data = file.read(most_bytes + 1)
    return data if len(data) <= most_bytes else None


def _programs(root: Path, mcp: bytes | None) -> dict[str, str]:
    """Return the hashes of files in the project that a server's command line names.

    A task may edit such a file: it must not run without a look then.
    """
    if mcp is None:
        return {}
    try:
        servers = project_servers(mcp)
    except ConfigError:
        return {}  # said where the file is used
    found = {}
    for named in servers:
        for word in (named.server.command, *named.server.args):
            path = Path(os.path.realpath(root / word)) if word and "\0" not in word else root
            if path.is_relative_to(root) and path.is_file():
                found[str(path.relative_to(root))] = program_digest(path)
    return found


def program_digest(path: Path) -> str:
    """Return the hash of a program as it is now."""
    data = _read_plain(path, MAX_PROGRAM_BYTES)
    return hashlib.sha256(data or b"too large").hexdigest()


def _unreadable(path: Path, problem: str) -> ConfigError:
    return ConfigError(f"{path} is not used: {problem}.", "Correct it or move it away.")
