"""Files replaced by new bytes, each all or nothing: temporary file, fsync, rename, fsync of the folder.

Several files are first written next to their places and then renamed one after the other, so a full disk is
met before the first of them changes. A kill at any point leaves each file with its old bytes or its new ones;
a temporary file that is left over is named `.vivace-*.tmp` and is removed by the next write into the same
folder, unless its writer still lives. Does not own what bytes mean (`source`) or the way back (`journal`).
"""

import errno
import fcntl
import hashlib
import os
import secrets
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from vivace.errors import EditConflict, WriteProblem

_TEMPORARY = ".vivace-*.tmp"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(frozen=True)
class Replacement:
    """What a file shall become, provided that it is still as it was."""

    path: Path  # symbolic links followed
    old_sha256: str | None  # None: there is no such file yet
    data: bytes | None  # None: the file is removed
    mode: int | None = None  # of a file that is created; None: as the umask says


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read_state(path: Path) -> bytes | None:
    """Return the bytes of the file, or None if there is none. Raise WriteProblem for what is not a file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise WriteProblem(f"{path} is a symbolic link now.", "It was left untouched.") from error
        raise WriteProblem(f"{path} cannot be read: {error.strerror}.", "It was left untouched.") from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise WriteProblem(f"{path} is not a regular file any more.", "It was left untouched.")
        with os.fdopen(fd, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(fd)


def mode_of(path: Path) -> int | None:
    """Return the permissions of the file, or None if there is none."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None


def check_replaceable(path: Path) -> None:
    """Raise WriteProblem if `path` may not be replaced: it, its folder or its file system is read-only.

    A mode without any write bit counts as read-only for root too: whoever set it did not want an edit.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise EditConflict(f"{path} is gone since it was read.", "Nothing was written.") from error
    if not mode & 0o222 or not os.access(path, os.W_OK):
        raise WriteProblem(f"{path} is read-only.", f"Allow writing first: chmod u+w {path.name}")
    _check_folder(path.parent)


def check_creatable(path: Path) -> None:
    """Raise WriteProblem if no file can be made at `path`: the nearest folder that exists is read-only."""
    folder = path.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        raise WriteProblem(f"{folder} is a file, not a folder.", f"{path} cannot be made in it.")
    _check_folder(folder)


def replace_file(path: Path, data: bytes, expected_sha256: str) -> None:
    """Replace the content of `path` by `data`, provided that it still has `expected_sha256`."""
    replace_files([Replacement(path, expected_sha256, data)])


def replace_files(replacements: Sequence[Replacement]) -> None:
    """Replace, create or remove files. Nothing has changed if this raises before the first rename.

    Mode, owner, group and extended attributes are kept where the system lets us. Hard links are not: the
    path gets a new inode, and other names of the old one keep the old bytes.
    """
    for each in replacements:
        check_replaceable(each.path) if each.old_sha256 else check_creatable(each.path)
    with ExitStack() as stack:
        staged = [stack.enter_context(_staged(each)) for each in replacements]
        if len(replacements) > 1:
            for each in replacements:
                _check_unchanged(each)
        for each, temporary in zip(replacements, staged, strict=True):
            _check_unchanged(each)
            _place(each.path, temporary)
    for folder in dict.fromkeys(each.path.parent for each in replacements):
        _fsync_folder(folder)


def create_private_file(path: Path, data: bytes) -> None:
    """Create `path` (or replace it) with mode 0600, all or nothing."""
    with _temporary_with(path, data, mode=0o600) as temporary:
        _place(path, temporary)
    _fsync_folder(path.parent)


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


@contextmanager
def _staged(replacement: Replacement) -> Iterator[Path | None]:
    """Write the new bytes next to the file. Yield their path, or None where the file is to be removed."""
    path, data = replacement.path, replacement.data
    if data is None:
        yield None
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        like = path.stat() if replacement.old_sha256 else None
    except OSError as error:
        raise _write_problem(path, error) from error
    with _temporary_with(path, data, mode=replacement.mode, like=like) as temporary:
        yield temporary


@contextmanager
def _temporary_with(
    path: Path, data: bytes, *, mode: int | None, like: os.stat_result | None = None
) -> Iterator[Path]:
    """Yield a temporary file in the folder of `path` that has `data`, durable; remove it if it is left."""
    temporary: Path | None = None
    fd = -1
    try:
        try:
            sweep(path.parent)
            temporary, fd = _open_temporary(path.parent, 0o666 if like is None and mode is None else 0o600)
            _write_all(fd, data)
            if like is not None:
                _copy_attributes(path, fd, like)
            elif mode is not None:
                os.fchmod(fd, mode)
            os.fsync(fd)
        except OSError as error:
            raise _write_problem(path, error) from error
        yield temporary
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink()
        if fd >= 0:
            os.close(fd)


def _place(path: Path, temporary: Path | None) -> None:
    try:
        if temporary is None:
            path.unlink()
        else:
            temporary.replace(path)
    except OSError as error:
        raise _write_problem(path, error) from error


def _open_temporary(folder: Path, mode: int) -> tuple[Path, int]:
    """Create a temporary file and lock it. Try again if a sweep removed it in between."""
    while True:
        path = folder / _TEMPORARY.replace("*", f"{os.getpid()}-{secrets.token_hex(6)}")
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
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


def _check_folder(folder: Path) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise WriteProblem(
            f"The folder {folder} is read-only.",
            "An edit is written next to the file and then renamed, so the folder must be writable.",
        )


def _check_unchanged(replacement: Replacement) -> None:
    path, current = replacement.path, read_state(replacement.path)
    if (None if current is None else sha256_of(current)) == replacement.old_sha256:
        return
    if current is None:
        raise EditConflict(f"{path} is gone since it was read.", "Nothing was written.")
    what = "has changed" if replacement.old_sha256 else "has been made by another program"
    raise EditConflict(
        f"{path} {what} since it was read.",
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
