"""Files that an edit needs beside one: those to be made, those listed, and those that use a changed name.

Owns how they are found, by words and by the code. Does not own which file is chosen first (`repository`).
"""

import re
from pathlib import Path

from vivace.agent.conversation.message.repository import list_files
from vivace.agent.edits.find.evidence import may_add
from vivace.agent.edits.find.languages import LANGUAGES, language_for
from vivace.agent.edits.find.request import request_in
from vivace.agent.edits.places.clues import is_beside
from vivace.agent.edits.places.index import FileIndex
from vivace.agent.edits.places.listing import list_paths
from vivace.agent.edits.places.ranking import rank_places
from vivace.agent.edits.plan.uses import units_using
from vivace.agent.edits.plan.wording import Renaming, listed_units, renamings, spoken_units
from vivace.agent.edits.scope import EditScope, asks_for_file
from vivace.errors import FileProblem

MAX_FILES = 8  # that a renaming reaches beside the chosen one
_PATH = re.compile(r"(?<![\w@/.-])@?((?:[\w.-]+/)*[\w-]+(\.[a-z]{1,5}))\b(?!/)")
_JOINED = re.compile(r"\b\w+[`()]*(?:,| and| or) (?:[a-z]+ ){0,2}`?\w+", re.I)
CODE_SUFFIXES = {suffix for language in LANGUAGES for suffix in language.suffixes}
TEXT_SUFFIXES = {
    ".md",
    ".rst",
    ".txt",
    ".json",
    ".toml",
    ".yaml",
    ".yml",
    ".ini",
    ".cfg",
    ".conf",
    ".csv",
    ".tsv",
}
TEXT_SUFFIXES |= {".html", ".css", ".xml", ".svg", ".sql"}
_MADE = re.compile(  # what follows is a file to make
    r"(?:\b(?:create|write|generate|add|make)\s+(?:(?:an?|the)\s+)?(?:new\s+)?"
    r"|\b(?:file|module|script|page)\s+(?:(?:called|named)\s+)?)[`\"']?$",
    re.I,
)
_WRITTEN_INTO = re.compile(
    r"\b(?:in|into|to)\s+(?:(?:an?|the)\s+)?(?:new\s+)?(?:(?:file|module)\s+)?[`\"']?$", re.I
)


def paths_to_make(instruction: str, folder: Path) -> list[Path]:
    """Return the files that the instruction names, wants to be written, and that are not there.

    A name that is only spoken of ("reads settings.json") is none of them. Nor is a bare name that a file of
    the repository has, unless a new file is asked for: something is to be added to that one.
    """
    if not may_add(instruction):
        return []
    found = []
    makes_file = asks_for_file(instruction)
    for match in _PATH.finditer(instruction):
        path, before = folder / match[1], instruction[: match.start()]
        is_meant = _MADE.search(before) or (match[2] in CODE_SUFFIXES and _WRITTEN_INTO.search(before))
        is_file = match[2] in CODE_SUFFIXES | TEXT_SUFFIXES  # `Tasks.add` is a method
        if not (is_file and is_meant and path.parent.is_dir()) or path.exists():
            continue
        if "/" in match[1] or makes_file or not _has_name(folder, match[1]):
            found.append(path)
    return list(dict.fromkeys(found))


def _has_name(folder: Path, name: str) -> bool:
    """Return whether a source file of the folder, no test or example, has this name."""
    return any(path.rpartition("/")[2] == name and not is_beside(path) for path in list_paths(folder))


def files_listed(folder: Path, instruction: str, index: FileIndex | None = None) -> list[Path]:
    """Return the files of the functions that the instruction lists, if they are in several.

    Each name must be that of one function only, and look like code, or stand behind "both".
    """
    asked = request_in(instruction)
    if not _JOINED.search(asked) or renamings(asked):
        return []
    places = rank_places(folder, list_paths(folder), instruction, index).places
    paths = {id(place.unit): place.path for place in places}
    spoken = spoken_units(asked, [place.unit for place in places])
    is_said = re.search(r"\bboth\b", asked, re.I) is not None
    listed = listed_units(asked, [each for each in spoken if each.is_code or is_said])
    files = list(dict.fromkeys(folder / paths[id(unit)] for unit in listed if unit.kind != "lines"))
    return files if len(files) > 1 else []


def files_using(folder: Path, chosen: EditScope, instruction: str) -> list[Path]:
    """Return the other files of the folder that use what is renamed, if the chosen file defines it."""
    changed = [each for each in renamings(instruction) if _is_defined(each, chosen)]
    if not changed:
        return []
    found = []
    for listed in list_files(folder):
        path = folder / listed.path
        if path != chosen.source.path and any(_uses(path, chosen, each.old) for each in changed):
            found.append(path)
    return found[:MAX_FILES]


def _is_defined(renaming: Renaming, scope: EditScope) -> bool:
    return any(unit.name == renaming.old and not unit.parent for unit in scope.units)


def _uses(path: Path, chosen: EditScope, name: str) -> bool:
    """Return whether a file uses a name and speaks of the module that has it."""
    language = language_for(path)
    try:
        source = chosen.files.read(path)
    except FileProblem:
        return False
    is_near = name in source.text and chosen.source.path.stem in source.text
    return is_near and language is not None and bool(units_using(source, language, [], name))
