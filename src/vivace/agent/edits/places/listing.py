"""The files of a folder that may be changed: what Git knows or would, or else all that is not hidden.

Owns the listing. Does not own which of them are meant (`ranking`).
"""

from pathlib import Path

from vivace.agent.edits.find.languages import has_language
from vivace.agent.git import git_files

MAX_FILES = 100_000  # of a larger repository only those near the top
LISTING_S = 10.0  # for Git to list them
SKIPPED = {"node_modules", "__pycache__", "venv", "build", "dist", "target", "vendor"}


def list_paths(folder: Path) -> list[str]:
    """Return the source files below the folder, relative to it, those near the top first."""
    return [path for path in all_paths(folder) if has_language(folder, path)]


def all_paths(folder: Path) -> list[str]:
    """Return all files below the folder, relative to it, those near the top first."""
    listed = git_files(folder, LISTING_S)
    paths = _walk(folder, folder) if listed is None else listed
    return sorted(paths, key=lambda path: (path.count("/"), path))[:MAX_FILES]


def _walk(folder: Path, root: Path) -> list[str]:
    found: list[str] = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name in SKIPPED or path.is_symlink():
            continue
        if path.is_dir():
            found += _walk(path, root) if len(found) < MAX_FILES else []
        elif path.is_file():
            found.append(str(path.relative_to(root)))
    return found
