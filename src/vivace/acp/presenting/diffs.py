"""Changes of files as the protocol shows them: a path, the old text and the new one.

Owns how proposals, growing units and unified diffs become that. Pure.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from acp.schema import FileEditToolCallContent

from vivace.agent.edits.proposal import FileProposal, Proposal
from vivace.agent.edits.write.live_diff import Row

MAX_WHOLE_CHARS = 200_000  # of a file that is shown whole, so that the editor can find each hunk in it
_HUNK = re.compile(r"@@ -\d+(?:,(?P<old>\d+))? \+\d+(?:,(?P<new>\d+))? @@")


def diff_content(path: Path | str, old: str | None, new: str) -> FileEditToolCallContent:
    return FileEditToolCallContent(type="diff", path=str(path), old_text=old, new_text=new)


def proposal_contents(proposal: Proposal) -> list[FileEditToolCallContent]:
    """Return what a proposal changes: whole files, or hunks of those that are too long."""
    return [content for file in proposal.changed or proposal.files for content in _file_contents(file)]


def _file_contents(file: FileProposal) -> Iterator[FileEditToolCallContent]:
    path, old = file.source.path.absolute(), file.source.text
    new = file.source.with_bytes(file.new_bytes).text
    if len(old) + len(new) <= MAX_WHOLE_CHARS:
        yield diff_content(path, old if file.source.exists else None, new)
        return
    for hunk in file.hunks:
        yield rows_content(path, hunk.rows)


def rows_content(path: Path | str, rows: Sequence[Row]) -> FileEditToolCallContent:
    """Return the rows of a diff as its two texts."""
    old = "".join(f"{row.text}\n" for row in rows if row.tag in " -")
    new = "".join(f"{row.text}\n" for row in rows if row.tag in " +")
    return diff_content(path, old, new)


def unified_contents(diff: str, folder: Path) -> list[FileEditToolCallContent]:
    """Return the hunks of a unified diff of one or several files. What is no diff is passed over.

    Lines are counted as a hunk's header says: one that looks like a file's header may be a change.
    """
    contents, path, rows = [], folder, list[Row]()
    old_left = new_left = 0
    for line in diff.splitlines():
        if old_left > 0 or new_left > 0:
            tag = line[:1] or " "
            rows.append(Row(tag, line[1:]))
            old_left, new_left = old_left - (tag in " -"), new_left - (tag in " +")
            if old_left <= 0 and new_left <= 0:
                contents.append(rows_content(path, rows))
        elif line.startswith("--- ") or (line.startswith("+++ ") and _plain(line[4:]) != "/dev/null"):
            path = folder / _plain(line[4:])
        elif found := _HUNK.match(line):
            rows, old_left, new_left = [], int(found["old"] or 1), int(found["new"] or 1)
    return contents


def _plain(name: str) -> str:
    """Return a file's name without what diff and git put around it."""
    name = name.partition("\t")[0].strip()
    return name[2:] if name.startswith(("a/", "b/")) else name
