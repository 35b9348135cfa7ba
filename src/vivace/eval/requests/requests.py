"""What is asked: one-sentence requests on public projects, each with a reference patch and what judges it.

Owns the set (`set/PROJECT.toml`), how it is read, and which half is held out. The projects' code is no part
of it: their source packages are fetched when a run begins (`trees`). Repository tasks have the same shape and
are read from a folder (`repository`). Does not run anything.
"""

import hashlib
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import msgspec

HALVES = 2  # one request in two is not looked at while the loop is tuned


class Project(msgspec.Struct, frozen=True):
    package: str  # as the package index knows it
    version: str
    sha256: str  # of the source package
    imported_from: str  # the folder that is put on the path, relative to the tree
    keeps: str  # asserts about neighbours: they hold before, and after every reference

    @property
    def archive(self) -> str:
        """Return the name of its file where source packages are kept."""
        return f"{self.package.lower()}-{self.version}.tar.gz"


@dataclass(frozen=True)
class Scripts:
    """Two programs of asserts judge the edit: what was asked for, and what should still work."""

    imported_from: str
    check: str
    keeps: str


@dataclass(frozen=True)
class Tests:
    """The project's own tests judge the edit."""

    command: str
    packages: tuple[str, ...]  # that the tests need, with versions
    files: dict[str, str | None]  # written into the tree first; None: removed
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]


@dataclass(frozen=True)
class Request:
    name: str
    text: str
    archive: Path  # the tree before, as a tar.gz
    patch: str  # the reference
    judged_by: Scripts | Tests

    @property
    def is_held_out(self) -> bool:
        return int(hashlib.sha256(self.name.encode()).hexdigest(), 16) % HALVES == 1


class _Row(msgspec.Struct, frozen=True):
    id: str
    text: str
    check: str
    patch: str


class _File(msgspec.Struct, frozen=True):
    project: Project
    request: list[_Row]


def read_projects() -> list[Project]:
    return [each.project for each in _read_set()]


def read_requests(archives: Path) -> list[Request]:
    """Return the set, for source packages that are kept in a folder."""
    return [_request(row, each.project, archives) for each in _read_set() for row in each.request]


def _request(row: _Row, project: Project, archives: Path) -> Request:
    judged_by = Scripts(project.imported_from, row.check, project.keeps)
    return Request(row.id, row.text, archives / project.archive, row.patch, judged_by)


def _read_set() -> list[_File]:
    folder = files("vivace.eval.requests") / "set"
    found = sorted((each for each in folder.iterdir() if each.name.endswith(".toml")), key=lambda it: it.name)
    return [msgspec.convert(tomllib.loads(each.read_text("utf-8")), _File) for each in found]
