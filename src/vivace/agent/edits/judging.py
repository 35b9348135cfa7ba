"""What a usable proposal would newly break, in sentences: names, calls, attributes and imports.

Owns which findings count for one answer among several, and which for a whole edit. Does not find them
(`check.faults`) or decide what becomes of a proposal that has some (`rewriting`, `flow`).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from vivace.agent.edits.apply.files import DISK, Files
from vivace.agent.edits.apply.source import SourceFile
from vivace.agent.edits.check.faults.checker import Checker
from vivace.agent.edits.check.faults.finding import Finding
from vivace.agent.edits.check.faults.tools import Tools
from vivace.agent.edits.check.verify import asks_for_less, mentions
from vivace.agent.edits.find.languages import PYTHON, language_for
from vivace.agent.edits.find.units import Unit
from vivace.agent.edits.proposal import FileProposal
from vivace.agent.edits.repair.imports.python_names import undefined_in_words
from vivace.agent.edits.repair.imports.step import importable

MAX_FAULTS = 4  # that are told


class Judge:
    """Looks at any number of answers for one file, and at the old text once."""

    def __init__(self, source: SourceFile, files: Files = DISK) -> None:
        self._source = source
        self._is_python = language_for(source.path) is PYTHON
        self._checker = Checker({source.path: source.text} if self._is_python else {}, files)
        self._tools = Tools([source])

    async def judged(self, proposal: FileProposal) -> FileProposal:
        """Return the proposal with its faults, if it can be used. Imports that are known will be added."""
        if not self._is_python or not proposal.hunks or proposal.problems:
            return proposal
        return replace(proposal, faults=tuple(await asyncio.to_thread(self._faults, proposal)))

    def _faults(self, proposal: FileProposal) -> list[str]:
        path, text = self._source.path, _text(proposal)
        undefined = self._checker.undefined(path, text)
        unknown = [name for name in undefined if not importable(self._source, text, name)]
        after = {path: text}
        own = [each for each in self._checker.in_files(after) if not _is_left_to_plan(each, proposal.unit)]
        found = own + _unasked(self._checker.in_users(after), proposal.instruction)
        return _told(unknown, path.name, found) or self._tools.faults(after, but=undefined)


async def with_faults(proposals: Sequence[FileProposal], files: Files) -> tuple[FileProposal, ...]:
    """Return all files of an edit with their faults, each seen with the others' new texts."""
    return tuple(await asyncio.to_thread(_all_judged, proposals, files))


def _all_judged(proposals: Sequence[FileProposal], files: Files) -> list[FileProposal]:
    usable = [each for each in proposals if each.changes_bytes and not each.problems and not each.is_removed]
    python = [each for each in usable if language_for(each.source.path) is PYTHON]
    if not python:
        return list(proposals)
    checker = Checker({each.source.path: each.source.text for each in python}, files)
    after = {each.source.path: _text(each) for each in python}
    found = checker.in_files(after) + _unasked(checker.in_users(after), python[0].instruction)
    undefined = {each.source.path: checker.undefined(each.source.path, _text(each)) for each in python}
    told = [said for path, names in undefined.items() for said in _told(names, path.name, [])]
    told = [*told, *_told([], "", found)] or Tools([each.source for each in python]).faults(after)
    return [replace(each, faults=tuple(told)) if each is python[0] else each for each in proposals]


def _text(proposal: FileProposal) -> str:
    return proposal.source.with_bytes(proposal.new_bytes).text


def _told(undefined: Sequence[str], file_name: str, findings: Sequence[Finding]) -> list[str]:
    names = [f"{undefined_in_words(undefined)} in {file_name}."] if undefined else []
    return [*names, *dict.fromkeys(each.said for each in findings)][:MAX_FAULTS]


def _is_left_to_plan(finding: Finding, unit: Unit) -> bool:
    """Return whether it is a caller of the unit, in the same file: those are rewritten after it."""
    names = {unit.name, (unit.parent or "").rpartition(".")[2]}
    return finding.about in names and not f"{finding.where}.".startswith(f"{unit.qualified_name}.")


def _unasked(findings: Sequence[Finding], instruction: str) -> list[Finding]:
    """Leave out what a removal or a new name, that was asked for, must break in other files."""
    is_asked = asks_for_less(instruction)
    return [each for each in findings if not (is_asked and each.about and mentions(instruction, each.about))]
