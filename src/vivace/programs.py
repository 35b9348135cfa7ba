"""Where a program of this machine is: by PATH, and never in the folder that is worked on.

Owns that search. A model, or whoever made a repository, may write a file `git` or `rg` there, and an entry
of PATH may lead to it: `.`, an environment of Python's, `node_modules/.bin`. What is named by its path is not
looked for. Does not start anything.
"""

import contextlib
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path


def find_program(name: str, *folders: Path, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the path of a program outside of these folders and the current one, or None."""
    places = _places(folders)
    for entry in _entries(environ, places):
        found = shutil.which(name, path=entry)
        if found and not _is_inside(found, places):
            return found
    return None


def safe_path(*folders: Path, environ: Mapping[str, str] = os.environ) -> str:
    """Return PATH for a child that looks for programs itself, without the entries that do not count."""
    return os.pathsep.join(_entries(environ, _places(folders)))


def _places(folders: Iterable[Path]) -> list[str]:
    """Return the folders in which no program counts.

    One that holds the user's home is none of them: the user's own programs are there, or the whole system is.
    """
    with contextlib.suppress(FileNotFoundError):  # the current folder is gone
        folders = (*folders, Path.cwd())
    home = f"{os.path.realpath(Path.home())}/"
    return [place for place in map(os.path.realpath, folders) if not home.startswith(f"{place.rstrip('/')}/")]


def _entries(environ: Mapping[str, str], places: list[str]) -> list[str]:
    """Return the entries of PATH that count. A relative one means another folder for each process."""
    entries = (environ.get("PATH") or os.defpath).split(os.pathsep)
    return [entry for entry in entries if Path(entry).is_absolute() and not _is_inside(entry, places)]


def _is_inside(path: str, places: list[str]) -> bool:
    """Return whether a path, or what it leads to, is in one of the folders."""
    spellings = (os.path.normpath(path), os.path.realpath(path))
    return any(f"{each}/".startswith(f"{place}/") for each in spellings for place in places)
