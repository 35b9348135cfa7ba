"""What a model family is: it turns a conversation into tokens, and the model's output into parts.

Owns the `Family` and `Parser` protocols and the types that cross them. A family is one module beside this.
It never renders history again: `render` returns what is *appended* to a log (law 1). Text of messages, tools
and outputs is encoded as plain text, so that nobody can write a control token into a conversation.
"""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec

# ---- in: a conversation ----------------------------------------------------------------------------


class Message(msgspec.Struct, frozen=True):
    role: Literal["system", "user", "assistant"]
    text: str
    is_open: bool = False  # an assistant message that the model is to continue


class Call(msgspec.Struct, frozen=True):
    """A tool call of an earlier turn, as the client sent it. Arguments that are not JSON are kept as text."""

    name: str
    arguments: str  # JSON of a function's, the free text of a custom tool's
    call_id: str = ""
    is_custom: bool = False


class Output(msgspec.Struct, frozen=True):
    """The output of a tool call."""

    text: str
    call_id: str = ""
    name: str = ""  # of the tool; "" if it is not known


class Thought(msgspec.Struct, frozen=True):
    """Reasoning of an earlier turn. Families whose template drops reasoning ignore it."""

    text: str


class Interruption(msgspec.Struct, frozen=True):
    """The user interrupted the answer before this entry; the user's message after it is why.

    A family says so to the model in words of its template, which no client sees. Without an answer before it,
    it has no effect.
    """


Entry = Message | Call | Output | Thought | Interruption


class Tool(msgspec.Struct, frozen=True):
    """A function (with a JSON schema), or a custom tool (free text, perhaps under a grammar)."""

    name: str  # as the model sees it; a namespace's tools are told apart by `namespace`
    description: str = ""
    parameters: dict[str, Any] | None = None  # None: custom, or a function without parameters
    is_custom: bool = False
    is_strict: bool = False  # arguments must obey the schema
    syntax: Literal["text", "lark", "regex"] = "text"  # of a custom tool's input
    definition: str = ""  # the grammar in that syntax
    namespace: str = ""


Effort = Literal["", "none", "minimal", "low", "medium", "high", "xhigh"]  # "": the family's own


class OutputSpec(msgspec.Struct, frozen=True):
    """What the next answer may contain."""

    tools: tuple[Tool, ...] = ()  # those that may be called: all, or the allowed ones
    choice: Literal["auto", "none", "required"] = "auto"  # one by name: required, and only that in `tools`
    is_parallel: bool = True  # more than one call in an answer
    schema: str = ""  # JSON schema of the answer's text (`text.format`); "": any text
    effort: Effort = ""


# ---- out: what the model says ----------------------------------------------------------------------


class TextPart(msgspec.Struct, frozen=True):
    """More of the answer's text."""

    text: str


class ReasoningPart(msgspec.Struct, frozen=True):
    """More reasoning."""

    text: str


class CallStart(msgspec.Struct, frozen=True):
    """The beginning of a call of a known tool."""

    tool: Tool


class CallArguments(msgspec.Struct, frozen=True):
    """More of the call's arguments (JSON text), or of a custom tool's input (free text, unescaped)."""

    delta: str


class CallEnd(msgspec.Struct, frozen=True):
    """The call is complete. Its arguments are all its deltas joined."""


class CallError(msgspec.Struct, frozen=True):
    """The call was cut off or is malformed. `text` is all of it, as the model wrote it."""

    text: str


Part = TextPart | ReasoningPart | CallStart | CallArguments | CallEnd | CallError


class Parser(Protocol):
    """Finds calls and reasoning in the model's output, in linear time. Never raises."""

    marker_starts: frozenset[str]  # characters that something begins with that is not just text

    @property
    def plain(self) -> type[TextPart] | type[ReasoningPart] | None:
        """Return what `feed` makes of text without `marker_starts` now: one part of this kind, all of it.

        None if only `feed` knows. Such text may be left out of `feed`: it changes nothing for what follows.
        """
        ...

    def feed(self, text: str) -> list[Part]:
        """Read plain text, in whole characters."""
        ...

    def control(self, name: str) -> list[Part]:
        """Read a control token that is in `Family.controls`."""
        ...

    def finish(self) -> list[Part]:
        """End the output. Return text that was held back, and an error for a call that did not end."""
        ...


class Grammar(msgspec.Struct, frozen=True):
    """What the output must look like. A part of the engine's frames, too."""

    kind: Literal["json_schema", "regex", "lark"]  # the language of `text`
    text: str  # the grammar itself


class Family(Protocol):
    controls: dict[int, str]  # token → name, of the control tokens that go to `Parser.control`
    stop_tokens: tuple[int, ...]  # tokens that end an answer, besides the tokenizer's end tokens
    notes: tuple[str, ...]  # what is not as the model's chat template has it, each a sentence

    def render(
        self,
        entries: Sequence[Entry],
        *,
        tools: Sequence[Tool] = (),
        after: Sequence[int] = (),
        effort: Effort = "",
    ) -> list[int]:
        """Return the tokens to append to the log `after`.

        `tools` are those that the log does not contain yet. A family may write `effort` at the beginning of
        a log.
        """
        ...

    def answer(self, log: Sequence[int], spec: OutputSpec) -> list[int]:
        """Return the tokens that begin an answer; none if `log` ends inside an answer to be continued."""
        ...

    def parser(self, spec: OutputSpec, log: Sequence[int]) -> Parser:
        """Return a parser for the answer after `log`, which ends with the tokens of `answer`."""
        ...

    def grammar(self, spec: OutputSpec) -> Grammar | None:
        """Return the grammar that makes the answer obey `spec`; None if any text does."""
        ...

    def end_thinking(self, log: Sequence[int], spec: OutputSpec) -> list[int]:
        """Return the tokens that end the thinking in which the log ends, or skip it if none has begun.

        Return none if the answer has begun, or if the family does not think.
        """
        ...
