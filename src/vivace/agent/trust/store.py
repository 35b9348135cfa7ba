"""Which projects the user trusts, each with the digest of what was shown.

Owns the file in the state folder. Trust is for one folder and one content: a changed file asks again. A file
that cannot be understood trusts nobody. Does not ask anybody (`cli`, `tui`).
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from vivace.agent.trust.describe import described
from vivace.agent.trust.project import ProjectFiles, read_project
from vivace.durable import replace_file
from vivace.errors import ProjectNotTrusted, WriteProblem


class Trusted(msgspec.Struct, frozen=True):
    digest: str
    at_s: float  # Unix time


class TrustStore:
    def __init__(self, state_dir: Path) -> None:
        self._file = state_dir / "trust.json"

    def all(self) -> dict[str, Trusted]:
        """Return the trusted folders."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=dict[str, Trusted])
        except (OSError, msgspec.DecodeError, UnicodeError):
            return {}

    def is_trusted(self, project: ProjectFiles) -> bool:
        """Return whether just this content was shown and allowed. A project without configuration is."""
        known = self.all().get(str(project.root))
        return not project or (known is not None and known.digest == project.digest)

    def was_trusted(self, project: ProjectFiles) -> bool:
        """Return whether another content of this folder is trusted."""
        return str(project.root) in self.all() and not self.is_trusted(project)

    def trust(self, project: ProjectFiles) -> None:
        """Trust what was shown, not what is on the disk by now. Raise ConfigError if it is too long."""
        described(project)
        with self._changed() as known:
            known[str(project.root)] = Trusted(project.digest, time.time())

    def revoke(self, folder: Path) -> bool:
        """Forget a folder. Return False if it was not trusted."""
        with self._changed() as known:
            return known.pop(os.path.realpath(folder), None) is not None

    @contextmanager
    def _changed(self) -> Iterator[dict[str, Trusted]]:
        """Yield the folders and write them back, one process at a time, whole or not at all."""
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self._file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                known = self.all()
                yield known
                replace_file(self._file, msgspec.json.encode(known), mode=0o600)
            finally:
                os.close(lock)
        except OSError as error:
            raise WriteProblem(f"{self._file} could not be written: {error.strerror}.") from error


def trusted_project(state_dir: Path, folder: Path) -> ProjectFiles:
    """Return the project's configuration. Raise ProjectNotTrusted if its user has not said yes to it."""
    project, store = read_project(folder), TrustStore(state_dir)
    if store.is_trusted(project):
        return project
    what = "has changed since you trusted it" if store.was_trusted(project) else "was not trusted yet"
    raise ProjectNotTrusted(
        f"The configuration of {project.root} {what}, and is not used: {', '.join(project.files)}.",
        "`vivace trust` shows what it would run, and asks.",
    )
