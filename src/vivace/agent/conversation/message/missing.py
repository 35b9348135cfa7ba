"""A mention that names nothing: whether a path was meant by it, and what is said of it then.

Owns telling a path from what is only written like one: `@dataclass`, `@scope/package`, what stands in quotes
or in code. Does not own how mentions are found and read (`mentions`).
"""

import os
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from vivace.agent.conversation.message.mentions import (
    Mention,
    all_mentions,
    is_file,
    mentions_in,
    target_of,
)
from vivace.agent.conversation.message.more_files import CODE_SUFFIXES, TEXT_SUFFIXES
from vivace.agent.conversation.message.repository import MAX_BYTES
from vivace.agent.edits.apply.files import DISK, Files
from vivace.agent.edits.find.languages import LANGUAGES, language_for
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.places.listing import all_paths
from vivace.agent.edits.scope import named_unit
from vivace.errors import FileProblem, UnitNotFound, UsageError

MAX_NEAR = 3
MAX_KNOWN = 2000  # paths of the folder that a name is compared with
_SUFFIXES = CODE_SUFFIXES | TEXT_SUFFIXES | {".log", ".env", ".lock", ".patch", ".diff", ".ipynb", ".tf"}
_FILENAMES = {name for language in LANGUAGES for name in language.filenames} | {"Makefile", "Dockerfile"}
_CODE_OR_QUOTED = re.compile(
    r"(`{3,}|~{3,})[\s\S]*?(?:\1|\Z)"  # a block
    r"|(`{1,2})[^`\n]+?\2(?!`)"
    r'|(?<!@)"[^"\n]*"'
)
_PART_OF_MORE = set("/\\.-=+#$%&'\"“‘«„")  # an @ right behind one of these begins no mention
_PACKAGE = re.compile(r"[a-z0-9~][\w.~-]*(?:/[\w.~-]+)+")
_OF_JAVASCRIPT = ("package.json", "tsconfig.json", "jsconfig.json", "deno.json", "node_modules")
_TO_MAKE = re.compile(  # what follows is a file to make
    r"(?:\b(?:create|write|generate|make|add)\s+(?:(?:an?|the)\s+)?(?:new\s+)?"
    r"(?:(?:file|module|script|page|test|folder)\s+)?(?:(?:called|named|at|as)\s+)?"
    r"|\bnew\s+(?:file|module|script|page|test)\s+(?:(?:called|named|at|as|in)\s+)?"
    r"|\b(?:save|write|store|copy|move|rename|extract|split|export|convert)\b[^\n]{0,120}\b(?:to|into|as|and)\s+)$",
    re.I,
)


def check_mentions(text: str, folder: Path, files: Files = DISK) -> None:
    """Raise FileProblem or UnitNotFound if a mention means a file or a unit that is not there.

    A file that the message wants to be made may be missing.
    """
    for name in mentions_in(text, folder, files):
        _check_unit(name, folder, files)
    for mention in missing_mentions(text, folder, files):
        if not _is_to_be_made(mention, text, folder):
            raise _problem(mention, folder)


def check_all_made(text: str, folder: Path, made: Sequence[Path], files: Files = DISK) -> None:
    """Raise FileProblem if the message wants a file to be made that is not among these."""
    for mention in missing_mentions(text, folder, files):
        is_made = folder / _split(mention.name).path in made
        if not is_made and _is_to_be_made(mention, text, folder):
            raise _problem(mention, folder)


def missing_mentions(text: str, folder: Path, files: Files = DISK) -> Iterator[Mention]:
    """Yield the mentions that mean a path at which nothing is, each name once."""
    aside = [found.span() for found in _CODE_OR_QUOTED.finditer(text)]
    seen: set[str] = set()
    for mention in all_mentions(text, folder, files):
        before = bisect_right(aside, (mention.at, len(text))) - 1
        is_aside = before >= 0 and mention.at < aside[before][1]
        is_part = mention.at > 0 and text[mention.at - 1] in _PART_OF_MORE
        if mention.name in seen or is_aside or is_part:
            continue
        seen.add(mention.name)
        if not is_file(mention.name, folder, files) and _means_path(mention, folder):
            yield mention


@dataclass(frozen=True)
class _Named:
    path: str
    selector: str

    @property
    def has_known_name(self) -> bool:
        path = Path(self.path)
        return path.suffix.lower() in _SUFFIXES or path.name in _FILENAMES


def _split(name: str) -> _Named:
    path, _, selector = name.partition(":")
    return _Named(path, selector)


def _means_path(mention: Mention, folder: Path) -> bool:
    """Return whether a path was meant: it has a slash, a known ending or a unit, and nothing is there."""
    named = _split(mention.name)
    if "://" in mention.name or "\0" in mention.name or not re.search(r"\w", named.path):
        return False
    if not (named.has_known_name or "/" in named.path or re.match(r"\w", named.selector)):
        return False
    if _is_folder(named, folder):
        return bool(named.selector)
    return not _is_package(named, folder)


def _is_folder(named: _Named, folder: Path) -> bool:
    try:
        return target_of(named.path, folder).path.is_dir()
    except (UsageError, OSError, ValueError):
        return False


def _is_package(named: _Named, folder: Path) -> bool:
    """Return whether it is a name as JavaScript has them: `@scope/package`, `@/alias/of/a/module`.

    `@team/people` is written like a package, and is no path either. A first folder that is here, or nearly,
    makes it a path.
    """
    path, is_javascript = named.path, any((folder / name).exists() for name in _OF_JAVASCRIPT)
    if path.startswith("/"):
        has_root = Path("/" + path.strip("/").partition("/")[0]).exists()
        places = (folder / path.lstrip("/"), folder / "src" / path.lstrip("/"))
        is_alias = not named.has_known_name or any(place.exists() for place in places)
        return is_javascript and not has_root and is_alias
    if named.selector or not _PACKAGE.fullmatch(path):
        return False
    first = path.partition("/")[0]
    if _is_near_folder(first, folder):
        return False
    if path.count("/") == 1 and not named.has_known_name:
        return True
    return is_javascript and (not named.has_known_name or _uses_scope(first, folder))


def _is_near_folder(name: str, folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            folders = [entry.name for entry in entries if entry.is_dir()]
    except OSError:
        return False
    has_its_letters = any(sorted(each) == sorted(name) for each in folders)
    return has_its_letters or bool(get_close_matches(name, folders, n=1, cutoff=0.85))


def _uses_scope(scope: str, folder: Path) -> bool:
    if (folder / "node_modules" / f"@{scope}").is_dir():
        return True
    file = folder / "package.json"
    with suppress(OSError):
        if file.is_file() and file.stat().st_size < MAX_BYTES:  # no pipe, and nothing that takes long
            return f'"@{scope}/' in file.read_text("utf-8", "replace")
    return False


def _is_to_be_made(mention: Mention, text: str, folder: Path) -> bool:
    """Return whether the message wants this file made. A name near one that is there is a slip of the pen."""
    before = text[: mention.at]
    if _split(mention.name).selector or not _TO_MAKE.search(before[-200:]):
        return False
    is_said = re.search(r"\b(?:create|generate|new)\b[^\n]{0,40}$", before, re.I) is not None
    return is_said or not _near(mention.name, folder, cutoff=0.8)


def _check_unit(name: str, folder: Path, files: Files) -> None:
    target = target_of(name, folder)
    if target.selector is None:
        return
    source = files.read(target.path)
    try:
        named_unit(source, list_units(source, language_for(target.path)), target)
    except UnitNotFound as error:
        raise UnitNotFound(f"@{name} names nothing: {error.message}", error.hint) from error


def _problem(mention: Mention, folder: Path) -> FileProblem:
    name, named = mention.name, _split(mention.name)
    if _is_folder(named, folder):
        return FileProblem(f"@{name} names a unit, and {named.path} is a folder.", "Name a file in it.")
    what = "folder" if named.path.endswith("/") else "file"
    near = " or ".join(_written(each) for each in _near(name, folder))
    hint = f"Did you mean {near}? " if near else "Check the name. "
    aside = f"What is no {what} is written in backticks: `@{name}`."
    return FileProblem(f"There is no {what} {named.path}, which the message names: @{name}.", hint + aside)


def _written(path: str) -> str:
    return f'@"{path}"' if " " in path else f"@{path}"


def _near(name: str, folder: Path, cutoff: float = 0.6) -> list[str]:
    """Return paths like the one that was meant: by all of it, or by the file's own name."""
    wanted = _split(name).path.rstrip("/")
    known = list(dict.fromkeys(_known_paths(wanted, folder, are_folders=name.endswith("/"))))
    by_path = get_close_matches(wanted, known, n=MAX_NEAR, cutoff=cutoff)
    names: dict[str, list[str]] = {}
    for path in known:
        names.setdefault(path.rstrip("/").rpartition("/")[2], []).append(path)
    by_name = get_close_matches(wanted.rpartition("/")[2], list(names), n=MAX_NEAR, cutoff=cutoff)
    return list(dict.fromkeys([*by_path, *(path for each in by_name for path in names[each])]))[:MAX_NEAR]


def _known_paths(wanted: str, folder: Path, *, are_folders: bool) -> Iterator[str]:
    """Yield the paths of this folder, then what lies where the path leads."""
    parent = wanted.rpartition("/")[0]
    with suppress(UsageError, OSError, ValueError):
        paths = all_paths(folder)[:MAX_KNOWN]
        if are_folders:
            yield from (f"{each}/" for path in paths for each in Path(path).parents if each != Path())
            return
        yield from paths
    with suppress(UsageError, OSError, ValueError):
        place = target_of(parent or "/", folder).path if "/" in wanted else folder
        with os.scandir(place) as entries:
            yield from (f"{parent}/{each.name}" if "/" in wanted else each.name for each in entries)
