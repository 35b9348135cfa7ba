"""Real commits as pairs: those in which one unit of one file changed.

Owns reading mined rows (their format is in docs/edit-model.md), which unit a commit changed, and what its
subject says without prefixes and issue numbers. Does not mine, and does not judge whether a subject is good.
"""

import gzip
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from vivace.agent.edits.find.units import Unit
from vivace.errors import FileProblem
from vivace.training.data.pairs import Origin, Outlined, Pair, Split

FILES = ("commits-python.jsonl.gz", "commits-other.jsonl.gz")
MAX_LINES = 150  # of a unit
MAX_LINES_OF_CLASS = 80
_PREFIX = re.compile(
    r"^\s*(?::\w+:|\[[^\]]{1,30}\]"
    r"|(?:fix|feat|feature|chore|refactor|perf|enh|bug|bugfix|hotfix)(?:\([^)]*\))?!?:"
    r"|[A-Z]{2,10}-\d+:?|(?:bpo-|gh-?|issue\s*|pr\s*)?#?\d+\s*[:.-]|[^\w\s\"'`(<-]+)\s*",
    re.I,
)
_REFERENCE = re.compile(
    r"\s*[(\[]?(?:\b(?:see|refs?|fix(?:es|ed)?|close[sd]?|resolve[sd]?|re|issue|pr|pull request|ticket)\b"
    r"\s*:?\s*)?"
    r"(?<![\w&])(?:#|gh-)\d+\b[)\]]?\.?|\s*https?://\S+",
    re.I,
)
_MIN_WORDS = 3


class Hunk(msgspec.Struct, frozen=True):
    old_start: int  # from 1; without old lines: insert before this line
    old_lines: list[str]
    new_lines: list[str]


class ChangedFile(msgspec.Struct, frozen=True):
    path: str
    before: str
    hunks: list[Hunk]


class Commit(msgspec.Struct, frozen=True):
    repo: str
    licence: str
    commit: str
    subject: str
    files: list[ChangedFile]
    split: Split
    language: str

    @property
    def origin(self) -> Origin:
        """Return its first file as it was."""
        file = self.files[0]
        return Origin(self.repo, self.licence, self.commit, self.split, file.path, file.before)


def read_commits(folder: Path) -> Iterator[Commit]:
    """Yield the rows of all files of mined commits in a folder."""
    found = [folder / name for name in FILES if (folder / name).exists()]
    if not found:
        raise FileProblem(f"No mined commits are in {folder}.", f"It should have {' or '.join(FILES)}.")
    decoder = msgspec.json.Decoder(Commit)
    for path in found:
        try:
            with gzip.open(path, "rb") as file:
                for line in file:
                    yield decoder.decode(line)
        except (OSError, EOFError, msgspec.MsgspecError) as error:
            raise FileProblem(f"{path} cannot be read: {error}.", "Mine it again.") from error


def pair_of(commit: Commit) -> Pair | str:
    """Return the commit as a pair, or why it cannot be one."""
    if len(commit.files) != 1:
        return "several files"
    (changed,) = commit.files
    instruction = instruction_of(commit.subject)
    if not instruction:
        return "subject says nothing"
    file = Outlined(changed.path, changed.before)
    unit = changed_unit(file.units, changed.hunks)
    if unit is None:
        return "not within one unit"
    after = _after(file.source.lines, unit, changed.hunks)
    if not file.can_begin(unit, instruction, after):
        return "changes what the loop writes itself"  # decorators, comments above, the name
    return Pair(
        commit.repo,
        commit.licence,
        commit.commit,
        commit.split,
        "commit",
        changed.path,
        changed.before,
        unit.qualified_name,
        unit.first_line,
        unit.last_line,
        instruction,
        after,
    )


def instruction_of(subject: str) -> str:
    """Return the subject as a request: no prefixes, no issue numbers. Empty if too little is left."""
    text = _REFERENCE.sub("", subject).strip()
    while found := _PREFIX.match(text):
        text = text[found.end() :]
    text = text.strip().rstrip(".:;,").strip()
    return text if len(text.split()) >= _MIN_WORDS else ""


def changed_unit(units: Sequence[Unit], hunks: Sequence[Hunk]) -> Unit | None:
    """Return the smallest unit that holds all hunks, if it is short enough to be rewritten."""
    around = [unit for unit in units if all(_holds(unit, hunk) for hunk in hunks)]
    unit = min(around, key=lambda each: each.last_line - each.first_line, default=None)
    if unit is None:
        return None
    most = MAX_LINES_OF_CLASS if unit.kind in ("class", "type") else MAX_LINES
    return unit if 2 <= unit.last_line - unit.first_line + 1 <= most else None


def _holds(unit: Unit, hunk: Hunk) -> bool:
    if not hunk.old_lines:  # between two lines of the unit, or below its last: only what is inside is its own
        return unit.first_line < hunk.old_start <= unit.last_line
    return unit.first_line <= hunk.old_start and hunk.old_start + len(hunk.old_lines) - 1 <= unit.last_line


def _after(lines: Sequence[str], unit: Unit, hunks: Sequence[Hunk]) -> str:
    new, shift = list(lines), 0
    for hunk in sorted(hunks, key=lambda each: each.old_start):
        start = hunk.old_start - 1 + shift
        new[start : start + len(hunk.old_lines)] = hunk.new_lines
        shift += len(hunk.new_lines) - len(hunk.old_lines)
    return "".join(f"{line}\n" for line in new[unit.first_line - 1 : unit.last_line + shift])
