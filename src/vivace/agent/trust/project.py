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
from vivace.agent.trust.programs import Programs, programs_of
from vivace.errors import ConfigError

FOLDER = ".vivace"
WORKFLOWS = f"{FOLDER}/workflows"
MAX_FILES = 200
MAX_BYTES = 256 << 10  # of one configuration file


@dataclass(frozen=True)
class ProjectFiles:
    root: Path  # with links followed
    files: dict[str, bytes] = field(default_factory=dict)  # by the path below the root
    programs: dict[str, str] = field(default_factory=dict)  # sha-256 of files that servers would run
    changes: dict[str, list[str]] = field(default_factory=dict)  # by server: what is not bound by a hash

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
    found = _programs(root, files.get(MCP_FILE))
    programs = {name: digest for each in found.values() for name, digest in each.files.items()}
    return ProjectFiles(root, files, programs, {name: each.changes for name, each in found.items()})


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


def _programs(root: Path, mcp: bytes | None) -> dict[str, Programs]:
    """Return what each server would run of the project.

    A task may edit it: it must not run without a look then.
    """
    try:
        servers = project_servers(mcp) if mcp is not None else []
    except ConfigError:
        return {}  # said where the file is used
    return {named.name: programs_of(root, named.server) for named in servers}


def _unreadable(path: Path, problem: str) -> ConfigError:
    return ConfigError(f"{path} is not used: {problem}.", "Correct it or move it away.")
