"""A folder of the user's inside the sandbox: writable, but for what is protected in it.

Owns which mounts make it so. Sockets of other programs in it are covered: no network namespace keeps one from
connecting to them. What is protected and missing cannot be mounted over, so an empty file or folder
is made in its place for as long as a program runs, and recognised by its time when it is removed. Programs
of several processes may run in one folder at once: the last one cleans up. Does not own the other walls
(`bubblewrap`), nor what is protected (`paths`).
"""

import fcntl
import os
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from vivace.agent.permissions.paths import PROTECTED, PROTECTED_FILES, git_folder_of, normalized
from vivace.errors import SandboxUnavailable

STUB_TIME_NS = 86_400 * 10**9 + 7  # when no real file was written: it marks what we put in place
MAX_FOLDERS = 20_000  # that are looked through for protected names, the nearest first


@dataclass(frozen=True)
class Workspace:
    root: Path
    is_writable: bool
    protected: frozenset[str] = PROTECTED  # names, normalized

    @property
    def path(self) -> Path:
        """Return the folder with links followed: where it is inside, too."""
        return Path(os.path.realpath(self.root))


@contextmanager
def mounted(workspace: Workspace) -> Iterator[list[str]]:
    """Yield bubblewrap's options for the folder. Raise SandboxUnavailable if it cannot be protected."""
    root = workspace.path
    git = [part for path in _git_folders(root) for part in _read_only(path)]
    if not workspace.is_writable:
        _, sockets = _look_through(root, workspace.protected)
        yield [*_read_only(root), *git, *_covered(sockets)]
        return
    with _shared(root):
        found, sockets = _look_through(root, workspace.protected)
        for path in found:
            _check_protectable(path)
        stubs = [_made(root / name) for name in _missing(root, workspace.protected, found)]
        yield [
            "--bind",
            str(root),
            str(root),
            *(part for path in (*found, *stubs) for part in _read_only(path)),
            *git,
            *_covered(sockets),
        ]


def _read_only(path: Path) -> list[str]:
    return ["--ro-bind", str(path), str(path)]


def _covered(sockets: list[Path]) -> list[str]:
    """Return what makes each socket a name that nobody listens at."""
    return [part for path in sockets for part in ("--ro-bind", "/dev/null", str(path))]


def _look_through(root: Path, protected: frozenset[str]) -> tuple[list[Path], list[Path]]:
    """Return what is protected in the folder and below it, and the sockets. Links are not followed."""
    found, sockets, waiting = [], [], deque([root])
    for _ in range(MAX_FOLDERS):
        if not waiting:
            break
        with suppress(OSError), os.scandir(waiting.popleft()) as entries:
            for entry in entries:
                if normalized(entry.name) in protected:
                    found.append(Path(entry.path))
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                elif not entry.is_file(follow_symlinks=False) and _is_socket(entry.path):
                    sockets.append(Path(entry.path))
    return found, sockets


def _is_socket(path: str) -> bool:
    with suppress(OSError):
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    return False


def _missing(root: Path, protected: frozenset[str], found: list[Path]) -> list[str]:
    there = {normalized(path.name) for path in found if path.parent == root}
    return sorted(name for name in protected - there if "/" not in name)


def _check_protectable(path: Path) -> None:
    """Raise SandboxUnavailable for what a mount does not protect: a link, or a file with another name."""
    if path.is_symlink():
        raise SandboxUnavailable(
            f"{path} is a symbolic link, which a sandbox cannot protect. Nothing was run.",
            "Put the folder itself there.",
        )
    inside = [path, path / "config", *(path / "hooks").glob("*")] if path.is_dir() else [path]
    for file in inside:
        with suppress(OSError):
            status = file.lstat()
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                raise SandboxUnavailable(
                    f"{file} has another name (a hard link): no sandbox can protect it. Nothing was run.",
                    f"Replace it by a copy: cp -p {file.name} x && mv x {file.name}.",
                )


# ---- what is protected and missing ------------------------------------------------------------------


def _made(path: Path) -> Path:
    """Put an empty file or folder where a protected one is missing."""
    try:
        if normalized(path.name) in PROTECTED_FILES:
            os.close(
                os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            )
        else:
            path.mkdir(mode=0o700)
        os.utime(path, ns=(STUB_TIME_NS, STUB_TIME_NS))
    except OSError as error:
        raise SandboxUnavailable(
            f"{path} cannot be protected: {error.strerror}. Nothing was run.",
            "A command that may write needs a folder that can be written.",
        ) from error
    return path


@contextmanager
def _shared(root: Path) -> Iterator[None]:
    """Hold the folder with others. At the end, if nobody else holds it, remove what stood in for files.

    That is also what a process has left that was killed.
    """
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_SH)
        try:
            yield
        finally:
            _sweep_if_alone(folder, root)
    finally:
        os.close(folder)


def _sweep_if_alone(folder: int, root: Path) -> None:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return
    for entry in list(os.scandir(root)):
        with suppress(OSError):
            status = entry.stat(follow_symlinks=False)
            if status.st_mtime_ns != STUB_TIME_NS:
                continue
            if stat.S_ISDIR(status.st_mode):
                Path(entry.path).rmdir()  # only if it is empty
            elif stat.S_ISREG(status.st_mode) and status.st_size == 0:
                Path(entry.path).unlink()


def is_stand_in(path: Path) -> bool:
    """Return whether an empty file stands in for a missing one: a command that was killed has left it."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return status.st_mtime_ns == STUB_TIME_NS and stat.S_ISREG(status.st_mode) and status.st_size == 0


# ---- a worktree of Git's ----------------------------------------------------------------------------


def _git_folders(root: Path) -> list[Path]:
    """Return the folders outside that a worktree's `.git` names, if they name this worktree in turn.

    Otherwise a file of the repository could have any folder of the user's shown inside.
    """
    named = git_folder_of(root / ".git")
    if not named:
        return []
    folder = Path(os.path.realpath(root / named))
    try:
        back = (folder / "gitdir").read_text("utf-8").strip()
        common = Path(os.path.realpath(folder / (folder / "commondir").read_text("utf-8").strip()))
        is_ours = os.path.realpath(back) == str(root / ".git") and (common / "HEAD").is_file()
    except (OSError, UnicodeDecodeError, ValueError):
        return []
    return [common, folder] if is_ours and folder.is_relative_to(common) else []
