"""Instruction files: `AGENTS.md` or `CLAUDE.md`, of the user and at every level of a repository.

Owns which files apply to a path, reading them within bounds, and how they share the room that a prompt has.
A repository's file is text of strangers: it is read by the model, and by nothing else. Does not own where it
stands in a prompt (`recall`).
"""

import hashlib
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vivace.agent.door import open_file, real_path
from vivace.redaction import redact

NAMES = ("AGENTS.md", "CLAUDE.md")  # the first one that a folder has
MAX_READ_BYTES = 256 * 1024  # of one file
LEAST_CHARS = 200  # less than this of a file says nothing
CUT = "…"
ANYWHERE = Path("/")  # where the user's own file may lead


@dataclass(frozen=True)
class InstructionFile:
    path: Path
    shown: str  # its name for people: relative to the repository, or with the home folder as ~
    text: str
    is_own: bool = False  # the user's, not the repository's

    @property
    def digest(self) -> str:
        """Return a short name of the text: another text has another one."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]


def project_root(folder: Path) -> Path:
    """Return the nearest folder above, or this one, that has a `.git`; else this one."""
    folder = folder.resolve()
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), folder)


def files_for(paths: Iterable[Path], folder: Path, user_dir: Path | None) -> list[InstructionFile]:
    """Return the files that apply to work on these paths from `folder`, the nearest last.

    The user's own comes first, then those from the repository's root down to `folder` and to each path. A
    path of another repository brings that one's.
    """
    root = project_root(folder)
    own = _file_in(user_dir, ANYWHERE, None) if user_dir else None
    levels = dict.fromkeys(_levels(root, folder.resolve()), root)
    for path in paths:
        place = path.resolve().parent
        its_root = root if place.is_relative_to(root) else project_root(place)
        if its_root == root or (its_root / ".git").exists():
            levels |= dict.fromkeys(_levels(its_root, place), its_root)
    ordered = sorted(levels, key=lambda level: (len(level.parts), str(level)))
    found = [_file_in(level, levels[level], root) for level in ordered]
    return [file for file in ([replace(own, is_own=True)] if own else []) + found if file is not None]


def _levels(root: Path, folder: Path) -> list[Path]:
    """Return the folders from the root down to this one; none if it is not below the root."""
    if not folder.is_relative_to(root):
        return []
    inside = folder.relative_to(root).parts
    return [root.joinpath(*inside[:count]) for count in range(len(inside) + 1)]


def _file_in(folder: Path, root: Path, shown_from: Path | None) -> InstructionFile | None:
    """Return the file of this folder, if it has one that does not lead out of `root`."""
    for name in NAMES:
        path = folder / name
        if (text := _read(path, root)).strip():
            return InstructionFile(path, _shown(path, shown_from), redact(text).strip())
    return None


def _shown(path: Path, root: Path | None) -> str:
    if root and path.is_relative_to(root):
        return str(path.relative_to(root))
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _read(path: Path, root: Path) -> str:
    """Return the text; "" for what is no file, cannot be read, or is a link that leads out of `root`."""
    try:
        real = real_path(path)
        if not real.is_relative_to(real_path(root)):
            return ""
        with os.fdopen(open_file(real), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return ""
            data = file.read(MAX_READ_BYTES)
    except (OSError, ValueError):
        return ""
    return data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\0", "")


def fitted(files: Sequence[InstructionFile], max_chars: int) -> list[InstructionFile]:
    """Return the files, cut so that all of them have at most `max_chars`. The nearest is cut last."""
    kept: list[InstructionFile] = []
    for file in reversed(files):
        text = file.text if len(file.text) <= max_chars else _beginning(file.text, max_chars)
        if text:
            kept.append(replace(file, text=text))
            max_chars -= len(text)
    return kept[::-1]


def _beginning(text: str, max_chars: int) -> str:
    """Return whole lines of the beginning, with a mark that there is more; "" if that is too little."""
    if max_chars < LEAST_CHARS:
        return ""
    room = text[: max_chars - len(CUT) - 1]
    whole = room.rpartition("\n")[0] or room
    return f"{whole.rstrip()}\n{CUT}"
