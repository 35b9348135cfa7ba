"""Which places of a tree a patch changes: files, and the units in them.

Owns reading a unified diff for that. Where a patch only adds between units, the ones above and below and the
class around are right. Does not own finding a place (`agent.edits.places`).
"""

import re
from collections.abc import Mapping, Sequence
from difflib import unified_diff
from pathlib import Path

from vivace.agent.edits.apply.source import read_source
from vivace.agent.edits.find.languages import language_for
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.units import Unit

_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+")


def right_places(folder: Path, patch: str) -> dict[str, set[str]]:
    """Return the units that a patch changes, by file. `folder` has the tree before."""
    places = {}
    for name, lines in changed_lines(patch).items():
        if language_for(folder / name) is None or not (folder / name).is_file():
            continue
        source = read_source(folder / name)
        places[name] = right_units(list_units(source, language_for(source.path)), lines)
    return places


def changed_lines(patch: str) -> dict[str, list[tuple[int, bool]]]:
    """Return by file the old lines that a patch removes, and True with those above which it adds."""
    found: dict[str, list[tuple[int, bool]]] = {}
    lines: list[tuple[int, bool]] = []
    at = 0
    for row in patch.splitlines():
        if row.startswith("--- "):
            lines = []
            if row != "--- /dev/null":
                found[row.removeprefix("--- a/")] = lines
        elif hunk := _HUNK.match(row):
            at = int(hunk[1])
        elif row.startswith("-"):
            lines.append((at, False))
            at += 1
        elif row.startswith("+") and not row.startswith("+++"):
            lines.append((at, True))
        elif row.startswith(" ") or not row:
            at += 1
    return found


def right_units(units: Sequence[Unit], lines: Sequence[tuple[int, bool]]) -> set[str]:
    """Return the names of the units that these lines are in, or else those around what is added."""
    inside, beside = set(), set()
    for line, is_added in lines:
        around = [
            each for each in units if each.first_line + (1 if is_added else 0) <= line <= each.last_line
        ]
        smallest = min(around, key=lambda each: each.last_line - each.first_line, default=None)
        if smallest and smallest.kind != "class":
            inside.add(smallest.qualified_name)
            continue
        above = [each for each in units if each.last_line < line and each.kind != "class"]
        below = [each for each in units if each.first_line >= line and each.kind != "class"]
        beside |= {each.qualified_name for each in [*above[-1:], *below[:1], *around]}
    return inside or beside


def patch_of(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Return a unified diff of the files in `after`, without context."""
    rows: list[str] = []
    for name, text in after.items():
        old = before.get(name, "").splitlines()
        rows += unified_diff(old, text.splitlines(), f"a/{name}", f"b/{name}", n=0, lineterm="")
    return "\n".join(rows)
