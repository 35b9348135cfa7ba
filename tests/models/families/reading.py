"""Feeding parsers in tests: text in any cuts, tokens as a backend feeds them, parts put together."""

from collections.abc import Sequence

from hypothesis import strategies as st

from vivace.models.families.base import (
    CallArguments,
    CallEnd,
    CallError,
    CallStart,
    Family,
    OutputSpec,
    Parser,
    Part,
    ReasoningPart,
    TextPart,
    Tool,
)
from vivace.models.families.calls.call_reader import joined
from vivace.models.tokenizer import Tokenizer

GET = Tool(
    "get",
    parameters={
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "n": {"type": "integer"},
            "kind": {"enum": ["big", "small"]},
            "any": {},
            "maybe": {"type": ["number", "null"]},
        },
        "required": ["city"],
    },
)
NOW, PATCH = Tool("now"), Tool("patch", is_custom=True)
SPEC = OutputSpec(tools=(GET, NOW, PATCH))


def read(parser: Parser, *texts: str) -> list[Part]:
    """All parts of an answer that comes in these pieces."""
    parts = [part for text in texts for part in parser.feed(text)]
    return joined(parts + parser.finish())


def read_tokens(parser: Parser, family: Family, tokenizer: Tokenizer, tokens: Sequence[int]) -> list[Part]:
    """As the server does it: control tokens by name, all others as whole characters of text."""
    parts: list[Part] = []
    held = b""
    for token in tokens:
        if name := family.controls.get(token):
            parts += parser.feed(held.decode("utf-8", "replace")) + parser.control(name)
            held = b""
            continue
        held += tokenizer.token_bytes(token)
        try:
            text = held.decode()
        except UnicodeDecodeError:
            continue
        held = b""
        parts += parser.feed(text)
    return joined(parts + parser.feed(held.decode("utf-8", "replace")) + parser.finish())


def brief(parts: Sequence[Part]) -> list[tuple[str, ...] | str]:
    """Parts as short as can be: text, and calls as (name, arguments); what broke as ("broke", text)."""
    found: list[tuple[str, ...] | str] = []
    name, grown = "", ""
    for part in parts:
        match part:
            case TextPart(text=text):
                found.append(text)
            case ReasoningPart(text=text):
                found.append(("mused", text))
            case CallStart(tool=tool):
                assert not name, "a call begins in a call"
                name, grown = tool.name, ""
            case CallArguments(delta=delta):
                assert name, "arguments without a call"
                grown += delta
            case CallEnd():
                assert name, "an end without a call"
                found.append((name, grown))
                name = ""
            case CallError(text=text):
                assert name, "what has not begun cannot break"
                found.append(("broke", text))
                name = ""
    assert not name, "a call neither ended nor broke"
    return found


@st.composite
def cut(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> list[str]:
    """A text in pieces."""
    text = draw(texts)
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=6)))
    return [text[i:j] for i, j in zip([0, *places], [*places, len(text)], strict=True)]
