"""What a command made of protected names, undone: no mount can forbid a name that is not there yet.

Owns the record of what was there before, and the comparison with what is there afterwards. What is new is
moved to a private folder outside of the workspace, so that nothing is lost. The record is on disk while
commands run: if this process is killed, the next command in the folder finds it and undoes what was left.
Does not own the walk (`looking`), nor when commands run (`workspace`).
"""

import errno
import hashlib
import itertools
import json
import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from vivace.agent.door import LISTABLE, open_inside
from vivace.agent.permissions.paths import GIT_SETTINGS
from vivace.agent.sandbox.looking import Entry, Identity, Kind, Look
from vivace.config import load_settings

ALIVE_S = 1.0  # between two signs of life in the record
LATE_NS = 5 * 10**9  # what changed this long after the last sign of life was not done by the command
KEPT_DAYS = 30
SHOWN = 10  # paths in a sentence
KINDS: tuple[Kind, ...] = ("protected", "repository", "closed")  # that a command may not make
Before = dict[str, tuple[Kind, Identity]]  # what was there, by path


@dataclass(frozen=True)
class Undone:
    """What was taken away after a command."""

    taken: tuple[str, ...] = ()  # paths, relative to the workspace
    kept_in: Path | None = None  # where they are now
    replaced: tuple[str, ...] = ()  # files that a program outside put in place meanwhile: they were left
    stuck: tuple[str, ...] = ()  # what could not be moved, with the reason
    waiting: tuple[str, ...] = ()  # what stays until others that hold the folder have ended

    def told(self) -> str:
        """Return it for the model and the person, or "" if nothing was undone."""
        parts = []
        if self.taken:
            parts.append(
                f"Taken away: {_listed(self.taken)}. A command in the sandbox may not make protected names. "
                f"Nothing is lost: see {self.kept_in}. If they are wanted, run the command outside of the "
                "sandbox, which asks the user."
            )
        if self.replaced:
            parts.append(
                f"Replaced while the command ran, by another program: {_listed(self.replaced)}. Look at them "
                "before you use them."
            )
        if self.stuck:
            parts.append(
                f"Made by the command, protected, and still there: {_listed(self.stuck)}. Remove them before "
                "you use the folder."
            )
        if self.waiting:
            parts.append(
                f"Protected, made meanwhile, and still there: {_listed(self.waiting)}. Another command runs "
                "in the folder, or another program holds it; they are taken away after the last one. Do not "
                "use them until then."
            )
        return " ".join(parts)


def state_folder() -> Path:
    """Return where records and what was taken away are, if nobody says another place."""
    return load_settings().state_dir / "sandbox"


class Record:
    """What was protected in a folder when the first of its running commands began."""

    def __init__(self, folder: Path, root: Path) -> None:
        self._folder = folder
        name = hashlib.sha256(os.fsencode(root)).hexdigest()[:32]
        self._file = folder / "running" / f"{name}.json"
        self._next_sign_s = 0.0

    def write(self, look: Look) -> None:
        entries = [[entry.path, entry.kind, *entry.identity] for entry in look.of(*KINDS)]
        _private(self._folder, "running")
        fresh = self._file.with_suffix(f".{os.getpid()}.part")
        fresh.write_text(json.dumps(entries))
        fresh.replace(self._file)  # not synced: after a loss of power nothing ran on

    def read(self) -> Before | None:
        """Return the entries by path; None if no command runs here, or what is written is damaged."""
        try:
            entries = json.loads(self._file.read_bytes())
            return {path: (kind, (device, inode)) for path, kind, device, inode in entries}
        except (OSError, ValueError, TypeError):
            return None

    def sign(self) -> None:
        """Say that the command's supervisor is alive."""
        if time.monotonic() >= self._next_sign_s:
            self._next_sign_s = time.monotonic() + ALIVE_S
            with suppress(OSError):
                os.utime(self._file)

    def last_sign_ns(self) -> int:
        try:
            return self._file.stat().st_mtime_ns
        except OSError:
            return 0

    def remove(self) -> None:
        self._file.unlink(missing_ok=True)


def undo(top: int, before: Before, now: Look, folder: Path, *, until_ns: int = 0) -> Undone:
    """Move away what is protected and new in the workspace that `top` is open at.

    After a kill, what changed later than `until_ns` was done by somebody else and stays.
    """
    new: list[str] = []
    replaced: list[str] = []
    made = made_since(before, now)
    there = now.identities
    could_hide = any(not (entry.is_file or entry.is_link) for entry in made)
    for entry in made:
        if entry.kind == "repository":
            new.append(f"{entry.path}/HEAD".lstrip("/"))  # without it, it is a folder like others
        elif entry.is_file and not could_hide and entry.path in before and before[entry.path][1] not in there:
            replaced.append(entry.path)
        else:
            new.append(entry.path)
    return _taken(top, new, folder, tuple(replaced), until_ns)


def made_since(before: Before, now: Look) -> list[Entry]:
    """Return what was not there before; of a new repository only the folder, without its settings.

    What was moved together with its folder is the same, since it was mounted: no command could change or
    rename it. A folder that Git takes for a repository by its content can be renamed: it is another one then.
    """
    mounted = {found for found in before.values() if found[0] != "repository"}
    made = [
        entry
        for entry in now.of(*KINDS)
        if (found := (entry.kind, entry.identity)) not in mounted and before.get(entry.path) != found
    ]
    posing = {entry.path for entry in made if entry.kind == "repository"}
    return [entry for entry in made if not _is_setting(entry.path, posing)]


def _is_setting(path: str, repositories: set[str]) -> bool:
    above, _, name = path.rpartition("/")
    return name in GIT_SETTINGS and above in repositories


def _taken(top: int, paths: list[str], folder: Path, replaced: tuple[str, ...], until_ns: int) -> Undone:
    """Move paths into a new folder below `folder`."""
    taken: list[str] = []
    stuck: list[str] = []
    day = time.strftime("%Y%m%d-%H%M%S")
    kept_in = folder / "taken" / day
    for path in paths:
        above, _, name = path.rpartition("/")
        try:
            with _opened(top, above) as parent:
                changed_ns = os.stat(name, dir_fd=parent, follow_symlinks=False).st_ctime_ns
                if not until_ns or changed_ns <= until_ns:
                    _private(folder, "taken", day)
                    _move(parent, name, _free(kept_in, path))
                    taken.append(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            stuck.append(f"{path} ({error.strerror})")
    if taken:
        _forget_old(folder / "taken")
    return Undone(tuple(taken), kept_in if taken else None, replaced, tuple(stuck))


@contextmanager
def _opened(top: int, path: str) -> Iterator[int]:
    """Yield a descriptor of a folder below `top`, past no link."""
    descriptor = open_inside(top, path or ".", LISTABLE)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _private(folder: Path, *names: str) -> None:
    """Make folders, one in the other, that only this user can enter."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in names:
        folder = folder / name
        folder.mkdir(mode=0o700, exist_ok=True)


def _free(folder: Path, path: str) -> Path:
    """Return a new place for what was at a path: the path as one name, which is no protected one."""
    name = "made%2F" + path.replace("%", "%25").replace("/", "%2F")[-150:]
    places = (folder / (f"{name}~{number}" if number else name) for number in itertools.count())
    return next(place for place in places if not os.path.lexists(place))


def _move(parent: int, name: str, goal: Path) -> None:
    with _movable(parent, name):
        try:
            os.rename(name, goal, src_dir_fd=parent)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _move_to_other_disk(parent, name, goal)


def _move_to_other_disk(parent: int, name: str, goal: Path) -> None:
    """Copy and remove. The name goes first: what cannot be copied stays under one that is harmless."""
    harmless = f"taken-away-{os.urandom(4).hex()}"
    os.rename(name, harmless, src_dir_fd=parent, dst_dir_fd=parent)
    source = Path(f"/proc/self/fd/{parent}/{harmless}")
    if source.is_dir() and not source.is_symlink():
        with suppress(shutil.Error):  # pipes and the like, which have no content
            shutil.copytree(source, goal, symlinks=True)
        shutil.rmtree(source)
    else:
        shutil.copy2(source, goal, follow_symlinks=False)
        source.unlink()


@contextmanager
def _movable(parent: int, name: str) -> Iterator[None]:
    """Let an entry be moved, though the command took the permissions away that moving needs."""
    mode = stat.S_IMODE(os.fstat(parent).st_mode)
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        os.fchmod(parent, mode | stat.S_IRWXU)
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
        found = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            Path(f"/proc/self/fd/{found}").chmod(stat.S_IMODE(status.st_mode) | stat.S_IRWXU)
        finally:
            os.close(found)
    try:
        yield
    finally:
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            os.fchmod(parent, mode)


def _forget_old(folder: Path) -> None:
    """Remove what was taken away long ago."""
    for each in folder.iterdir():
        with suppress(OSError):
            if each.stat().st_mtime < time.time() - KEPT_DAYS * 86_400:
                shutil.rmtree(each)


def _listed(paths: tuple[str, ...]) -> str:
    more = len(paths) - SHOWN
    shown = [path if path.isprintable() else ascii(path) for path in paths[:SHOWN]]
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
