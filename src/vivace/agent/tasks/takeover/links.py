"""Symbolic links that a task made, changed or removed: which of them may be taken over, and taking them.

Owns the rule: a link is taken over if it leads to a place inside of the user's folder that is not protected.
The undo journal knows files only, so `vivace undo` does not take links back. Does not own files (`taking`).
"""

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from vivace.agent.door import opened_folder, real_path
from vivace.agent.permissions.paths import PROTECTED, locate, normalized, protecting
from vivace.agent.tasks.takeover.changes import ChangedFile, TaskChanges
from vivace.errors import EditConflict


@dataclass(frozen=True)
class LinkChange:
    path: Path  # in the user's folder, with links on the way to it followed
    old: bytes | None  # where it led; None: there was no link
    new: bytes | None  # None: it is removed

    @property
    def in_words(self) -> str:
        goal = "removed" if self.new is None else f"-> {os.fsdecode(self.new)}"
        return f"{self.path} (symbolic link) {goal}"

    def check(self) -> None:
        """Raise EditConflict if the user has something else there by now."""
        if self._now() not in (self.old, self.new):
            raise EditConflict(f"{self.path} was changed here too.", "Nothing was written. Move it away.")

    def carry_out(self) -> None:
        """Make the link, change it or remove it."""
        self.check()
        if self.is_done:
            return
        try:
            with opened_folder(self.path.parent, makes=self.new is not None) as folder:
                self._carry_out(folder)
        except OSError as error:
            raise EditConflict(f"{self.path} cannot be made a link: {error.strerror}.") from error

    def _carry_out(self, folder: int) -> None:
        if self.new is None:
            os.unlink(self.path.name, dir_fd=folder)
            return
        aside = f".vivace-{os.getpid()}-{secrets.token_hex(6)}.tmp"
        os.symlink(os.fsdecode(self.new), aside, dir_fd=folder)
        os.rename(aside, self.path.name, src_dir_fd=folder, dst_dir_fd=folder)

    @property
    def is_done(self) -> bool:
        return self._now() == self.new

    def _now(self) -> bytes | None:
        """Return where the link leads now. What is no link is nothing that a link could be."""
        try:
            with opened_folder(self.path.parent) as folder:
                return os.fsencode(os.readlink(self.path.name, dir_fd=folder))
        except FileNotFoundError:
            return None
        except OSError:
            return b""


def link_changes(changes: TaskChanges) -> tuple[tuple[LinkChange, ...], tuple[str, ...]]:
    """Return the links that can be taken over and are not there yet, and the paths of those that cannot."""
    found, left_out = [], []
    for file in changes.files:
        if not file.is_link:
            continue
        path = changes.top / file.path
        link = LinkChange(real_path(path.parent) / path.name, file.old, file.new)
        if not _may_be_taken(changes.top, file):
            left_out.append(file.path)
        elif not link.is_done:
            found.append(link)
    return tuple(found), tuple(left_out)


def _may_be_taken(top: Path, file: ChangedFile) -> bool:
    """Return whether it is a link before and after, has no protected name, and stays inside of the folder."""
    folder = (top / file.path).parent
    if file.was_or_is_file or protecting(locate(folder, Path(file.path).name)):
        return False
    goal = Path(os.fsdecode(file.new or b"."))
    return _is_inside(top, folder) and not goal.is_absolute() and _is_inside(top, folder / goal)


def _is_inside(top: Path, path: Path) -> bool:
    """Return whether a path leads to a place below `top`, with links followed, that is not protected."""
    real, root = real_path(path), real_path(top)
    if not real.is_relative_to(root):
        return False
    return not PROTECTED & {normalized(part) for part in real.relative_to(root).parts}
