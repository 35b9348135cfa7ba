"""The files of a folder, without those that `.gitignore` leaves out.

Owns reading `.gitignore` and the walk. No Git is called: a repository that nobody has read could make it run
something. Links are not followed, not those either that come while it walks (`agent.door`). Does not
know `.git/info/exclude`, nor rules above the folder.
"""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vivace.agent.door import LISTABLE, READABLE, open_folder, open_inside

MAX_RULES_BYTES = 200_000
NEVER = frozenset({".git", ".hg", ".svn", ".jj"})


@dataclass(frozen=True)
class Rule:
    pattern: "re.Pattern[str]"  # of a path relative to the folder of the rule
    is_kept: bool  # `!pattern`
    is_folder: bool  # `pattern/`


Rules = tuple[tuple[str, tuple[Rule, ...]], ...]  # by folder, the outermost first; a folder ends in "/"


def walk(root: Path, start: str = "") -> Iterator[tuple[str, bool]]:
    """Yield paths relative to the real path `root`, in order, each with whether it is a folder."""
    try:
        top = open_folder(root)
    except OSError:
        return
    try:
        rules: Rules = ()
        folder = ""
        for part in Path(start).parts:  # the rules of the folders above count, too
            rules = _with_rules_of(top, f"{folder}.gitignore", folder, rules)
            folder += f"{part}/"
        yield from _walk(top, folder, rules)
    finally:
        os.close(top)


def _walk(top: int, folder: str, rules: Rules) -> Iterator[tuple[str, bool]]:
    try:
        opened = open_inside(top, folder.rstrip("/") or ".", LISTABLE)
    except OSError:
        return
    try:
        rules = _with_rules_of(opened, ".gitignore", folder, rules)
        with os.scandir(opened) as found:
            entries = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in found)
    except OSError:
        return
    finally:
        os.close(opened)
    for name, is_folder in entries:
        path = f"{folder}{name}"
        if name in NEVER or is_ignored(path, rules, is_folder=is_folder):
            continue
        yield path, is_folder
        if is_folder:
            yield from _walk(top, f"{path}/", rules)


def is_ignored(path: str, rules: Rules, *, is_folder: bool) -> bool:
    """Return whether the last rule that matches leaves the path out."""
    for folder, lines in reversed(rules):
        below = path[len(folder) :]
        for rule in reversed(lines):
            if (is_folder or not rule.is_folder) and rule.pattern.fullmatch(below):
                return not rule.is_kept
    return False


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Return the rules of a `.gitignore`. A line that cannot be a pattern is passed over."""
    return tuple(rule for line in text.split("\n") if (rule := _rule(line)))


def _with_rules_of(opened: int, file: str, folder: str, rules: Rules) -> Rules:
    """Return the rules with those of a folder, whose file is named from an opened folder on."""
    try:
        with os.fdopen(open_inside(opened, file, READABLE), "rb") as lines:
            if not stat.S_ISREG(os.fstat(lines.fileno()).st_mode):
                return rules
            text = lines.read(MAX_RULES_BYTES).decode("utf-8", "replace")
    except OSError:
        return rules
    return (*rules, (folder, parse_rules(text)))


def _rule(line: str) -> Rule | None:
    line = line.removesuffix("\r")
    line = re.sub(r"(?<!\\) +$", "", line)
    if not line or line.startswith("#"):
        return None
    is_kept = line.startswith("!")
    line = line[1:] if is_kept else line
    is_folder = line.endswith("/")
    line = line.rstrip("/") if is_folder else line
    if not line:
        return None
    anchored = "/" in line
    body = _regex(line.removeprefix("/"))
    try:
        return Rule(re.compile(body if anchored else f"(?:.*/)?{body}", re.DOTALL), is_kept, is_folder)
    except re.error:
        return None


def _regex(pattern: str) -> str:
    """Return a pattern of Git's as a regular expression."""
    parts, at = [], 0
    while at < len(pattern):
        rest = pattern[at:]
        if rest.startswith("**/") and (at == 0 or pattern[at - 1] == "/"):
            parts.append("(?:.*/)?")
            at += 3
        elif rest == "**" and at > 0 and pattern[at - 1] == "/":
            parts.append(".+")
            at += 2
        elif rest[0] == "*":
            parts.append("[^/]*")
            at += len(rest) - len(rest.lstrip("*"))
        elif rest[0] == "?":
            parts.append("[^/]")
            at += 1
        elif rest[0] == "[" and (found := re.match(r"\[([!^]?)(\]?[^\]/]*)\]", rest)):
            inside = found[2].replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^")
            parts.append(f"(?!/)[{'^' if found[1] else ''}{inside.replace(']', chr(92) + ']')}]")
            at += len(found[0])
        elif rest[0] == "\\" and len(rest) > 1:
            parts.append(re.escape(rest[1]))
            at += 2
        else:
            parts.append(re.escape(rest[0]))
            at += 1
    return "".join(parts)
