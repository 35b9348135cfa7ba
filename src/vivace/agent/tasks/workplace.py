"""The folder in which a task works: a worktree of Git's, or a copy, with everything that the user sees.

Owns making it, the picture of its beginning (a ZIP file), and removing it. Files are copied from the user's
folder as they are there, changed and untracked ones too, so no filter, hook or checkout of a repository ever
runs; what is ignored stays behind. A worktree has the user's HEAD, detached. Where Git cannot make one (no
Git, no commit yet, a bare minimum of a version) it is a copy. Does not own what changed (`takeover`).
"""

import os
import shutil
import stat
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote_from_bytes, unquote_to_bytes

from vivace.agent.door import LeadsElsewhere, open_in, opened_folder, real_path
from vivace.agent.git import git_files, run_git
from vivace.agent.tools.ignoring import walk
from vivace.errors import TaskTooLarge

MAX_FILES = 100_000
MAX_BYTES = 1_000_000_000
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_SAFE_NAME = "/ !#$&'()+,;=@[]{}~"  # bytes that need no quoting in an entry's name


def make_workplace(folder: Path, work: Path, start: Path) -> Path:
    """Make the workplace in the new folder `work`, and the picture of its beginning. Return its folder.

    `folder` is the user's; where it is a part of a repository, the whole repository is carried over, and the
    part is returned. Raise TaskTooLarge if it is too much to copy.
    """
    folder = folder.resolve()
    top = _top_of(folder) or folder
    files = visible_files(top)
    _check_size(top, files)
    work.mkdir(mode=0o700)
    place = work / (top.name or "work")
    if not _add_worktree(top, place):
        place.mkdir()
    _copy(top, files, place, start)
    if (place / ".git").is_file():
        run_git(
            place, "read-tree", "HEAD", origin=top
        )  # so that Git sees what the user has changed, and no more
    return place / folder.relative_to(top)


def place_of(work: Path) -> Path | None:
    """Return the top of the workplace that is in `work`."""
    try:
        return next((path for path in work.iterdir() if path.is_dir() and not path.is_symlink()), None)
    except OSError:
        return None


def remove_workplace(work: Path, folder: Path | None = None) -> None:
    """Remove the workplace, and let its repository forget it. `folder` is the user's, if it is known."""
    place = place_of(work)
    if place is not None and (place / ".git").is_file():
        run_git(place, "worktree", "remove", "--force", "--force", str(place), origin=folder)
    shutil.rmtree(work, ignore_errors=True)


def top_of(folder: Path) -> Path:
    """Return the user's folder that a workplace is a copy of: the repository's top, or the folder itself."""
    folder = folder.resolve()
    return _top_of(folder) or folder


def visible_files(top: Path) -> list[str]:
    """Return the files of a folder that are not ignored, relative to it, as Git or our own reading says."""
    listed = git_files(top) if (top / ".git").exists() else None
    if listed is None:
        return [path for path, is_folder in walk(top) if not is_folder]
    found: dict[str, None] = {}
    for path in listed:
        if path.endswith("/") or ((top / path).is_dir() and not (top / path).is_symlink()):
            found.update(dict.fromkeys(_inside(top, path.rstrip("/"))))  # a submodule or another repository
        else:
            found[path] = None
    return list(found)


def _inside(top: Path, folder: str) -> Iterator[str]:
    return (f"{folder}/{path}" for path, is_folder in walk(top / folder) if not is_folder)


def _top_of(folder: Path) -> Path | None:
    """Return the top of the repository that a folder belongs to."""
    shown = run_git(folder, "rev-parse", "--show-toplevel")
    if not shown:
        return None
    top = Path(os.fsdecode(shown.removesuffix(b"\n"))).resolve()
    nearest = next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)
    return top if top == nearest else None  # its configuration may name any other folder


def _add_worktree(top: Path, place: Path) -> bool:
    """Return whether Git has made a worktree, without files."""
    if (
        not (top / ".git").exists()
        or run_git(top, "rev-parse", "--verify", "--quiet", "HEAD^{commit}") is None
    ):
        return False
    if run_git(top, "worktree", "add", "--detach", "--no-checkout", str(place), "HEAD") is None:
        shutil.rmtree(place, ignore_errors=True)
        return False
    return (place / ".git").is_file()


def _check_size(top: Path, files: list[str]) -> None:
    if len(files) > MAX_FILES:
        raise _too_large(top, f"{len(files)} files (the limit is {MAX_FILES})")
    total = 0
    for path in files:
        try:
            total += (top / path).lstat().st_size
        except OSError:
            continue
        if total > MAX_BYTES:
            raise _too_large(top, f"more than {MAX_BYTES // 10**6} MB")


def _too_large(top: Path, what: str) -> TaskTooLarge:
    return TaskTooLarge(
        f"{top} is too large to work on a copy of it: {what} that are not ignored.",
        "Name what is not needed in .gitignore, or run the task here without --background.",
    )


# ---- files ------------------------------------------------------------------------------------------


def _copy(top: Path, files: list[str], place: Path, start: Path) -> None:
    """Copy each file into the workplace and into the picture of the beginning: the same bytes, read once."""
    goal = real_path(place)
    with zipfile.ZipFile(start, "x", zipfile.ZIP_DEFLATED, compresslevel=1) as picture:
        for path in files:
            try:
                mode, data = read_entry(top / path)
            except OSError:  # it is gone, or no file: a pipe, a socket
                continue
            with suppress(LeadsElsewhere):  # its folder was a link a moment ago, which is copied already
                write_entry(goal / path, mode, data)
            info = zipfile.ZipInfo(_entry_name(path))
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = mode << 16
            picture.writestr(info, data)


def read_entry(path: Path) -> tuple[int, bytes]:
    """Return mode and bytes of a file; of a symbolic link, where it leads. Raise OSError for others.

    Its folder has a real path (`agent.door`): none of its parts has become a link meanwhile.
    """
    with opened_folder(path.parent) as folder:
        mode = os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            return mode, os.fsencode(os.readlink(path.name, dir_fd=folder))
        with os.fdopen(open_in(folder, path), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(f"{path} is no file")
            return mode, file.read()


def write_entry(path: Path, mode: int, data: bytes) -> None:
    """Write what `read_entry` gave to a real path, never through a link that was copied before it."""
    with opened_folder(path.parent, makes=True) as folder:
        if stat.S_ISLNK(mode):
            os.symlink(os.fsdecode(data), path.name, dir_fd=folder)
            return
        with os.fdopen(os.open(path.name, _NEW, 0o600, dir_fd=folder), "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), stat.S_IMODE(mode) & 0o777 | stat.S_IRUSR | stat.S_IWUSR)


def _entry_name(path: str) -> str:
    return quote_from_bytes(os.fsencode(path), safe=_SAFE_NAME)


def path_of_entry(name: str) -> str:
    """Return the path of a file by its name in the picture of the beginning."""
    return os.fsdecode(unquote_to_bytes(name))
