"""Values in the texts of a workflow: `{name}`, and parts of a path as `{name:stem}`.

Owns the syntax, and that a value in a command is one word of the shell whatever is in it. `{{` and `}}` are
braces. Does not own which names there are (`recipe`).
"""

import re
import shlex
from collections.abc import Mapping
from pathlib import PurePosixPath

_PLACE = re.compile(r"\{\{|\}\}|\{([a-z][a-z0-9_]*)(?::(stem|name|parent|module))?\}")


def names_in(text: str) -> set[str]:
    """Return the names that the text uses."""
    return {found[1] for found in _PLACE.finditer(text) if found[1]}


def filled(text: str, values: Mapping[str, str]) -> str:
    """Return the text with its values."""
    return _PLACE.sub(lambda found: _braces(found) or _value(found, values), text)


def filled_command(text: str, values: Mapping[str, str]) -> str:
    """Return a line for the shell in which every value is one word."""
    return _PLACE.sub(lambda found: _braces(found) or shlex.quote(_value(found, values)), text)


def _braces(found: "re.Match[str]") -> str:
    return found[0][0] if not found[1] else ""


def _value(found: "re.Match[str]", values: Mapping[str, str]) -> str:
    value, part = values[found[1]], found[2]
    if not part:
        return value
    path = PurePosixPath(value)
    match part:
        case "stem":
            return path.stem
        case "name":
            return path.name
        case "parent":
            return str(path.parent)
    parts = path.with_suffix("").parts if path.name else path.parts
    return ".".join(parts[1:] if parts[:1] == ("src",) else parts).removesuffix(".__init__")
