"""Files replaced by new bytes, each all or nothing: temporary file, fsync, rename, fsync of the folder.

Every step is done in the folder that was opened for it (`agent.door`), so nothing that is renamed or linked
meanwhile leads a write elsewhere. Several files are first written next to their places and then renamed one
after the other, so a full disk is met before the first of them changes. A kill at any point leaves each file
with its old bytes or its new ones; a temporary file that is left over is named `.vivace-*.tmp` and is removed
by the next write into the same folder, unless its writer still lives. Does not own what bytes mean (`source`)
or the way back (`journal`).
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

from vivace.agent.door import (
    LISTABLE,
    READABLE,
    LeadsElsewhere,
    check_real,
    open_file,
    open_folder,
    open_in,
    opened_folder,
    status_of,
)
from vivace.errors import EditConflict, WriteProblem

_TEMPORARY = (".vivace-", ".tmp")
_UNTOUCHED = "It was left untouched."
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
        with opened_folder(path.parent) as folder:
            return _state_in(folder, path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _read_problem(path, error) from error


def mode_of(path: Path) -> int | None:
    """Return the permissions of the file, or None if there is none."""
    try:
        return stat.S_IMODE(status_of(path).st_mode)
    except OSError:
        return None


def check_replaceable(path: Path) -> None:
    """Raise WriteProblem if `path` may not be replaced: it, its folder or its file system is read-only.

    A mode without any write bit counts as read-only for root too: whoever set it did not want an edit.
    """
    try:
        with opened_folder(path.parent) as folder:
            mode = os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):
                raise LeadsElsewhere(errno.ELOOP, f"{path} has become a symbolic link")
            if not mode & 0o222 or not os.access(path.name, os.W_OK, dir_fd=folder):
                raise WriteProblem(f"{path} is read-only.", f"Allow writing first: chmod u+w {path.name}")
            _check_folder(folder, path.parent)
    except LeadsElsewhere as error:
        raise _read_problem(path, error) from error
    except OSError as error:
        raise EditConflict(f"{path} is gone since it was read.", "Nothing was written.") from error


def check_creatable(path: Path) -> None:
    """Raise WriteProblem if no file can be made at `path`: the nearest folder that exists is read-only."""
    for nearest in path.parents:
        try:
            with opened_folder(nearest) as folder:
                _check_folder(folder, nearest)
            return
        except FileNotFoundError:
            continue
        except NotADirectoryError as error:
            problem = f"{_file_above(path)} is a file, not a folder."
            raise WriteProblem(problem, f"{path} cannot be made in it.") from error
        except OSError as error:
            raise _write_problem(path, error) from error


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
        folders: dict[Path, int] = {}
        for each in replacements:
            if each.path.parent not in folders:
                folders[each.path.parent] = stack.enter_context(_folder_for(each))
        places = [(each, folders[each.path.parent]) for each in replacements]
        staged = [stack.enter_context(_staged(*place)) for place in places]
        if len(replacements) > 1:
            for place in places:
                _check_unchanged(*place)
        for place, temporary in zip(places, staged, strict=True):
            _check_unchanged(*place)
            _place(place[0].path, place[1], temporary)
        for folder in folders.values():
            _fsync_folder(folder)


def set_execution(path: Path, mode: int) -> None:
    """Let a file be executed, or not, as this mode says, if it is ours to say."""
    with suppress(OSError):
        fd = open_file(path)
        try:
            now = os.fstat(fd).st_mode
            if stat.S_ISREG(now):
                os.fchmod(fd, stat.S_IMODE(now) & ~0o111 | (mode & 0o111 if mode & stat.S_IXUSR else 0))
        finally:
            os.close(fd)


def create_private_file(path: Path, data: bytes) -> None:
    """Create `path` (or replace it) with mode 0600, all or nothing. Its folder is ours, and may be a link."""
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _write_problem(path, error) from error
    try:
        with _temporary_with(path, folder, data, mode=0o600) as temporary:
            _place(path, folder, temporary)
        _fsync_folder(folder)
    finally:
        os.close(folder)


@contextmanager
def _folder_for(replacement: Replacement) -> Iterator[int]:
    """Open the folder of a file, and make it if the file is new."""
    path = replacement.path
    try:
        check_real(path)
        folder = open_folder(path.parent, makes=replacement.data is not None)
    except OSError as error:
        raise _write_problem(path, error) from error
    try:
        yield folder
    finally:
        os.close(folder)


def _sweep(folder: int) -> None:
    """Remove temporary files of killed writers. Those of living writers are locked and stay."""
    listable = os.open(".", LISTABLE, dir_fd=folder)
    try:
        begin, end = _TEMPORARY
        with os.scandir(listable) as found:
            names = [each.name for each in found]
    finally:
        os.close(listable)
    for name in names:
        if not (name.startswith(begin) and name.endswith(end)):
            continue
        with suppress(OSError):
            fd = os.open(name, READABLE, dir_fd=folder)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(name, dir_fd=folder)
            finally:
                os.close(fd)


@contextmanager
def _staged(replacement: Replacement, folder: int) -> Iterator[str | None]:
    """Write the new bytes next to the file. Yield their name, or None where the file is to be removed."""
    path, data = replacement.path, replacement.data
    if data is None:
        yield None
        return
    with _temporary_with(
        path, folder, data, mode=replacement.mode, has_old=bool(replacement.old_sha256)
    ) as temporary:
        yield temporary


@contextmanager
def _temporary_with(
    path: Path, folder: int, data: bytes, *, mode: int | None, has_old: bool = False
) -> Iterator[str]:
    """Yield a temporary file next to `path` that has `data`, durable; remove it if it is left.

    `folder` is that of `path`, opened. `has_old`: the file takes the attributes of the one at `path`.
    """
    temporary: str | None = None
    fd = -1
    try:
        try:
            with suppress(PermissionError):  # a folder that may not be listed
                _sweep(folder)
            temporary, fd = _open_temporary(folder, 0o666 if not has_old and mode is None else 0o600)
            _write_all(fd, data)
            if has_old:
                _copy_attributes(path, folder, fd)
            elif mode is not None:
                os.fchmod(fd, stat.S_IMODE(mode))
            os.fsync(fd)
        except OSError as error:
            raise _write_problem(path, error) from error
        yield temporary
    finally:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
        if fd >= 0:
            os.close(fd)


def _place(path: Path, folder: int, temporary: str | None) -> None:
    try:
        if temporary is None:
            os.unlink(path.name, dir_fd=folder)
        else:
            os.rename(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError as error:
        raise _write_problem(path, error) from error


def _open_temporary(folder: int, mode: int) -> tuple[str, int]:
    """Create a temporary file and lock it. Try again if a sweep removed it in between."""
    while True:
        name = f"{os.getpid()}-{secrets.token_hex(6)}".join(_TEMPORARY)
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=folder)
        with suppress(OSError):  # a file system without locks: no sweep there either
            fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink:
            return name, fd
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _copy_attributes(path: Path, folder: int, fd: int) -> None:
    """Copy owner, then mode (a new owner clears set-id bits), then attributes, as far as we may."""
    like, created = os.stat(path.name, dir_fd=folder, follow_symlinks=False), os.fstat(fd)
    if (like.st_uid, like.st_gid) != (created.st_uid, created.st_gid):
        with suppress(OSError):
            os.fchown(fd, -1, like.st_gid)
        with suppress(OSError):
            os.fchown(fd, like.st_uid, -1)
    os.fchmod(fd, stat.S_IMODE(like.st_mode))
    if sys.platform == "linux":
        with suppress(OSError):
            old = open_in(folder, path)
            try:
                for name in os.listxattr(old):
                    with suppress(OSError):
                        os.setxattr(fd, name, os.getxattr(old, name))
            finally:
                os.close(old)


def _check_folder(folder: int, path: Path) -> None:
    if not os.access(".", os.W_OK | os.X_OK, dir_fd=folder):
        raise WriteProblem(
            f"The folder {path} is read-only.",
            "An edit is written next to the file and then renamed, so the folder must be writable.",
        )


def _file_above(path: Path) -> Path:
    """Return what stands where a path has a folder."""
    for above in reversed(path.parents):
        with suppress(OSError):
            if not stat.S_ISDIR(status_of(above).st_mode):
                return above
    return path.parent


def _state_in(folder: int, path: Path) -> bytes | None:
    """Return the bytes of a file of an opened folder, or None if there is none."""
    try:
        fd = open_in(folder, path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _read_problem(path, error) from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise WriteProblem(f"{path} is not a regular file any more.", _UNTOUCHED)
        with os.fdopen(fd, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(fd)


def _check_unchanged(replacement: Replacement, folder: int) -> None:
    path = replacement.path
    current = _state_in(folder, path)
    if (None if current is None else sha256_of(current)) == replacement.old_sha256:
        return
    if current is None:
        raise EditConflict(f"{path} is gone since it was read.", "Nothing was written.")
    what = "has changed" if replacement.old_sha256 else "has been made by another program"
    raise EditConflict(
        f"{path} {what} since it was read.",
        "It was left untouched, as the other program wrote it. Run the edit again.",
    )


def _read_problem(path: Path, error: OSError) -> WriteProblem:
    if isinstance(error, LeadsElsewhere):
        return WriteProblem(f"{path} leads elsewhere now: {error.strerror}.", "Nothing was written.")
    return WriteProblem(f"{path} cannot be read: {error.strerror}.", _UNTOUCHED)


def _write_problem(path: Path, error: OSError) -> WriteProblem:
    if isinstance(error, LeadsElsewhere):
        return _read_problem(path, error)
    if error.errno in _FULL:
        hint = "It was left untouched. Free some space and run the command again."
        return WriteProblem(f"No space to write {path}: {error.strerror}.", hint)
    return WriteProblem(f"{path} cannot be written: {error.strerror or error}.", _UNTOUCHED)


def _fsync_folder(folder: int) -> None:
    """Make the rename durable, where the file system can sync a folder."""
    with suppress(OSError):
        fd = os.open(".", LISTABLE, dir_fd=folder)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
