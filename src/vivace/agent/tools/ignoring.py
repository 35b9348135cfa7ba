"""The files of a folder, without those that `.gitignore` leaves out.

Owns the lines of `.gitignore` and the walk. No Git is called: a repository that nobody has read could make it
run something. Links are not followed, nor any that appear while it walks (`agent.door`). Does not know
`.git/info/exclude`, nor rules above the folder. Does not own the patterns (`git_globs`).
"""

import math
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from vivace.agent.door import LISTABLE, READABLE, open_folder, open_inside
from vivace.agent.tools.git_globs import Matches, name_matcher, path_matcher

MAX_RULES_BYTES = 200_000
NEVER = frozenset({".git", ".hg", ".svn", ".jj"})
_FILE = ".gitignore"


@dataclass(frozen=True)
class Rule:
    matches: Matches  # a name, or a path relative to the folder of the rule
    is_path: bool
    is_kept: bool  # `!pattern`
    is_folder: bool  # `pattern/`


Rules = tuple[tuple[str, tuple[Rule, ...]], ...]  # by folder, the innermost first; a folder ends in "/"
_Entries = list[tuple[str, bool]]  # names, each with whether it is a folder


def walk(root: Path, start: str = "", most_s: float = math.inf) -> Iterator[tuple[str, bool]]:
    """Yield paths relative to the real path `root`, in order, each with whether it is a folder.

    Raise `TimeoutError` after `most_s` seconds: a slow disk, or more rules times files than anybody means.
    """
    until = time.monotonic() + most_s
    try:
        top = open_folder(root)
    except OSError:
        return
    try:
        rules: Rules = ()
        folder = ""
        for part in Path(start).parts:  # the rules of the folders above count, too
            rules = _with_rules_of(top, f"{folder}{_FILE}", folder, rules)
            folder += f"{part}/"
        for found in _walk(top, folder, rules):
            if time.monotonic() > until:
                raise TimeoutError
            if found:
                yield found
    finally:
        os.close(top)


def _walk(top: int, folder: str, rules: Rules) -> Iterator[tuple[str, bool] | None]:
    """Walk without recursion: folders may be nested deeper than Python's stack. None for what is ignored."""
    begun = [_opened(top, folder, rules)]
    while begun:
        folder, rules, entries = begun[-1]
        if not entries:
            begun.pop()
            continue
        name, is_folder = entries.pop()
        path = f"{folder}{name}"
        if name in NEVER or is_ignored(path, rules, is_folder=is_folder):
            yield None
            continue
        yield path, is_folder
        if is_folder:
            begun.append(_opened(top, f"{path}/", rules))


def _opened(top: int, folder: str, rules: Rules) -> tuple[str, Rules, _Entries]:
    """Return the folder with the rules that hold in it and its entries, the last one first."""
    try:
        opened = open_inside(top, folder.rstrip("/") or ".", LISTABLE)
    except OSError:
        return folder, rules, []
    try:
        with os.scandir(opened) as found:
            entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
        if any(name == _FILE for name, _ in entries):
            rules = _with_rules_of(opened, _FILE, folder, rules)
    except OSError:
        return folder, rules, []
    finally:
        os.close(opened)
    return folder, rules, sorted(entries, reverse=True)


def is_ignored(path: str, rules: Rules, *, is_folder: bool) -> bool:
    """Return whether the last rule that matches leaves the path out."""
    name = path.rpartition("/")[2]
    for folder, lines in rules:
        below = path[len(folder) :]
        for rule in lines:
            if (is_folder or not rule.is_folder) and rule.matches(below if rule.is_path else name):
                return not rule.is_kept
    return False


@lru_cache(maxsize=256)
def parse_rules(text: str) -> tuple[Rule, ...]:
    """Return the rules of a `.gitignore`, the last one first. A line that can match nothing is left out."""
    lines = text.removeprefix("\ufeff").split("\n")
    return tuple(rule for line in reversed(lines) if (rule := _rule(line)))


def _with_rules_of(opened: int, file: str, folder: str, rules: Rules) -> Rules:
    """Return the rules with those of a folder, whose file is named from an opened folder on."""
    text = _text_of(opened, file)
    return ((folder, parse_rules(text)), *rules) if text else rules


def _text_of(opened: int, file: str) -> str:
    """Return the text of a plain file, and "" for anything else. A pipe is not waited for."""
    try:
        with os.fdopen(open_inside(opened, file, READABLE), "rb") as lines:
            is_plain = stat.S_ISREG(os.fstat(lines.fileno()).st_mode)
            return lines.read(MAX_RULES_BYTES).decode("utf-8", "replace") if is_plain else ""
    except OSError:
        return ""


def _rule(line: str) -> Rule | None:
    if line.startswith("#"):
        return None
    line = _without_trailing_blanks(line.removesuffix("\r"))
    is_kept = line.startswith("!")
    line = line[1:] if is_kept else line
    is_folder = line.endswith("/")
    line = line[:-1] if is_folder else line
    is_path = "/" in line
    line = line.removeprefix("/")
    if not line:
        return None
    matches = path_matcher(line) if is_path else name_matcher(line)
    return Rule(matches, is_path, is_kept, is_folder) if matches else None


def _without_trailing_blanks(line: str) -> str:
    """Return the line without blanks at its end; one behind a backslash stays."""
    bare = line.rstrip(" ")
    backslashes = len(bare) - len(bare.rstrip("\\"))
    return bare + " " if backslashes % 2 and bare != line else bare
