"""A folder of the user's inside the sandbox: writable, but for what is protected in it.

Owns which mounts make it so, and what each of them has to show, which is checked inside before the command
begins (`limited`): another command in the folder may swap names while bubblewrap mounts them. Sockets of
other programs in it are covered: no network namespace keeps one from connecting to them. What is protected
and missing at the top cannot be mounted over, so an empty file or folder is made in its place for as long as
a program runs, and recognised by its time when it is removed; further below it is undone afterwards
(`undoing`). Programs of several processes may run in one folder at once: the last one cleans up. Does not own
the other walls (`bubblewrap`), nor what is protected (`paths`).
"""

import asyncio
import fcntl
import os
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from vivace.agent.permissions.paths import PROTECTED, PROTECTED_FILES, git_folder_of, normalized
from vivace.agent.sandbox.looking import Entry, Identity, Look, folders_known, look_through, mounts
from vivace.agent.sandbox.undoing import LATE_NS, Before, Record, Undone, made_since, state_folder, undo
from vivace.errors import SandboxUnavailable

_untold: dict[Path, list[Undone]] = {}  # after commands without an outcome, such as cancelled ones
FEW_FOLDERS = 500  # at the last look: they are walked without a thread, in a few milliseconds
HOLDING_S = 60.0  # to wait for others that begin or end: they may have many folders to look through
STUB_TIME_NS = 86_400 * 10**9 + 7  # when no real file was written: it marks what we put in place


@dataclass(frozen=True)
class Workspace:
    root: Path
    is_writable: bool
    protected: frozenset[str] = PROTECTED  # names, normalized
    state: Path | None = None  # where it is kept what was there before, and what was taken away

    @property
    def path(self) -> Path:
        """Return the folder with links followed: where it is inside, too."""
        return Path(os.path.realpath(self.root))


@dataclass
class Mounts:
    """Bubblewrap's options for a workspace, and afterwards what had to be undone."""

    root: Path
    options: list[str] = field(default_factory=list)
    shown: dict[str, Identity | None] = field(default_factory=dict)  # None: whatever it is, it is ours
    foreign: list[str] = field(default_factory=list)  # places below it where this machine mounts something
    ours: tuple[Path, ...] = ()  # shown read-only by other options, whatever is in them
    undone: list[Undone] = field(default_factory=list)
    record: Record | None = None

    def sign(self) -> None:
        """Say that the command is looked after."""
        if self.record:
            self.record.sign()

    def show(self, path: Path, identity: Identity, *how: str) -> None:
        """Mount a path of the user's at its own place."""
        self._mount([*(how or ("--ro-bind",)), str(path)], path, identity)

    def cover(self, path: Path) -> None:
        """Make a socket a name that nobody listens at."""
        self._mount(["--ro-bind", "/dev/null"], path, _identity(Path("/dev/null")))

    def close(self, path: Path) -> None:
        """Put an empty folder over one that could not be looked into."""
        self._mount(["--perms", "0000", "--tmpfs"], path, None)

    def _mount(self, how: list[str], path: Path, identity: Identity | None) -> None:
        if not any(path.is_relative_to(each) for each in self.ours):
            self.options += [*how, str(path)]
            self.shown[str(path)] = identity


@asynccontextmanager
async def mounted(workspace: Workspace, ours: Iterable[Path] = ()) -> AsyncIterator[Mounts]:
    """Yield bubblewrap's options for the folder. Raise SandboxUnavailable if it cannot be protected.

    `ours` are paths that other options show read-only. Folders are walked in a thread: nothing else waits.
    """
    visit: _Visit | _Reading = _Visit(workspace) if workspace.is_writable else _Reading(workspace)
    paths = {each for path in ours for each in (path, path.resolve())}
    visit.mounts.ours = tuple(path for path in paths if path.is_relative_to(visit.mounts.root))
    visit.mounts.undone += _untold.pop(visit.mounts.root, [])
    is_told = False
    try:
        await _held(visit)
        if 0 < folders_known(visit.mounts.root, workspace.protected) <= FEW_FOLDERS:
            visit.begin()
        else:
            await _to_its_end(visit.begin)
        yield visit.mounts
        is_told = True
    finally:
        await _to_its_end(visit.end)  # a command may have made any number of folders
        if not is_told and visit.mounts.undone:
            _untold[visit.mounts.root] = visit.mounts.undone


async def shown_at(folder: Path, place: str) -> list[str]:
    """Return bubblewrap's options that show a folder elsewhere, to be read, with its sockets covered."""
    look = await asyncio.to_thread(_look, folder, PROTECTED)
    options = ["--ro-bind", str(folder), place]
    for entry in look.of("socket"):
        options += ["--ro-bind", "/dev/null", f"{place}/{entry.path}"]
    for entry in look.of("closed"):
        options += ["--perms", "0000", "--tmpfs", f"{place}/{entry.path}"]
    return options


async def _held(visit: "_Visit | _Reading") -> None:
    """Hold the folder, alone or with others. One that begins or ends holds it alone for a while."""
    until_s = time.monotonic() + HOLDING_S
    while not visit.hold():
        if time.monotonic() > until_s:
            raise SandboxUnavailable(
                f"Another program holds {visit.mounts.root} for itself (flock). Nothing was run.",
                f"`fuser {visit.mounts.root}` may say which. Wait for its end.",
            )
        await asyncio.sleep(0.02)


async def _to_its_end(work: Callable[[], None]) -> None:
    """Do it in a thread, and wait for its end, also if cancelled meanwhile."""
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait({working})
        raise


class _Reading:
    """The workspace of a command that may only read."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self.mounts = Mounts(workspace.path)

    def hold(self) -> bool:
        return True

    def begin(self) -> None:
        look = _look(self.mounts.root, self._workspace.protected)
        self.mounts.show(self.mounts.root, _identity(self.mounts.root))
        _hide(self.mounts, look)

    def end(self) -> None:
        pass


class _Visit:
    """The workspace of a command that may write, from before it begins to after it has ended."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._root = workspace.path
        self._state = Path(os.path.realpath(workspace.state or state_folder()))
        self._record = Record(self._state, self._root)
        self.mounts = Mounts(self._root, record=self._record)
        self._folder = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._is_first = False  # nobody else held it when we began
        self._is_begun = False

    def hold(self) -> bool:
        """Hold the folder. Return False while somebody else holds it alone."""
        with suppress(BlockingIOError):
            self._is_first = self._is_alone()
            if not self._is_first:
                fcntl.flock(self._folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return True
        return False

    def begin(self) -> None:
        """Look at the folder, alone or while other commands run in it."""
        look = self._joined()
        root, mounts = self._root, self.mounts
        mounts.show(root, (os.fstat(self._folder).st_dev, os.fstat(self._folder).st_ino), "--bind")
        if self._state.is_relative_to(root):  # in the home folder
            mounts.show(self._state, _identity(self._state))
        for entry in look.of("protected"):
            _check_protectable(root / entry.path, entry)
            mounts.show(root / entry.path, entry.identity)
        for name in _missing(look, self._workspace.protected):
            mounts.show(root / name, _identity(_made(root / name)))
        _hide(mounts, look)

    def end(self) -> None:
        """Undo what the commands made. While another one runs in the folder, say what waits for its end."""
        try:
            if self._is_begun and self._is_alone():
                _sweep(self._root)
                self._undo()
                self._record.remove()
            elif self._is_begun and (waiting := self._made_and_kept()):
                self.mounts.undone.append(Undone(waiting=waiting))
        except (SandboxUnavailable, OSError) as error:  # the record stays for the next look
            self.mounts.undone.append(Undone(stuck=(f"what is new ({error})",)))
        finally:
            os.close(self._folder)

    def _joined(self) -> Look:
        """Return what is there, and hold the folder with others. The first one writes it down."""
        self._is_begun = True
        try:
            if self._is_first:
                _sweep(self._root)
                self._undo(until_ns=self._record.last_sign_ns() + LATE_NS)
            look = _look(self._root, self._workspace.protected)
            before = None if self._is_first else self._record.read()
            if before is None:
                self._record.write(look)
            elif gone := sorted(before.keys() - _still_there(before, look)):
                raise SandboxUnavailable(
                    f"{gone[0]} was there when another command began in {self._root}, and is not found now. "
                    "Nothing was run.",
                    "Wait until that command has ended.",
                )
            fcntl.flock(self._folder, fcntl.LOCK_SH)
        except OSError as error:
            raise SandboxUnavailable(
                f"What is in {self._root} cannot be written down in {self._state}: {error.strerror}. "
                "Nothing was run.",
                "Make that folder writable.",
            ) from error
        return look

    def _is_alone(self) -> bool:
        try:
            fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _made_and_kept(self) -> tuple[str, ...]:
        """Return what commands made here that stays for those that still run."""
        if (before := self._record.read()) is None:
            return ()
        made = made_since(before, _look(self._root, self._workspace.protected))
        return tuple(each.path or "." for each in made if "/" in each.path or each.kind != "protected")

    def _undo(self, until_ns: int = 0) -> None:
        before = self._record.read()
        if before is None:
            return
        now = _look(self._root, self._workspace.protected)
        undone = undo(self._folder, before, now, self._state, until_ns=until_ns)
        if undone.told():
            self.mounts.undone.append(undone)


def _still_there(before: Before, look: Look) -> set[str]:
    """Return what was there before and was seen now, wherever it is.

    A command beside this one may move a folder while it is looked for, and what is not seen is not protected.
    What is at the top cannot be moved.
    """
    seen = look.identities
    return {path for path, (_, identity) in before.items() if identity in seen or "/" not in path}


def _look(root: Path, protected: frozenset[str]) -> Look:
    try:
        return look_through(root, protected)
    except OSError as error:
        raise SandboxUnavailable(
            f"{root} cannot be looked through: {error.strerror}. Nothing was run.",
            "Choose a folder that you can read.",
        ) from error


def _hide(mounted: Mounts, look: Look) -> None:
    """Cover sockets and what cannot be looked into; show what a worktree's `.git` names."""
    root = mounted.root
    for path in _git_folders(root):
        if str(path) not in mounted.shown:
            mounted.show(path, _identity(path))
    for entry in look.of("socket"):
        mounted.cover(root / entry.path)
    for entry in look.of("closed"):
        mounted.close(root / entry.path)
    with suppress(OSError):
        mounted.foreign = [point for point, _ in mounts() if point.startswith(f"{root}/")]


def _identity(path: Path) -> Identity:
    status = path.lstat()
    return status.st_dev, status.st_ino


def _missing(look: Look, protected: frozenset[str]) -> list[str]:
    there = {normalized(entry.path) for entry in look.of("protected") if "/" not in entry.path}
    return sorted(name for name in protected - there if "/" not in name)


def _check_protectable(path: Path, entry: Entry) -> None:
    """Raise SandboxUnavailable for what a mount does not protect: a link, or a file with another name."""
    if entry.is_link:
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


def _sweep(root: Path) -> None:
    """Remove what stood in for files. That is also what a process has left that was killed."""
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
