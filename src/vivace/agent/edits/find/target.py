"""What the user pointed at: `PATH`, `PATH:NAME`, `PATH:LINE` or `PATH:FIRST-LAST`.

Owns the grammar of that argument. Does not read the file: whether the name or the lines exist is for `units`.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from vivace.errors import UsageError

_NUMBERS = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_LIKE_NUMBERS = re.compile(r"[0-9\s-]+")
_HINT = "Write PATH, PATH:NAME, PATH:LINE or PATH:FIRST-LAST, such as app.py:main or app.py:10-20."


@dataclass(frozen=True)
class Lines:
    """A line range, 1-based, both ends included."""

    first: int
    last: int


@dataclass(frozen=True)
class Target:
    """A path, and what in it: a unit's name, a line range, or None where the model shall choose."""

    path: Path
    selector: str | Lines | None


def parse_target(text: str) -> Target:
    """Split `text` at the colon that belongs to us. A file that exists under the longer name wins."""
    if not text.strip() or text.startswith(":"):
        raise UsageError("No file was named.", _HINT)
    path, selector = _split(text)
    if selector is None:
        return Target(Path(path), None)
    return Target(Path(path), _selector(text, selector))


def _split(text: str) -> tuple[str, str | None]:
    """Prefer the longest path that exists. If none does, the first colon ends the path."""
    if ":" not in text or _exists(text):
        return text, None
    colons = [at for at, character in enumerate(text) if character == ":" and at > 0]
    for at in reversed(colons):
        if _exists(text[:at]):
            return text[:at], text[at + 1 :]
    return text[: colons[0]], text[colons[0] + 1 :]


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # too long a name, a NUL in it
        return False


def _selector(text: str, selector: str) -> str | Lines:
    name = selector.strip()
    if not name:
        raise UsageError(f"Nothing follows the colon in {text!r}.", _HINT)
    numbers = _NUMBERS.fullmatch(name)
    if numbers is None:
        if _LIKE_NUMBERS.fullmatch(name):
            raise UsageError(f"{name!r} is not a line range.", _HINT)
        return name
    first, last = int(numbers[1]), int(numbers[2] or numbers[1])
    if first == 0:
        raise UsageError(f"Lines are counted from 1, so {name!r} is not a range.", _HINT)
    if last < first:
        raise UsageError(f"The range {name} ends before it begins.", f"Did you mean {last}-{first}?")
    return Lines(first, last)
