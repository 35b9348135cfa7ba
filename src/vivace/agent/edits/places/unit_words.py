"""The words of each unit of a file, by where they stand, and what it calls.

Owns reading one file for the ranking, again only when it has changed. Does not weigh anything (`ranking`).
"""

import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from vivace.agent.edits.apply.source import SourceFile, read_source
from vivace.agent.edits.find.languages import language_for
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.units import Unit
from vivace.agent.edits.places.splitting import word_counts

MAX_FILES = 512  # whose words are kept
_CALL = re.compile(r"(?<!\w)([^\W\d]\w*+)\(")
_DOC = re.compile(r"\"\"\"(.*?)(?:\"\"\"|\Z)|'''(.*?)(?:'''|\Z)|/\*\*(.*?)(?:\*/|\Z)", re.S)
_COMMENT = re.compile(r"(?m)(?:^|\s)(?:#|//)(.*)$")
_STRING = re.compile(r"\"([^\"\n]*)\"|'([^'\n]*)'|`([^`]*)`")


@dataclass(frozen=True, eq=False)
class UnitWords:
    """A unit, and its own words: those of units inside it are theirs."""

    unit: Unit
    text: str
    name: frozenset[str]
    parent: frozenset[str]
    signature: Counter[str]
    doc: Counter[str]
    strings: Counter[str]
    body: Counter[str]
    calls: frozenset[str]
    total: int  # words


def units_of_file(path: Path) -> tuple[UnitWords, ...]:
    """Return the units of a file with their words. Raise FileProblem or OSError if it cannot be read."""
    state = path.stat()
    return _read(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=MAX_FILES)
def _read(path: Path, mtime_ns: int, size_bytes: int) -> tuple[UnitWords, ...]:
    del mtime_ns, size_bytes
    source = read_source(path)
    return words_of_units(source, list_units(source, language_for(path)))


def words_of_units(source: SourceFile, units: list[Unit]) -> tuple[UnitWords, ...]:
    """Return the words of each unit, in the order given."""
    pairs = zip(units, _own_texts(source, units), strict=True)
    return tuple(_unit_words(unit, text) for unit, text in pairs)


def _unit_words(unit: Unit, text: str) -> UnitWords:
    docs = " ".join(part for groups in _DOC.findall(text) for part in groups)
    rest = _DOC.sub(" ", text)
    comments = " ".join(_COMMENT.findall(rest))
    strings = " ".join(part for groups in _STRING.findall(rest) for part in groups)
    body = word_counts(_STRING.sub(" ", rest))
    doc = word_counts(f"{docs} {comments}")
    return UnitWords(
        unit=unit,
        text=text,
        name=frozenset(word_counts(unit.name)),
        parent=frozenset(word_counts(unit.parent or "")),
        signature=word_counts(unit.signature),
        doc=doc,
        strings=word_counts(strings),
        body=body,
        calls=frozenset(_CALL.findall(rest)) - {unit.name},
        total=sum(body.values()) + sum(doc.values()),
    )


def _own_texts(source: SourceFile, units: list[Unit]) -> list[str]:
    """Return each unit's text without the units inside it: a class does not get its methods' words."""
    owner: dict[int, int] = {}
    for index, unit in enumerate(units):  # file order: what is inside comes later and wins
        owner.update(dict.fromkeys(range(unit.first_line, unit.last_line + 1), index))
    texts: list[list[str]] = [[] for _ in units]
    for line, index in owner.items():
        texts[index].append(source.lines[line - 1])
    return ["\n".join(lines) for lines in texts]
