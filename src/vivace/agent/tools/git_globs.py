"""Git's wildcard patterns, matched in time that grows with pattern times path: nothing is tried twice.

Owns the grammar of one pattern of a `.gitignore` (as Git's own wildmatch reads it) and its translation. A
pattern becomes an expression whose parts between two stars are atomic: the first place where a part fits is
as good as any later one, so none is given up again. Does not own the lines of the file (`ignoring`).
"""

import re
from collections.abc import Callable

MAX_NAME = 255  # bytes of a name, and of a path: what must be longer matches nothing
MAX_PATH = 4096
# Tokens; every other one matches a single character that is no slash.
_SLASH, _STAR = "/", "[^/]*"
_FOLDERS, _REST = "**/", "**"
_SPECIAL = frozenset("*?[\\")
_CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": " \\t-\\r",
    "upper": "A-Z",
    "xdigit": "a-fA-F0-9",
}

Matches = Callable[[str], object]  # of a name or a path: true if the pattern matches


def name_matcher(pattern: str) -> Matches | None:
    """Return what matches a name, for a pattern without a slash. None if it can match nothing."""
    if _SPECIAL.isdisjoint(pattern):
        return pattern.__eq__
    if pattern[0] == "*" and _SPECIAL.isdisjoint(ending := pattern[1:]):
        return lambda name: name.endswith(ending)
    tokens = _tokens(pattern, MAX_NAME, is_path=False)
    return re.compile(_name(tokens)).fullmatch if tokens else None


def path_matcher(pattern: str) -> Matches | None:
    """Return what matches a path, for a pattern with a slash inside. None if it can match nothing."""
    if _SPECIAL.isdisjoint(pattern):
        return pattern.__eq__
    tokens = _tokens(pattern, MAX_PATH, is_path=True)
    return re.compile(_path(tokens), re.DOTALL).fullmatch if tokens else None


def _path(tokens: list[str]) -> str:
    """Return the expression of a path: what follows `**/` is taken at the first folder where it fits."""
    is_open_end = tokens[-1] == _REST
    first, *others = _split(tokens[:-1] if is_open_end else tokens, _FOLDERS)
    parts = [_names(first), *("(?:[^/]*/)*?" + _names(part) for part in others if part)]
    if is_open_end:
        return "".join(f"(?>{part})" for part in parts) + ".*"
    if not others:
        return parts[0]
    if not others[-1]:  # `**/` at the end
        parts.append("(?:[^/]*/)*")
    return "".join(f"(?>{part})" for part in parts[:-1]) + parts[-1]


def _names(tokens: list[str]) -> str:
    return "/".join(map(_name, _split(tokens, _SLASH)))


def _name(tokens: list[str]) -> str:
    """Return the expression of one name: what stands between two stars is taken where it first fits."""
    first, *others = ("".join(piece) for piece in _split(tokens, _STAR))
    if not others:
        return first
    *inner, last = others
    return first + "".join(f"(?>[^/]*?{piece})" for piece in inner) + f"[^/]*{last}"


def _split(tokens: list[str], at: str) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for token in tokens:
        if token == at:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _tokens(pattern: str, most: int, *, is_path: bool) -> list[str] | None:
    """Return the pattern in tokens. None if it is malformed, or matches only what is longer than `most`."""
    tokens: list[str] = []
    at = fixed = 0
    begin = next(at for at, letter in enumerate(pattern) if letter in _SPECIAL)
    while at < len(pattern):
        letter = pattern[at]
        if letter == "*":
            end = at + len(pattern[at:]) - len(pattern[at:].lstrip("*"))
            is_double = is_path and end - at > 1 and (at == begin or pattern[at - 1] == "/")
            token, at = _stars(pattern, end) if is_double else (_STAR, end)
            tokens.append(token)
            continue
        token, at = _one_character(pattern, at)
        fixed += 1
        if not token or fixed > most:
            return None
        tokens.append(token)
    return tokens


def _stars(pattern: str, end: int) -> tuple[str, int]:
    """Return the token for `**`, which begins a name and ends here, and where the pattern goes on.

    Git takes the `**` of `a**/b` for one too: it compares the `a` first, and then the rest as a pattern.
    """
    if end == len(pattern):
        return _REST, end
    return (_FOLDERS, end + 1) if pattern[end] == "/" else (_STAR, end)


def _one_character(pattern: str, at: int) -> tuple[str, int]:
    """Return the expression for what matches one character, "" if it is malformed, and where it ends."""
    match pattern[at]:
        case "[":
            return _bracket(pattern, at + 1)
        case "\\":
            return re.escape(pattern[at + 1 : at + 2]), at + 2
        case "?":
            return "[^/]", at + 1
    return re.escape(pattern[at]), at + 1


def _bracket(pattern: str, at: int) -> tuple[str, int]:
    """Return the expression for a set, whose `[` stands before `at`, and where it ends."""
    is_negated = pattern[at : at + 1] in ("!", "^")
    at += is_negated
    inside: list[str] = []
    before = ""  # the character that may begin a range
    is_first = True
    while is_first or pattern[at : at + 1] != "]":
        is_first = False
        letter, before, at = _member(pattern, at, before, inside)
        if not letter:
            return "", at
    chosen = "".join(inside)
    if is_negated:
        return (f"[^/{chosen}]" if chosen else "[^/]"), at + 1
    return (f"(?!/)[{chosen}]" if chosen else "(?!)"), at + 1


def _member(pattern: str, at: int, before: str, inside: list[str]) -> tuple[bool, str, int]:
    """Add one member of a set. Return whether it is well-formed, what may begin a range, and the place."""
    letter, following = pattern[at : at + 1], pattern[at + 1 : at + 2]
    if letter == "-" and before and following not in ("", "]"):
        at += 1 + (following == "\\")
        last = pattern[at : at + 1]
        if before <= last:
            inside.append(f"{re.escape(before)}-{re.escape(last)}")
        return bool(last), "", at + 1
    if letter == "[" and following == ":":
        end = pattern.find("]", at + 2)
        if end > at + 2 and pattern[end - 1] == ":":
            name = pattern[at + 2 : end - 1]
            inside.append(_CLASSES.get(name, ""))
            return name in _CLASSES, "", end + 1
        if end < 0:
            return False, "", at
    if letter == "\\":
        at, letter = at + 1, following
    inside.append(re.escape(letter))
    return bool(letter), letter, at + 1
