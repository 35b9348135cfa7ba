"""Where a path of a model leads, and which names are protected wherever they are.

Owns the look at the file system: links followed, names as a case-insensitive file system compares them. What
is found is a value (`Place`). Does not decide (`decision`).
"""

import os
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from vivace.agent.door import real_path
from vivace.errors import FileProblem

# Folders and files that make other programs run something, or that hold this program's own rules. All are
# written as `normalized` returns them.
PROTECTED_FOLDERS = frozenset(
    {
        *(".git", ".hg", ".svn", ".jj", ".bzr"),
        *(".vivace", ".codex", ".claude"),
        *(".vscode", ".idea", ".zed", ".fleet", ".vim", ".nvim", ".emacs.d"),
        *(".ssh", ".direnv", ".husky"),
    }
)
PROTECTED_FILES = frozenset(
    {
        *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile"),
        *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout"),
        *(".kshrc", ".cshrc", ".tcshrc", ".login", ".logout", ".inputrc", ".envrc"),
        *(".vimrc", ".gvimrc", ".exrc", ".nvimrc", ".nvim.lua", ".emacs", ".dir-locals.el"),
        *(".gitconfig", ".gitmodules", ".mcp.json"),
    }
)
PROTECTED = PROTECTED_FOLDERS | PROTECTED_FILES
# What makes Git run something, in a folder that it takes for a repository by its content: one with a HEAD.
GIT_SETTINGS = ("config", "config.worktree", "commondir", "hooks")
MAX_GIT_FILE_BYTES = 4096


@dataclass(frozen=True)
class Place:
    """Where a path leads."""

    shown: str  # as the model wrote it
    path: Path  # absolute, links followed: what is read or written
    is_inside: bool  # of the workspace
    names: frozenset[str]  # of all its parts below the workspace, normalized, with and without links followed
    links: int = 1  # names of an existing file; more than one: hard links
    protected_by: str = ""  # a protected name whose link leads here, or what Git would read here


def normalized(name: str) -> str:
    """Return a name so that all names which some file system takes for the same are equal.

    Case is folded, and characters are dropped that HFS+ ignores, or Windows at the end.
    """
    composed = unicodedata.normalize("NFKC", name).casefold()
    visible = "".join(each for each in composed if unicodedata.category(each) not in ("Cf", "Cc"))
    return unicodedata.normalize("NFKC", visible).rstrip(" .") or visible


def locate(root: Path, path: str) -> Place:
    """Return where `path`, relative to the workspace `root`, leads now. It need not exist."""
    if "\0" in path:
        raise FileProblem(f"{path!r} is not a file name: it has a NUL.")
    try:
        top = real_path(root)
        lexical = Path(os.path.normpath(top / path))
        real = real_path(top / path)
    except (OSError, ValueError) as error:  # a link that was swapped meanwhile, letters that no name has
        raise FileProblem(f"{path!r:.300} cannot be followed to a file: {error}.", "Try it again.") from error
    parts = {*_parts_below(top, lexical), *_parts_below(top, real)}
    return Place(
        shown=path,
        path=real,
        is_inside=real.is_relative_to(top),
        names=frozenset(map(normalized, parts)),
        links=_links(real),
        protected_by=_protected_link(top, real)
        or _part_of_repository(top, real)
        or _part_of_repository(top, lexical),
    )


def _parts_below(top: Path, path: Path) -> tuple[str, ...]:
    return path.relative_to(top).parts if path.is_relative_to(top) else path.parts


def _links(path: Path) -> int:
    """Return how many names a regular file has; 1 for anything else."""
    try:
        status = path.lstat()
    except (OSError, ValueError):
        return 1
    return status.st_nlink if not path.is_dir() else 1


def _protected_link(top: Path, real: Path) -> str:
    """Return the protected name in the workspace that leads to `real` or to a folder above it."""
    for name, target in protected_targets(top).items():
        if real.is_relative_to(target) and not top.is_relative_to(target):
            return name
    return ""


def _part_of_repository(top: Path, path: Path) -> str:
    """Return the setting of a repository that a path is, or is in, whatever the repository's name.

    A HEAD makes a folder one, together with names that many folders have: so it is never written.
    """
    if path.name == "HEAD":
        return "HEAD"
    for inner in (path, *path.parents):
        if inner == top or not inner.is_relative_to(top):
            break
        if inner.name in GIT_SETTINGS and os.path.lexists(inner.parent / "HEAD"):
            return f"{inner.name} beside HEAD"
    return ""


def protecting(place: Place, names: frozenset[str] = PROTECTED) -> str:
    """Return the protected name that the place has, or that leads to it; "" if there is none."""
    return min(place.names & names, default=place.protected_by)


def protected_targets(top: Path) -> dict[str, Path]:
    """Return where the protected names of a workspace lead that are links, or files of Git's like links."""
    try:
        entries = [each for each in os.scandir(top) if normalized(each.name) in PROTECTED]
    except OSError:
        return {}
    targets = {}
    for entry in entries:
        if entry.is_symlink():
            targets[entry.name] = real_path(Path(entry.path))
        elif normalized(entry.name) == ".git" and (folder := git_folder_of(Path(entry.path))):
            targets[entry.name] = real_path(top / folder)
    return targets


def git_folder_of(file: Path) -> str:
    """Return the folder that a file `.git` names, as it stands there; "" if it is no such file."""
    try:
        if not file.is_file():
            return ""
        with file.open("rb") as opened:
            said = opened.read(MAX_GIT_FILE_BYTES).decode("utf-8", "surrogateescape")
    except OSError:
        return ""
    return said.removeprefix("gitdir:").strip() if said.startswith("gitdir:") else ""
