"""What new texts of files break that the old ones did not: the one question that edits ask of this room.

Owns the comparison of before and after, and which other files are looked at: those that use a name of a
changed file which no longer is what it was. Python only; a text that does not parse has no faults here.
"""

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

from vivace.agent.edits.apply.files import DISK, Files
from vivace.agent.edits.check.faults.finding import Finding, new_among
from vivace.agent.edits.check.faults.names import names_without_value
from vivace.agent.edits.check.faults.project import Project
from vivace.agent.edits.check.faults.surface import Surface
from vivace.agent.edits.check.faults.uses import misuses
from vivace.agent.edits.repair.imports.origins import MAX_BYTES, source_files
from vivace.agent.edits.repair.imports.python_names import undefined_names

MAX_USERS = 25  # other files that are looked at
USERS_S = 2.0  # for all of them


class Checker:
    """Compares any number of new texts with the same old ones."""

    def __init__(self, before: Mapping[Path, str], files: Files = DISK) -> None:
        self._before = {path.resolve(): text for path, text in before.items() if path.suffix == ".py"}
        self._files = files
        first = next(iter(self._before), None)
        self._old = Project(first, self._before, files) if first else None
        self._old_misuses: dict[Path, list[Finding]] = {}
        self._old_undefined: dict[Path, frozenset[str] | None] = {}
        self._users_of: dict[frozenset[str], list[Path]] = {}

    def undefined(self, path: Path, text: str) -> list[str]:
        """Return the names that nothing in the text defines, and that the old one did not lack."""
        path = path.resolve()
        if path not in self._before:
            return []
        if path not in self._old_undefined:
            self._old_undefined[path] = undefined_names(self._before[path])
        old, new = self._old_undefined[path], undefined_names(text)
        return [] if old is None or new is None else sorted(new - old)

    def in_files(self, after: Mapping[Path, str]) -> list[Finding]:
        """Return what else is newly wrong in these texts themselves."""
        new = self._with(after)
        if self._old is None or new is None:
            return []
        found: list[Finding] = []
        for given, text in after.items():
            path = given.resolve()
            before, now = self._old.tree(path), new.tree(path)
            if path in self._before and before is not None and now is not None:
                found += names_without_value(self._before[path], before, text, now)
                found += self._misuses(new, path)
        return found

    def in_users(self, after: Mapping[Path, str]) -> list[Finding]:
        """Return what is newly wrong in other files, which use what these texts change."""
        new = self._with(after)
        if new is None:
            return []
        found: list[Finding] = []
        began_s = time.monotonic()
        for path in self._users(new, self._python(after)):
            if time.monotonic() - began_s < USERS_S:
                found += [_placed(each, path) for each in self._misuses(new, path)]
        return found

    def _python(self, after: Mapping[Path, str]) -> list[Path]:
        return [path for each in after if (path := each.resolve()) in self._before]

    def _with(self, after: Mapping[Path, str]) -> Project | None:
        if self._old is None:
            return None
        texts = {path.resolve(): text for path, text in after.items()}
        return Project(next(iter(self._before)), self._before | texts, self._files, read=self._old)

    def _misuses(self, new: Project, path: Path) -> list[Finding]:
        assert self._old is not None
        if path not in self._old_misuses:
            self._old_misuses[path] = misuses(self._old, path)
        return new_among(self._old_misuses[path], misuses(new, path))

    def _users(self, new: Project, changed_files: Sequence[Path]) -> list[Path]:
        """Return other files that use a name which is gone or is called in another way now."""
        assert self._old is not None
        changed: set[str] = set()
        for path in changed_files:
            if new.tree(path) is not None:
                changed |= _changed(self._old.surface(path), new.surface(path))
        names = frozenset(changed)
        if names and names not in self._users_of:
            self._users_of[names] = list(islice(_files_with(self._old.root, names), MAX_USERS))
        return [path for path in self._users_of.get(names, []) if path not in changed_files]


def _placed(finding: Finding, path: Path) -> Finding:
    where = f"{path.name}:{finding.where}" if finding.where else path.name
    return replace(finding, where=where)


def _files_with(root: Path, names: Iterable[str]) -> Iterator[Path]:
    wanted = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(names)))})\b".encode())
    for path in source_files(root, ".py"):
        with suppress(OSError):
            raw = path.read_bytes()
            if len(raw) <= MAX_BYTES and wanted.search(raw):
                yield path.resolve()


def _changed(old: Surface, new: Surface) -> set[str]:
    """Return the names that others may have used and that are gone, or are called in another way."""
    gone = set() if new.is_open else set(old.names - new.names)
    functions = {name for name in old.functions if new.functions.get(name) != old.functions[name]}
    classes = {name for name in old.classes if name not in new.classes or _init_differs(old, new, name)}
    return gone | functions | classes


def _init_differs(old: Surface, new: Surface, name: str) -> bool:
    return old.classes[name].init != new.classes[name].init
