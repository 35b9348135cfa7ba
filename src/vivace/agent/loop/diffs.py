"""A change of a file as a unified diff.

Owns its look only: that of Git, with /dev/null for a file that is new or gone.
"""

import difflib
import os
from pathlib import Path

from vivace.agent.edits.apply.journal import Change


def unified_diff(change: Change, root: Path) -> tuple[str, str]:
    """Return the file's path as a person names it, and the diff."""
    path = os.path.relpath(change.source.target, os.path.realpath(root))
    path = str(change.source.target) if path.startswith("..") else path
    old = (change.old_bytes or b"").decode("utf-8", "replace").splitlines(keepends=True)
    new = (change.new_bytes or b"").decode("utf-8", "replace").splitlines(keepends=True)
    old_name = "/dev/null" if change.old_bytes is None else f"a/{path}"
    new_name = "/dev/null" if change.new_bytes is None else f"b/{path}"
    lines = difflib.unified_diff(old, new, old_name, new_name)
    return path, "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )
