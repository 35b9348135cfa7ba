"""What a model family is: how a conversation becomes tokens, and what the model says becomes parts.

Owns the seam and the words on both sides of it. A family is one module beside this one. It never renders
history again: `render` gives what is *appended* to a log (law 1). Text of messages, tools and outputs is
encoded as plain text, so that nobody can write a control token into a conversation.
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
    """A tool call of an earlier turn, as the client has it. Arguments that are no JSON stay as they are."""

    name: str
    arguments: str  # JSON of a function's, the free text of a custom tool's
    call_id: str = ""
    is_custom: bool = False


class Output(msgspec.Struct, frozen=True):
    """What a tool answered."""

    text: str
    call_id: str = ""
    name: str = ""  # of the tool, where it is known


class Thought(msgspec.Struct, frozen=True):
    """Reasoning of an earlier turn. A family that does not show it to the model again leaves it out."""

    text: str


class Interruption(msgspec.Struct, frozen=True):
    """The user interrupted the answer that stands before this; what follows is what they said instead.

    A family tells it to the model in the template's own words, which no client sees. Has no effect where
    nothing of an answer stands before it.
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
    """What may come next."""

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
    """A call of a tool that is in `tools`; its name is whole."""

    tool: Tool


class CallDelta(msgspec.Struct, frozen=True):
    """More of the call's arguments (JSON text), or of a custom tool's input (free text, unescaped)."""

    delta: str


class CallEnd(msgspec.Struct, frozen=True):
    """The call is whole. Its arguments are all deltas together."""


class CallError(msgspec.Struct, frozen=True):
    """What began as a call is none: it was cut off, or is malformed. `text` is all of it as written."""

    text: str


Part = TextPart | ReasoningPart | CallStart | CallDelta | CallEnd | CallError


class Parser(Protocol):
    """Finds calls and reasoning in what the model says. Linear in the length; never raises."""

    def feed(self, text: str) -> list[Part]:
        """Whole characters of plain text."""
        ...

    def control(self, name: str) -> list[Part]:
        """A control token of the family's (`Family.controls`), which is not text."""
        ...

    def finish(self) -> list[Part]:
        """Nothing more comes: what was held back as a possible beginning, and a call that never ended."""
        ...


class Grammar(msgspec.Struct, frozen=True):
    """What the output must look like. A part of the engine's frames, too."""

    kind: Literal["json_schema", "regex", "lark"]  # the language of `text`
    text: str  # the grammar itself


class Family(Protocol):
    controls: dict[int, str]  # token → name, of the control tokens that `Parser.control` wants to hear of
    stop_tokens: tuple[int, ...]  # that end an answer, besides the tokenizer's own end tokens

    def render(
        self,
        entries: Sequence[Entry],
        *,
        tools: Sequence[Tool] = (),
        after: Sequence[int] = (),
        effort: Effort = "",
    ) -> list[int]:
        """Tokens to append to the log `after`. `tools` are those that the log does not tell of yet.

        `effort` is the wish's: a family may say it at the beginning of a log.
        """
        ...

    def answer(self, log: Sequence[int], wish: OutputSpec) -> list[int]:
        """Tokens after which the model speaks: none if `log` stops inside the message it is to continue."""
        ...

    def parser(self, wish: OutputSpec, log: Sequence[int]) -> Parser:
        """For the answer that begins after `log`, which ends with `answer`'s tokens."""
        ...

    def grammar(self, wish: OutputSpec) -> Grammar | None:
        """What makes the answer obey the wish; None where any text does."""
        ...
