"""A pair: one request of the edit loop, and the text that its unit should become.

Owns the pair and how it is written: the prompt, the opening and the fence are the edit loop's own
(`agent.edits.write.rewrite`), so that training sees what the product asks. Does not own where pairs come from
(`commits`, `mutations`) nor their tokens (`prepare`).
"""

import hashlib
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

import msgspec

from vivace.agent.edits.apply.source import SourceFile, source_from_bytes
from vivace.agent.edits.find.languages import Language, language_for
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.units import Unit
from vivace.agent.edits.write.rewrite import Rewrite, opening_for, rewrite_request

Split = Literal["train", "dev"]
Kind = Literal["commit", "mutation", "edit", "open"]


class Origin(NamedTuple):
    """A file of somebody's project, from which pairs are made."""

    repo: str
    licence: str
    name: str  # the commit, or the release
    split: Split  # of the whole project
    path: str
    text: str
    said: str = ""  # the docstring that was taken out of the text


class Pair(msgspec.Struct, frozen=True):
    """One unit of one file before and after, with the instruction between them."""

    repo: str
    licence: str
    origin: str  # the commit, or the release
    split: Split  # of the whole project
    kind: Kind
    path: str
    file: str  # the whole text before
    unit: str  # its qualified name
    first_line: int
    last_line: int
    instruction: str
    after: str  # the unit's text, closed by "\n"

    @property
    def name(self) -> str:
        """Return what it is from; unlike any other pair's."""
        told = f"{self.repo}@{self.origin[:12]} {self.unit}"
        if self.kind == "commit":
            return told
        text = f"{self.path} {self.instruction} {self.before}".encode()
        return f"{told} {self.kind} {hashlib.blake2b(text, digest_size=4).hexdigest()}"

    @property
    def before(self) -> str:
        return "".join(f"{line}\n" for line in self.file.split("\n")[self.first_line - 1 : self.last_line])


class Outlined:
    """A file as the edit loop sees it: its lines, its language, its units."""

    def __init__(self, path: str, text: str) -> None:
        name = Path(PurePosixPath(path).name)  # all of the path that a prompt shows
        self.source: SourceFile = source_from_bytes(name, text.encode("utf-8", "replace"))
        self.language: Language | None = language_for(name)
        self.units: list[Unit] = list_units(self.source, self.language)

    def unit_of(self, pair: Pair) -> Unit:
        lines = (pair.first_line, pair.last_line)
        return next(unit for unit in self.units if (unit.first_line, unit.last_line) == lines)

    def can_begin(self, unit: Unit, instruction: str, after: str) -> bool:
        """Return whether the new text begins with what the edit loop writes itself."""
        opening = opening_for(self.source, unit, instruction)
        return after.startswith(opening) and after != opening


def write_pair(pair: Pair) -> tuple[Rewrite, str]:
    """Return the request, and the answer behind its opening, up to and with the closing fence."""
    file = Outlined(pair.path, pair.file)
    request = rewrite_request(file.source, file.units, file.unit_of(pair), pair.instruction)
    assert pair.after.startswith(request.opening), pair.unit
    return request, pair.after.removeprefix(request.opening) + request.fence
