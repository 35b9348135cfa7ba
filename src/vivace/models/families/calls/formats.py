"""Which format of calls a template speaks, found from what it writes for two known calls.

Owns those calls, and how a format is tried. The formats are data in `known_formats`.
"""

from typing import Any

import msgspec

from vivace.models.families.base import Call, CallArguments, CallEnd, CallError, CallStart, TextPart, Tool
from vivace.models.families.calls.call_format import CallFormat
from vivace.models.families.calls.json_reading import decoded
from vivace.models.families.calls.known_formats import FORMATS
from vivace.models.families.calls.text_parser import TextParser

__all__ = ["FORMATS", "PROBES", "PROBE_TOOLS", "CallFormat", "format_of"]

_DEEP = {"place": 'Łódź "old" <town>', "sizes": [2, 7]}
_FIRST: dict[str, Any] = {"city": 'São Paulo, "SP" & co', "days": 3, "deep": _DEEP}
_SECOND: dict[str, Any] = {"command": "ls -l 'x y' | wc", "ratio": 2.5}


def _schema(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


PROBE_TOOLS: tuple[Tool, Tool] = (
    Tool(
        "get_weather",
        "Gets the weather.",
        _schema(
            {
                "city": {"type": "string", "description": "A city."},
                "days": {"type": "integer", "description": "A number."},
                "deep": {
                    **_schema(
                        {
                            "place": {"type": "string", "description": "A place."},
                            "sizes": {
                                "type": "array",
                                "items": {"type": "integer"},
                                "description": "Sizes.",
                            },
                        }
                    ),
                    "description": "An object.",
                },
            }
        ),
    ),
    Tool(
        "run_it",
        "Runs a command.",
        _schema(
            {
                "command": {"type": "string", "description": "A command."},
                "ratio": {"type": "number", "description": "A number."},
            }
        ),
    ),
)
# An id of nine letters and digits: some templates take no other.
PROBES: tuple[Call, Call] = (
    Call("get_weather", msgspec.json.encode(_FIRST).decode(), "call00001"),
    Call("run_it", msgspec.json.encode(_SECOND).decode(), "call00002"),
)


def format_of(one: str, two: str = "") -> CallFormat | None:
    """Return the format that a template speaks, by what it writes for calls; None if it is not known.

    `one` and `two` are what it writes, from behind the header of the answer, for a message with the first
    of the `PROBES` and with both; `two` is empty where a template takes one call only, and some write just
    the first. A format is the one
    if it reads exactly those calls; of several, the one that leaves least of the text unread.
    """
    found: tuple[int, CallFormat] | None = None
    for call_format in FORMATS:
        left = unread(call_format, one, PROBES[:1])
        if left is not None and PROBES[1].name in two:
            more = unread(call_format, two, PROBES)
            left = None if more is None else left + more
        if left is not None and (not found or left < found[0]):
            found = left, call_format
    return found[1] if found else None


def unread(call_format: CallFormat, text: str, calls: tuple[Call, ...]) -> int | None:
    """Return how much of a text the format takes for words, if it reads these calls and no others."""
    parser = TextParser({tool.name: tool for tool in PROBE_TOOLS}, call_format.style)
    left, arguments, found = 0, "", []
    name = ""
    for part in (*parser.feed(text), *parser.finish()):
        match part:
            case CallStart(tool=tool):
                name, arguments = tool.name, ""
            case CallArguments(delta=delta):
                arguments += delta
            case CallEnd():
                found.append((name, decoded(arguments)))
            case CallError():
                return None
            case TextPart(text=words):
                left += len(words)
    return left if found == [(call.name, decoded(call.arguments)) for call in calls] else None
