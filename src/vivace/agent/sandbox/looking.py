"""What is in a folder that a sandboxed command must not touch: protected names at any depth, sockets.

Owns the walk. Each folder is opened from its parent and no link is followed, so another program cannot lead
the walk elsewhere. A folder whose status has not changed since the last walk is not read again. There is no
limit on the number of folders. Does not own what follows from it (`workspace`, `undoing`).
"""

import errno
import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from vivace.agent.door import LISTABLE
from vivace.agent.permissions.paths import GIT_SETTINGS, normalized

# "protected": has a protected name. "repository": a folder that Git takes for a repository by its content,
# whatever its name. "closed": a folder of the user's that cannot be looked into. "socket": one of a program.
Kind = Literal["protected", "repository", "closed", "socket"]
Identity = tuple[int, int]  # device and inode

MAX_DEPTH = 200  # of folders that are looked into; deeper ones are closed
MAX_REMEMBERED = 8  # workspaces
SETTLED_NS = 2 * 10**9  # a folder that changed later than this before a look is read again by the next
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # meanwhile, or a link now
CANNOT_ENTER = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG)
# File systems whose folders have a new change time whenever an entry is made, moved or removed.
TRUE_TIMES = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "f2fs", "bcachefs"}
)


@dataclass(frozen=True)
class Entry:
    path: str  # relative to the workspace
    kind: Kind
    identity: Identity
    is_file: bool
    is_link: bool


@dataclass(frozen=True)
class Look:
    entries: tuple[Entry, ...]
    folders: int  # that there are, with the workspace itself

    def of(self, *kinds: Kind) -> list[Entry]:
        return [entry for entry in self.entries if entry.kind in kinds]

    @property
    def identities(self) -> frozenset[Identity]:
        return frozenset(entry.identity for entry in self.entries)


@dataclass(frozen=True, slots=True)
class _Folder:
    stamp: tuple[int, int, int]  # device, inode, change time; zeros: read it again
    below: tuple[str, ...]  # names of its folders
    noted: tuple[tuple[str, Kind], ...]  # "": the folder itself


_remembered: OrderedDict[tuple[str, frozenset[str]], dict[str, _Folder]] = OrderedDict()
_remembering = threading.Lock()


def look_through(root: Path, protected: frozenset[str]) -> Look:
    """Return what is to be protected in the folder and below it. Raise OSError if it cannot be opened."""
    key = (str(root), protected)
    with _remembering:
        before = _remembered.pop(key, {})
    with _Walk(root, protected, before) as walk:
        entries = tuple(walk.entries())
    with _remembering:
        _remembered[key] = walk.seen
        while len(_remembered) > MAX_REMEMBERED:
            _remembered.popitem(last=False)
    return Look(entries, len(walk.seen))


def folders_known(root: Path, protected: frozenset[str]) -> int:
    """Return how many folders there were at the last look; 0 if there was none."""
    return len(_remembered.get((str(root), protected), ()))


@lru_cache(maxsize=64)
def _suspects(protected: frozenset[str]) -> frozenset[str]:
    """Return the first letters of protected names. An ASCII name that begins otherwise is none of them."""
    firsts = {name[0] for name in protected if name}
    hidden = {chr(code) for code in (*range(32), 127)}
    return frozenset(firsts | {first.upper() for first in firsts} | hidden)


class _Walk:
    """One walk. Folders that are read one after the other share the descriptors of those above them."""

    def __init__(self, root: Path, protected: frozenset[str], before: dict[str, _Folder]) -> None:
        self.seen: dict[str, _Folder] = {}
        self._protected = protected
        self._suspects = _suspects(protected)
        self._before = before
        self._root = os.open(root, LISTABLE)
        self._chain: list[tuple[str, int]] = []  # the open folders above the one that was read last
        self._device = os.fstat(self._root).st_dev
        self._times_are_true = file_system_of(root, self._device) in TRUE_TIMES

    def __enter__(self) -> "_Walk":
        return self

    def __exit__(self, *_: object) -> None:
        for opened in self._chain:
            os.close(opened[1])
        os.close(self._root)

    def entries(self) -> Iterator[Entry]:
        waiting = [("", False)]
        while waiting:
            path, is_protected = waiting.pop()
            try:
                folder = self._unchanged(path) or self._read(path, is_protected=is_protected)
            except OSError as error:
                if error.errno in CANNOT_ENTER and not is_protected:
                    yield from self._closed(path)
                elif error.errno not in (*CANNOT_ENTER, *GONE):
                    raise
                continue
            self.seen[path] = folder
            prefix = f"{path}/" if path else ""
            for name in folder.below:
                waiting.append((prefix + name, is_protected))
            for name, kind in folder.noted:
                if kind == "socket" or not is_protected:
                    yield from self._noted(path, name, kind)
                if kind == "protected":
                    waiting.append((prefix + name, True))  # a daemon may listen in it

    def _unchanged(self, path: str) -> _Folder | None:
        if (folder := self._before.get(path)) is None:
            return None
        status = os.stat(path or ".", dir_fd=self._root, follow_symlinks=False)
        stamp = (status.st_dev, status.st_ino, status.st_ctime_ns)
        return folder if folder.stamp == stamp else None

    def _read(self, path: str, *, is_protected: bool) -> _Folder:
        descriptor = self._open(path)
        now_ns = time.time_ns()
        status = os.fstat(descriptor)
        below: list[str] = []
        noted: list[tuple[str, Kind]] = []
        has_head = False
        suspects = self._suspects
        with os.scandir(descriptor) as found:
            for each in found:
                name = each.name
                if (name[0] in suspects or not name.isascii()) and normalized(name) in self._protected:
                    noted.append((name, "protected"))
                elif each.is_file(follow_symlinks=False):
                    has_head |= name == "HEAD"
                elif each.is_dir(follow_symlinks=False):
                    below.append(name)
                elif each.is_symlink():
                    has_head |= name == "HEAD"
                elif _is_socket(each):
                    noted.append((name, "socket"))
        if has_head and _is_repository(descriptor):
            noted.append(("", "repository"))
            noted += [(name, "protected") for name in GIT_SETTINGS]
            passed_over = (*GIT_SETTINGS, *(["objects"] if is_protected else []))  # hundreds, of Git alone
            below = [name for name in below if name not in passed_over]
        is_settled = (
            self._times_are_true
            and status.st_dev == self._device
            and status.st_ctime_ns < now_ns - SETTLED_NS
        )
        stamp = (status.st_dev, status.st_ino, status.st_ctime_ns) if is_settled else (0, 0, 0)
        return _Folder(stamp, tuple(below), tuple(noted))

    def _open(self, path: str) -> int:
        """Open a folder from the nearest one above it that is open already."""
        chain = self._chain
        while chain and not (path == chain[-1][0] or path.startswith(chain[-1][0] + "/")):
            os.close(chain.pop()[1])
        above, descriptor = chain[-1] if chain else ("", self._root)
        if len(path) == len(above):
            return descriptor
        parts = (path[len(above) + 1 :] if above else path).split("/")
        if len(chain) + len(parts) > MAX_DEPTH:
            raise OSError(errno.ENAMETOOLONG, "too deep", path)
        for part in parts:
            descriptor = os.open(part, LISTABLE, dir_fd=descriptor)
            above = f"{above}/{part}" if above else part
            chain.append((above, descriptor))
        return descriptor

    def _noted(self, path: str, name: str, kind: Kind) -> Iterator[Entry]:
        where = f"{path}/{name}".strip("/")
        try:
            status = os.stat(name or ".", dir_fd=self._open(path), follow_symlinks=False)
        except OSError:
            return
        yield _entry(where, kind, status)

    def _closed(self, path: str) -> Iterator[Entry]:
        """Yield a folder that cannot be read, if a program of this user could still reach what is in it."""
        above, _, name = path.rpartition("/")
        try:
            descriptor = self._open(above)
            status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            can_enter = os.access(name, os.X_OK, dir_fd=descriptor, follow_symlinks=False)
        except OSError:
            return
        if status.st_uid == os.geteuid() or can_enter:
            yield _entry(path, "closed", status)


def _is_repository(folder: int) -> bool:
    """Return whether Git takes a folder with a HEAD for a repository: one of its own, or part of another.

    It asks only whether the rest is there, of whatever kind.
    """
    names = ("commondir", "objects", "refs")
    shares, *own = (os.access(name, os.F_OK, dir_fd=folder, follow_symlinks=False) for name in names)
    return shares or all(own)


def _is_socket(entry: "os.DirEntry[str]") -> bool:
    with suppress(OSError):
        return stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
    return False


def _entry(path: str, kind: Kind, status: os.stat_result) -> Entry:
    return Entry(
        path,
        kind,
        (status.st_dev, status.st_ino),
        is_file=stat.S_ISREG(status.st_mode),
        is_link=stat.S_ISLNK(status.st_mode),
    )


def mounts() -> Iterator[tuple[str, str]]:
    """Yield where each file system of this machine is mounted, and its type. The last at a place counts."""
    with Path("/proc/self/mountinfo").open(encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            first, _, second = line.partition(" - ")
            yield _unescaped(first.split(" ")[4]), second.split(" ")[0]


@lru_cache(maxsize=64)
def file_system_of(path: Path, device: int) -> str:
    """Return the type of the file system that a path on a device is on; "" if it is not known."""
    del device  # another one at the same path is another question
    found, length = "", -1
    try:
        for point, kind in mounts():
            if len(point) >= length and path.is_relative_to(point):
                found, length = kind, len(point)
    except OSError:
        return ""
    return found


def _unescaped(point: str) -> str:
    if "\\" not in point:
        return point
    for code, letter in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(code, letter)
    return point
