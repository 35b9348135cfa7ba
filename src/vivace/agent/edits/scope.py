"""What an edit is about, as far as it is known without a model: the file, its units, what the user named.

Owns reading that, and saying what is wrong with it before a model is woken. Does not choose (`plan`).
"""

import re
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from vivace.agent.edits.apply.files import DISK, Files
from vivace.agent.edits.apply.source import SourceFile, check_writable, new_source
from vivace.agent.edits.find.evidence import may_add
from vivace.agent.edits.find.languages import Language, language_for
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.target import Lines, Target
from vivace.agent.edits.find.units import Unit, find_unit, lines_unit, new_file_unit
from vivace.errors import UsageError

_MAKES_FILE = re.compile(
    r"\bnew (?:file|module|script|page|test)\b"
    r"|\b(?:create|write|make|generate|start)\b[^.]{0,30}\b(?:file|module|script|program|page|tests?)\b",
    re.I,
)


@dataclass(frozen=True)
class EditScope:
    """What an edit is about, as far as it is known without a model."""

    source: SourceFile
    language: Language | None
    units: list[Unit]
    unit: Unit | None  # None: the model shall choose
    files: Files = DISK  # where other files of the edit are read, and by whom it is written
    is_found: bool = False  # nobody named the file: where the unit is not clear either, the user is asked
    favoured: tuple[str, ...] = ()  # units that a long text's words speak for most: another is not clear


def read_scope(target: Target, *, to_write: bool, instruction: str = "", files: Files = DISK) -> EditScope:
    """Read the file and find what the user named in it, or raise what is wrong with either.

    A file that is not there is a new one, if the instruction asks for something new.
    """
    if target.selector is None and _is_to_be_made(target.path, instruction, files):
        source = new_source(target.path)
        return EditScope(source, language_for(target.path), [], new_file_unit(source), files)
    source = files.read(target.path)
    if to_write and not files.is_written_by_face:
        check_writable(source)
    language = language_for(target.path)
    units = list_units(source, language)
    return EditScope(source, language, units, named_unit(source, units, target), files)


def _is_to_be_made(path: Path, instruction: str, files: Files) -> bool:
    """Return whether a path is a file to make, rather than a slip of the pen for one that is there."""
    try:
        if files.exists(path) or not path.parent.is_dir() or not may_add(instruction):
            return False
        names = [each.name for each in path.parent.iterdir() if each.suffix == path.suffix]
    except (OSError, ValueError):
        return False
    is_near = bool(get_close_matches(path.name, names, n=1, cutoff=0.8))
    return not is_near or asks_for_file(instruction)


def asks_for_file(instruction: str) -> bool:
    """Return whether a new file is asked for, in so many words."""
    return _MAKES_FILE.search(instruction) is not None


def checked_instruction(instruction: str) -> str:
    if not instruction.strip():
        raise UsageError("The instruction is empty.", 'Say what to change: vivace edit PATH "INSTRUCTION".')
    return instruction.strip()


def named_unit(source: SourceFile, units: list[Unit], target: Target) -> Unit | None:
    """Return the unit that the user named, if any."""
    match target.selector:
        case None:
            return None
        case Lines(first=first, last=last):
            return lines_unit(source, first, last)
        case name:
            return find_unit(units, name)
