"""Parses gpt-oss's output, message by message: reasoning, text and calls, by channel and recipient.

Owns the header of a message and what its body then is. Control tokens come by name, so no text can be taken
for one. Does not own rendering (`harmony`).
"""

from collections.abc import Mapping

from vivace.models.families.base import CallError, Part, ReasoningPart, TextPart, Tool
from vivace.models.families.calls.call_reader import PartialCall, joined
from vivace.models.families.calls.json_reading import ValueReader, is_json_object
from vivace.models.families.calls.scanning import past_space

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
END, RETURN, CALL = "<|end|>", "<|return|>", "<|call|>"
ANALYSIS, COMMENTARY, FINAL = "analysis", "commentary", "final"


class Header:
    """Role, channel and recipient of a message as it streams. `given` is the part in the log."""

    def __init__(self, given: str = "") -> None:
        self._sections: dict[str, list[str]] = {START: [given]}
        self._section = START
        self._given = given

    def feed(self, text: str) -> None:
        self._sections[self._section].append(text)

    def control(self, name: str) -> None:
        self._section = name
        self._sections.setdefault(name, [])

    @property
    def role(self) -> str:
        return (self._text(START).split() or [""])[0]

    @property
    def channel(self) -> str:
        return (self._text(CHANNEL).split() or [""])[0]

    @property
    def recipient(self) -> str:
        """Return the recipient, which may stand behind the role or behind the channel."""
        words = f"{self._text(START)} {self._text(CHANNEL)}".split()
        return next((word.removeprefix("to=") for word in words if word.startswith("to=")), "")

    @property
    def stray(self) -> str:
        """Return text in the place of a header that is not one."""
        return self._text(START).removeprefix(self._given) if len(self._sections) == 1 else ""

    def _text(self, section: str) -> str:
        return "".join(self._sections.get(section, []))


class Body(PartialCall):
    """The text of one message."""

    def feed(self, text: str) -> None:
        raise NotImplementedError

    def close(self, *, is_cut: bool) -> None:
        """End the message. `is_cut`: the output ended inside of it."""


class TextBody(Body):
    def __init__(self, kind: type[TextPart] | type[ReasoningPart], *, is_apart: bool) -> None:
        super().__init__({})
        self.kind = kind
        self.before = "\n\n" if is_apart else ""  # comes with the first of its text

    def feed(self, text: str) -> None:
        self._parts.append(self.kind(self.before + text))
        self.before = ""


class FreeCall(Body):
    """Reads a custom tool's input, which is the text itself."""

    def __init__(self, tool: Tool) -> None:
        super().__init__({})
        self._tool = tool
        self._begin()

    def feed(self, text: str) -> None:
        self._grow(text)

    def close(self, *, is_cut: bool) -> None:
        if is_cut:
            self._parts.append(CallError("".join(self._grown)))
        else:
            self._end()


class JsonBody(Body):
    """Reads a function's arguments: one JSON object."""

    def __init__(self, tool: Tool) -> None:
        super().__init__({})
        self._tool = tool
        self._reader = ValueReader(self._grow)
        self._has_first = False
        self._begin()

    def feed(self, text: str) -> None:
        if self.is_wrong:
            self._parts.append(TextPart(text))
            return
        at = 0
        if not self._has_first:
            at = past_space(text, at)
            self._has_first = at < len(text)
            self.is_wrong = self._has_first and text[at] != "{"
        if not self.is_wrong and self._has_first:
            if not self._reader.is_over:
                at = self._reader.feed(text, at)
            at = past_space(text, at)
            self.is_wrong = at < len(text)
        self._raw.append(text[:at])
        if self.is_wrong:
            self._parts += [CallError(self.raw()), TextPart(text[at:])]

    def close(self, *, is_cut: bool) -> None:  # noqa: ARG002
        if self.is_wrong:
            return
        if not self._has_first:
            self._grow("{}")
        if is_json_object("".join(self._grown)):
            self._end()
        else:
            self._parts.append(CallError(self.raw()))


class HarmonyParser:
    marker_starts = frozenset[str]()  # control tokens begin everything

    def __init__(self, tools: Mapping[str, Tool], header: Header) -> None:
        """`tools` are by recipient; `header` is the part of the first header that is in the log."""
        self._tools = tools
        self._header: Header | None = header
        self._is_started = False  # a header was begun by its own token
        self._body: Body | None = None
        self._last: type[TextPart] | type[ReasoningPart] | None = (
            None  # kind of the last words, if nothing came since
        )
        self._parts: list[Part] = []

    @property
    def plain(self) -> type[TextPart] | type[ReasoningPart] | None:
        body = self._body
        return body.kind if isinstance(body, TextBody) and not body.before and not self._parts else None

    def resume(self, body: str) -> None:
        """Go on in a message whose header and first part of the body are in the log. Report calls whole."""
        self._open(self._header or Header())
        if self._body and not isinstance(self._body, TextBody):
            self._body.feed(body)

    def feed(self, text: str) -> list[Part]:
        if text and self._body:
            self._body.feed(text)
        elif text:
            self._header = self._header or Header()
            self._header.feed(text)
        return self._take()

    def control(self, name: str) -> list[Part]:
        match name:
            case "<|start|>":
                self._close(is_cut=False)
                self._is_started = True
            case "<|end|>" | "<|return|>" | "<|call|>":
                self._close(is_cut=False)
            case "<|message|>":
                if not self._body:
                    self._open(self._header or Header())
            case _:
                if self._body:
                    self._close(is_cut=False)
                self._header = self._header or Header()
                self._header.control(name)
        return self._take()

    def finish(self) -> list[Part]:
        self._close(is_cut=True)
        return self._take()

    def _open(self, header: Header) -> None:
        tool = self._tools.get(header.recipient)
        if tool:
            self._body = FreeCall(tool) if tool.is_custom else JsonBody(tool)
            self._last = None
        else:
            kind = ReasoningPart if header.channel == ANALYSIS and not header.recipient else TextPart
            self._body = TextBody(kind, is_apart=self._last is kind)
            self._last = kind
        self._header = None

    def _close(self, *, is_cut: bool) -> None:
        if self._body:
            self._body.close(is_cut=is_cut)
        elif self._header and not self._is_started:
            self._parts.append(TextPart(self._header.stray))
        self._take_body()
        self._body = self._header = None
        self._is_started = False

    def _take_body(self) -> None:
        if self._body:
            self._parts += self._body.take()

    def _take(self) -> list[Part]:
        self._take_body()
        parts, self._parts = self._parts, []
        return [part for part in joined(parts) if part not in (TextPart(""), ReasoningPart(""))]
