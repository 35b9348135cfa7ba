"""Reads one call as it streams: the protocol between the parser of an answer and the forms of calls.

Owns how parts are joined. A call reader takes characters from the first of the call to its last one, and
keeps all of them, so that nothing is lost if it turns out to be no call.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from vivace.models.families.base import (
    CallArguments,
    CallEnd,
    CallStart,
    OutputSpec,
    Part,
    ReasoningPart,
    TextPart,
    Tool,
)


class CallReader(Protocol):
    has_begun: bool  # `CallStart` was said
    has_ended: bool  # and `CallEnd`
    is_over: bool  # nothing more of the text is its own
    is_wrong: bool  # it is no call

    def feed(self, text: str, at: int) -> int:
        """Read from `text` at `at` on; return where reading stopped.

        Before the end, and neither over nor wrong: what is left may be the beginning of something.
        """
        ...

    def take(self) -> list[Part]:
        """Return the parts since the last call of `take`."""
        ...

    def raw(self) -> str:
        """Return all text that was read."""
        ...

    def finish(self) -> None:
        """End the input. The call is then complete or an error."""
        ...


def callable_tools(spec: OutputSpec) -> dict[str, Tool]:
    """Return the tools that may be called, by name; of two with the same name the first."""
    return {} if spec.choice == "none" else {tool.name: tool for tool in reversed(spec.tools)}


def joined(parts: Sequence[Part]) -> list[Part]:
    """Join adjacent parts of the same kind."""
    found: list[Part] = list(parts[:1])
    for part in parts[1:]:
        match found[-1], part:
            case TextPart(text=before), TextPart(text=text):
                found[-1] = TextPart(before + text)
            case ReasoningPart(text=before), ReasoningPart(text=text):
                found[-1] = ReasoningPart(before + text)
            case CallArguments(delta=before), CallArguments(delta=delta):
                found[-1] = CallArguments(before + delta)
            case _:
                found.append(part)
    return found


class PartialCall:
    """The common part of all readers: the tool once known, the arguments so far, and all text."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._tools = tools
        self._tool: Tool | None = None
        self._grown: list[str] = []  # all arguments so far
        self._parts: list[Part] = []
        self._raw: list[str] = []
        self.has_begun = self.has_ended = self.is_over = self.is_wrong = False

    def take(self) -> list[Part]:
        parts, self._parts = self._parts, []
        return parts

    def raw(self) -> str:
        return "".join(self._raw)

    def _begin(self) -> None:
        assert self._tool is not None
        self.has_begun = True
        self._parts.append(CallStart(self._tool))

    def _grow(self, delta: str) -> None:
        if delta:
            self._grown.append(delta)
            self._parts.append(CallArguments(delta))

    def _end(self) -> None:
        self.has_ended = True
        self._parts.append(CallEnd())
