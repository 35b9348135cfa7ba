"""One file replaced by new bytes, all or nothing: temporary file, fsync, rename, fsync of the folder.

A kill at any point leaves the old bytes or the new ones; a temporary file that is left over is named
`.vivace-*.tmp` and is removed by the next write into the same folder, unless its writer still lives.
Does not own what the bytes mean (`source`), nor the way back (`journal`).
"""

import errno
import fcntl
import hashlib
import os
import secrets
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from vivace.errors import WriteProblem

_TEMPORARY = ".vivace-*.tmp"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def check_replaceable(path: Path) -> None:
    """Raise WriteProblem if `path` may not be replaced: it, its folder or its file system is read-only.

    A mode without any write bit counts as read-only for root too: whoever set it did not want an edit.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise WriteProblem(f"{path} is gone since it was read.", "Nothing was written.") from error
    if not mode & 0o222 or not os.access(path, os.W_OK):
        raise WriteProblem(f"{path} is read-only.", f"Allow writing first: chmod u+w {path.name}")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise WriteProblem(
            f"The folder {path.parent} is read-only.",
            "An edit is written next to the file and then renamed, so the folder must be writable.",
        )


def replace_file(path: Path, data: bytes, expected_sha256: str) -> None:
    """Replace the content of `path` by `data`, provided that it still has `expected_sha256`.

    Mode, owner, group and extended attributes are kept where the system lets us. Hard links are not: the
    path gets a new inode, and other names of the old one keep the old bytes.
    """
    check_replaceable(path)
    _write_and_rename(path, data, path.stat(), lambda: _check_unchanged(path, expected_sha256))


def create_private_file(path: Path, data: bytes) -> None:
    """Create `path` (or replace it) with mode 0600, all or nothing."""
    _write_and_rename(path, data, None, lambda: None)


def sweep(folder: Path) -> None:
    """Remove temporary files of killed writers. Those of living writers are locked and stay."""
    for left_over in folder.glob(_TEMPORARY):
        with suppress(OSError):
            fd = os.open(left_over, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                left_over.unlink()
            finally:
                os.close(fd)


def _write_and_rename(
    path: Path, data: bytes, like: os.stat_result | None, check: Callable[[], None]
) -> None:
    temporary: Path | None = None
    fd = -1
    try:
        sweep(path.parent)
        temporary, fd = _open_temporary(path.parent)
        _write_all(fd, data)
        if like is not None:
            _copy_attributes(path, fd, like)
        os.fsync(fd)
        check()
        temporary.replace(path)
        temporary = None
    except OSError as error:
        raise _write_problem(path, error) from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink()
        if fd >= 0:
            os.close(fd)
    _fsync_folder(path.parent)


def _open_temporary(folder: Path) -> tuple[Path, int]:
    """Create a temporary file and lock it. Try again if a sweep removed it in between."""
    while True:
        path = folder / _TEMPORARY.replace("*", f"{os.getpid()}-{secrets.token_hex(6)}")
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with suppress(OSError):  # a file system without locks: no sweep there either
            fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink:
            return path, fd
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _copy_attributes(path: Path, fd: int, like: os.stat_result) -> None:
    """Copy owner, then mode (a new owner clears set-id bits), then attributes, as far as we may."""
    created = os.fstat(fd)
    if (like.st_uid, like.st_gid) != (created.st_uid, created.st_gid):
        with suppress(OSError):
            os.fchown(fd, -1, like.st_gid)
        with suppress(OSError):
            os.fchown(fd, like.st_uid, -1)
    os.fchmod(fd, stat.S_IMODE(like.st_mode))
    if sys.platform == "linux":
        with suppress(OSError):
            for name in os.listxattr(path):
                with suppress(OSError):
                    os.setxattr(fd, name, os.getxattr(path, name))


def _check_unchanged(path: Path, expected_sha256: str) -> None:
    try:
        current = sha256_of(path.read_bytes())
    except FileNotFoundError as error:
        raise WriteProblem(f"{path} is gone since it was read.", "Nothing was written.") from error
    if current != expected_sha256:
        raise WriteProblem(
            f"{path} has changed since it was read.",
            "It was left untouched, as the other program wrote it. Run the edit again.",
        )


def _write_problem(path: Path, error: OSError) -> WriteProblem:
    if error.errno in _FULL:
        hint = "It was left untouched. Free some space and run the command again."
        return WriteProblem(f"No space to write {path}: {error.strerror}.", hint)
    return WriteProblem(f"{path} cannot be written: {error.strerror or error}.", "It was left untouched.")


def _fsync_folder(folder: Path) -> None:
    """Make the rename durable, where the file system can sync a folder."""
    with suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
