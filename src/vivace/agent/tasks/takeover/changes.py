"""What a task has changed: its workplace now against the picture of its beginning.

Owns the comparison, the diff for people, and the proposal that can be taken over by hunks. Does not write
anything (`taking`).
"""

import difflib
import os
import stat
import zipfile
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

from vivace.agent.door import real_path
from vivace.agent.edits.apply.rebasing import Change, merge_problems
from vivace.agent.edits.apply.replacing import sha256_of
from vivace.agent.edits.apply.source import SourceFile, source_from_bytes
from vivace.agent.edits.find.units import file_unit
from vivace.agent.edits.proposal import FileProposal, Proposal, whole_diff
from vivace.agent.loop.diffs import unified_diff
from vivace.agent.permissions.paths import locate, protecting
from vivace.agent.sandbox.workspace import is_stand_in
from vivace.agent.tasks.store import TaskFolder
from vivace.agent.tasks.workplace import path_of_entry, place_of, read_entry, top_of, visible_files
from vivace.errors import EditConflict, FileProblem, TaskNotFound

# Folders and files that tools leave behind, and that are no change also where no .gitignore names them.
BY_PRODUCTS = frozenset(
    {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", "node_modules", ".DS_Store"}
)


@dataclass(frozen=True)
class ChangedFile:
    path: str  # relative to the top of the repository, or to the folder
    old: bytes | None  # None: it was not there
    new: bytes | None  # None: it is removed
    mode: int | None = None  # of the new file, if it can be executed now and could not before, or reversed
    is_link: bool = False  # it was or is a symbolic link
    was_or_is_file: bool = True  # it was or is a file

    @property
    def lines(self) -> tuple[int, int]:
        """Return how many lines were added and removed."""
        old, new = (text.splitlines() for text in ((self.old or b""), (self.new or b"")))
        if self.is_binary:
            return 0, 0
        blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
        same = sum(block.size for block in blocks)
        return len(new) - same, len(old) - same

    @property
    def execution(self) -> str:
        """Return whether it can be executed now, in words."""
        return "can be executed now" if (self.mode or 0) & stat.S_IXUSR else "cannot be executed now"

    @property
    def is_binary(self) -> bool:
        return not all(_is_text(each) for each in (self.old, self.new) if each is not None)


@dataclass(frozen=True)
class TaskChanges:
    top: Path  # of the user's folder: what the paths are relative to
    files: tuple[ChangedFile, ...]

    def diff(self) -> str:
        """Return all changes as Git would show them."""
        return "".join(_diff_of(file, self.top) for file in self.files)

    def summary(self) -> str:
        """Return one line a file: its name, and how many lines were added and removed."""
        return "\n".join(_line_of(file) for file in self.files)


@dataclass(frozen=True)
class TaskFile(FileProposal):
    """A file that a task has changed. What the task did is not judged again, but for its syntax."""

    @property
    def change(self) -> Change:
        return Change(self.source, None if self.is_removed else self.new_bytes, "task")

    def with_bytes(self, new_bytes: bytes) -> "TaskFile":
        return task_file(self.source, new_bytes, self.instruction)


def read_changes(folder: TaskFolder) -> TaskChanges:
    """Compare the workplace with how it began."""
    place = place_of(real_path(folder.work))
    if place is None or not folder.start_file.exists():
        raise TaskNotFound(f"The workplace of the task {folder.id} is gone.", "Remove the task.")
    found = []
    with zipfile.ZipFile(folder.start_file) as picture:
        before = {path_of_entry(info.filename): info for info in picture.infolist()}
        now = {path for path in visible_files(place) if path in before or not _is_by_product(place, path)}
        for path in sorted({*before, *now}):
            changed = _compared(picture, before.get(path), place / path, path)
            if changed is not None:
                found.append(changed)
    return TaskChanges(top_of(Path(folder.queued().folder)), tuple(found))


def _compared(
    picture: zipfile.ZipFile, info: zipfile.ZipInfo | None, file: Path, path: str
) -> ChangedFile | None:
    """Return the file if it differs."""
    try:
        mode, new = read_entry(file)
    except OSError:
        if info is None:
            return None
        is_link = stat.S_ISLNK(info.external_attr >> 16)
        return ChangedFile(path, picture.read(info), None, is_link=is_link, was_or_is_file=not is_link)
    if info is None:
        is_link = stat.S_ISLNK(mode)
        execution = None if is_link else _executable(mode, 0)
        return ChangedFile(path, None, new, execution, is_link, was_or_is_file=not is_link)
    old_mode = info.external_attr >> 16
    is_link = stat.S_ISLNK(mode) or stat.S_ISLNK(old_mode)
    is_file = not (stat.S_ISLNK(mode) and stat.S_ISLNK(old_mode))
    is_same = info.file_size == len(new) and zlib.crc32(new) == info.CRC
    execution = None if is_link else _executable(mode, old_mode)
    if is_same and stat.S_ISLNK(mode) == stat.S_ISLNK(old_mode) and execution is None:
        return None
    return ChangedFile(path, picture.read(info), new, execution, is_link, is_file)


def _is_by_product(place: Path, path: str) -> bool:
    """Return whether a new file was written by nobody: the sandbox put it there, or a tool keeps it."""
    return is_stand_in(place / path) or not BY_PRODUCTS.isdisjoint(Path(path).parts) or path.endswith(".pyc")


def _executable(mode: int, old_mode: int) -> int | None:
    """Return the new permissions if whether the file can be executed has changed."""
    return stat.S_IMODE(mode) & 0o777 if (mode ^ old_mode) & stat.S_IXUSR else None


# ---- for the user's folder --------------------------------------------------------------------------


def target_of(top: Path, path: str) -> Path | None:
    """Return where a path of a task leads in the user's folder; None if it leads out, or is protected."""
    try:
        place = locate(top, path)
    except FileProblem:
        return None
    return place.path if place.is_inside and not protecting(place) else None


def proposal_of(changes: TaskChanges, instruction: str) -> tuple[Proposal, list[Change]]:
    """Return the texts as a proposal with hunks, and what has none: binary files and empty ones."""
    texts, wholes = [], []
    for file in changes.files:
        if file.is_link or file.old == file.new:
            continue
        source = source_of(changes.top, file)
        if file.is_binary or not (file.old or file.new):
            wholes.append(Change(source, file.new, "task"))
        else:
            texts.append(
                replace(task_file(source, file.new or b"", instruction), is_removed=file.new is None)
            )
    return Proposal(tuple(texts)), wholes


def task_file(source: SourceFile, new_bytes: bytes, instruction: str) -> TaskFile:
    problems = merge_problems(source.path, source.raw, new_bytes)
    hunks = () if problems and not _is_text(new_bytes) else whole_diff(source, new_bytes)
    return TaskFile(source, file_unit(source), instruction, new_bytes, hunks, tuple(problems))


def source_of(top: Path, file: ChangedFile) -> SourceFile:
    """Return a file of the user's as it was when the task began. Raise EditConflict if it leads elsewhere."""
    path, raw, target = top / file.path, file.old or b"", target_of(top, file.path)
    if target is None:
        raise EditConflict(f"{path} leads elsewhere now, or is protected.", "Nothing was written.")
    try:
        source = source_from_bytes(path, raw, target)
    except FileProblem:
        source = SourceFile(path, target, raw, (), (), "\n", bom=False, sha256=sha256_of(raw))
    return replace(source, exists=file.old is not None)


def _is_text(data: bytes) -> bool:
    try:
        source_from_bytes(Path("text"), data)
    except FileProblem:
        return False
    return True


def _diff_of(file: ChangedFile, top: Path) -> str:
    if file.is_link:
        goal = f"leads to {os.fsdecode(file.new)}" if file.new is not None else "is removed"
        return f"Symbolic link {file.path} {'differs' if file.was_or_is_file else goal}\n"
    if file.is_binary:
        return f"Binary file {file.path} {_verb(file)}\n"
    if not (file.old or file.new):
        return f"Empty file {file.path} {_verb(file)}\n"
    path = top / file.path
    old = replace(source_from_bytes(path, file.old or b"", path), exists=file.old is not None)
    diff = unified_diff(Change(old, file.new, "task"), top)[1]
    return diff or f"{file.path} {file.execution}\n"


def _verb(file: ChangedFile) -> str:
    return "is new" if file.old is None else "is removed" if file.new is None else "differs"


def _line_of(file: ChangedFile) -> str:
    added, removed = file.lines
    count = " (binary)" if file.is_binary else f" +{added} -{removed}"
    made = " (new)" if file.old is None else " (removed)" if file.new is None else ""
    return f"{file.path}{count}{made}"
