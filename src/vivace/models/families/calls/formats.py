"""How models write calls, as data: one `CallFormat` for each format, and which of them a template speaks.

Owns the list of formats and the calls that a template is tried with. Does not own how calls are read
(`text_parser` and the readers) nor the rules of grammars (the forms).
"""

from typing import Any

import msgspec

from vivace.models.families.base import Call, CallArguments, CallEnd, CallError, CallStart, TextPart, Tool
from vivace.models.families.calls.json_call import BareCall, JsonCall
from vivace.models.families.calls.json_reading import decoded
from vivace.models.families.calls.lark_grammar import Form, JsonForm
from vivace.models.families.calls.reasoning import THINK, THOUGHT
from vivace.models.families.calls.text_parser import Style, TextParser
from vivace.models.families.calls.xml_call import FUNCTION, XmlCall
from vivace.models.families.calls.xml_form import XmlForm


class CallFormat(msgspec.Struct, frozen=True):
    """How a template writes calls, and how a model does."""

    name: str
    style: Style  # how `TextParser` reads them
    form: Form | None  # how a grammar holds a model to them; None: it cannot
    opening: str = ""  # what `Family.answer` writes if a call is required; the form's `calls` go on behind it
    markers: tuple[str, ...] = ()  # words of the vocabulary that other text must not contain


OPEN, CLOSE = "<tool_call>", "</tool_call>"
HERMES = CallFormat(
    "hermes",
    Style(
        read=lambda tools, is_bare: (BareCall if is_bare else JsonCall)(tools),
        openers=(OPEN,),
        closers=(CLOSE,),
        is_bare_accepted=True,
    ),
    JsonForm(key="arguments", begin=f"{OPEN}\n", end=CLOSE),
    opening=f"{OPEN}\n",
    markers=(OPEN, CLOSE, THINK, THOUGHT, "<tool_response>", "</tool_response>"),
)
QWEN_CODER = CallFormat(
    "qwen-coder",
    Style(
        read=lambda tools, _: XmlCall(tools),
        openers=(OPEN, FUNCTION),
        kept=(FUNCTION,),
        closers=(CLOSE,),
        glue="\n\n",
    ),
    XmlForm(),
    opening=f"{OPEN}\n",
    markers=HERMES.markers,
)
FORMATS: tuple[CallFormat, ...] = (HERMES, QWEN_CODER)


# ---- which of them a template speaks ----------------------------------------------------------------

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
    of the `PROBES` and with both; `two` is empty where a template takes one call only. A format is the one
    if it reads exactly those calls; of several, the one that leaves least of the text unread.
    """
    found: tuple[int, CallFormat] | None = None
    for call_format in FORMATS:
        left = unread(call_format, one, PROBES[:1])
        if left is not None and two:
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
