"""Grammars that make an answer obey its `OutputSpec`, in llguidance's dialect of Lark.

Owns how calls, text and reasoning are put together. What one call looks like is a `Form`: here that of JSON
objects; tags and channels have theirs beside their families. A grammar begins where `Family.answer` stops.

Where only one text can follow, the engine says how it is cut into tokens, and a marker such as
`<tool_call>` would come in pieces that the model never uses. So before each marker there is another way to
go on.
"""

import re
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from vivace.models.families.base import Grammar, OutputSpec, Tool
from vivace.models.families.calls.definitions import parameters
from vivace.models.families.calls.json_call import INPUT

# As for the engine's own JSON schemas: where any white space may come, small models write nothing else.
OPTIONS: dict[str, Any] = {"whitespace_pattern": r" |\n[ \t]{0,32}", "coerce_one_of": True}
SPACE = r"[ \t\r\n]{0,40}"
TEXT = "TEXT: /(?s:.*)/"
GAP = r"GAP: /\n{1,2}/"  # between reasoning and an answer


class Form(Protocol):
    def holds(self, tool: Tool) -> bool:
        """Return whether the tool's calls obey a grammar even if no call is required."""
        ...

    def calls(self, tools: Sequence[Tool], *, is_parallel: bool) -> list[str]:
        """Return the rule `calls` (one call or more, from behind the first opener) and the rules it needs."""
        ...

    def opener(self) -> str:
        """Return what stands before `calls` if `Family.answer` did not write it."""
        ...

    def free(self, tools: Sequence[Tool], *, is_parallel: bool) -> list[str]:
        """Return the rule `free` (text that may contain calls) and the rules it needs."""
        ...


def grammar_of(spec: OutputSpec, form: Form | None, *, reasoning: Sequence[str] = ()) -> Grammar | None:
    """Return the grammar, or None if any text will do. `reasoning` is the rule before the answer."""
    tools = spec.tools if spec.choice != "none" else ()
    if not tools or form is None:  # without a form, any answer may be a call that nothing holds
        return _schema_grammar(spec, reasoning) if spec.schema and not tools else None
    first = "reasoning " if reasoning else ""
    if spec.choice == "required":
        rules = form.calls(tools, is_parallel=spec.is_parallel)
        opener = f"{form.opener()} " if reasoning else ""
        return lark(f"start: {first}{opener}calls", *reasoning, *rules)
    if spec.schema:
        return _schema_grammar(spec, reasoning, tools, form)
    if any(map(form.holds, tools)):
        return lark(f"start: {first}free", *reasoning, *form.free(tools, is_parallel=spec.is_parallel))
    return None


def _schema_grammar(
    spec: OutputSpec, reasoning: Sequence[str], tools: Sequence[Tool] = (), form: Form | None = None
) -> Grammar:
    """Return the grammar of an answer under a schema, or a call instead."""
    if not form and not reasoning:
        return Grammar("json_schema", spec.schema)
    try:
        answer = f"answer: {json_rule(msgspec.json.decode(spec.schema))}"
    except msgspec.DecodeError:  # the engine will say what is wrong with it
        return Grammar("json_schema", spec.schema)
    first, gap = ("reasoning ", "GAP? ") if reasoning else ("", "")
    rules = [*reasoning, answer, *([GAP] if reasoning else [])]
    if not form:
        return lark(f"start: {first}{gap}answer", *rules)
    calls = form.calls(tools, is_parallel=spec.is_parallel)
    return lark(f"start: {first}({gap}answer | {form.opener()} calls)", *rules, *calls)


def lark(*rules: str) -> Grammar:
    return Grammar("lark", "\n".join(rules))


# ---- parts of grammars ------------------------------------------------------------------------------


def literal(text: str) -> str:
    return msgspec.json.encode(text).decode()


def pattern(regex: str) -> str:
    """Return a regular expression as Lark writes it: on one line, between slashes."""
    letters: list[str] = []
    is_escaped = False
    for letter in regex:
        if letter in "/\n\r" and is_escaped:
            letters.pop()
        letters.append({"/": "\\/", "\n": "\\n", "\r": "\\r"}.get(letter, letter))
        is_escaped = letter == "\\" and not is_escaped
    return f"/{''.join(letters)}/"


def json_rule(schema: Any, *, is_lenient: bool = False) -> str:
    """Return the rule of JSON under a schema, without keywords that llguidance does not know."""
    schema = dict(schema) if isinstance(schema, dict) else {}
    own = schema.get("x-guidance")
    lenient = {"lenient": True} if is_lenient else {}
    schema["x-guidance"] = {**OPTIONS, **lenient, **(own if isinstance(own, dict) else {})}
    return f"%json {msgspec.json.encode(schema).decode()}"


def arguments_rule(tool: Tool, *, is_free: bool = False) -> str:
    """Return the rule of a tool's arguments. `is_free`: any object will do if the tool is not strict."""
    if tool.is_custom:
        schema = parameters(tool)
        if tool.syntax == "regex" and tool.definition:
            schema["properties"] = {INPUT: {"type": "string", "pattern": f"^(?:{tool.definition})$"}}
        return json_rule(schema)
    if is_free and not tool.is_strict:
        return json_rule({"type": "object"})
    schema = tool.parameters or {"additionalProperties": False}
    return json_rule({"type": "object", **schema}, is_lenient=not tool.is_strict)


# ---- calls that are JSON objects --------------------------------------------------------------------


class JsonForm(msgspec.Struct, frozen=True):
    """Calls as `{"name": …, KEY: …}`, alone or between an opener and a closer."""

    key: str
    begin: str = ""  # the opener and its line break; "": the object alone says that it is a call
    end: str = ""  # the closer
    separator: str = "; "  # between two calls, where there is no opener
    is_bare_accepted: bool = True

    def holds(self, tool: Tool) -> bool:
        return bool(tool.syntax == "regex" and tool.definition) if tool.is_custom else tool.is_strict

    def opener(self) -> str:
        return pattern(rf"\n{{0,3}}{re.escape(self.begin)}") if self.begin else ""

    def calls(self, tools: Sequence[Tool], *, is_parallel: bool) -> list[str]:
        more = "(SEPARATOR call)*" if is_parallel else ""
        end = rf"\n(?:{re.escape(self.end)}\n?)?" if self.end else ""
        separator = rf"\n{re.escape(self.end)}\n{re.escape(self.begin)}" if self.begin else self.separator
        return [
            f"calls: call {more} {'END?' if end else ''}",
            *([f"SEPARATOR: {pattern(separator)}"] if is_parallel else []),
            *([f"END: {pattern(end)}"] if end else []),
            *self._call(tools, is_free=False),
        ]

    def free(self, tools: Sequence[Tool], *, is_parallel: bool) -> list[str]:
        ways = ["PLAIN"]
        rules = [TEXT, f"PLAIN: {self._plain(tools)}", *self._call(tools, is_free=True)]
        if self.begin:
            marker, rest = literal(self.begin.rstrip()), literal(self.begin[len(self.begin.rstrip()) :])
            more = f"(next {rest} call)* TEXT" if is_parallel else "END?"
            ways.append(f"head {rest} call {more}")
            rules += [f"head[lazy]: PLAIN {marker}"]
            end = pattern(rf"\n(?:{re.escape(self.end)}\n?)?")
            rules += [f"next[lazy]: TEXT {marker}"] if is_parallel else [f"END: {end}"]
        if self.is_bare_accepted:
            ways.append("bare")
            rules += self._bare(tools, is_parallel=is_parallel)
        return [f"free: {' | '.join(ways)}", *rules]

    def _call(self, tools: Sequence[Tool], *, is_free: bool) -> list[str]:
        names = [f'{{"name": {literal(tool.name)}, "{self.key}": ' for tool in tools]
        ways = " | ".join(f'{literal(name)} args_{i} "}}"' for i, name in enumerate(names))
        rules = [f"args_{i}: {arguments_rule(tool, is_free=is_free)}" for i, tool in enumerate(tools)]
        return [f"call: {ways}", *rules]

    def _bare(self, tools: Sequence[Tool], *, is_parallel: bool) -> list[str]:
        """Return the rules of calls that are the whole answer, in the forms that `JsonCall` accepts."""
        heads = [f"BARE_{i}: {pattern(self._head(tool))}" for i, tool in enumerate(tools)]
        ways = " | ".join(f"BARE_{i} args_{i} BARE_END" for i in range(len(tools)))
        end = rf"{SPACE}\}}{SPACE}(?:\}}{SPACE})?(?:```{SPACE})?;?"
        many = "+" if is_parallel else ""
        return [f"bare: one{many}", f"one: {ways}", f"BARE_END: {pattern(end)}", *heads]

    def _plain(self, tools: Sequence[Tool]) -> str:
        """Return the rule of text that does not begin as a bare call."""
        if not self.is_bare_accepted:
            return "/(?s:.*)/"
        heads = "|".join(self._head(tool) for tool in tools)
        return f"/(?s:.*)/ & ~{pattern(f'(?s:(?:{heads}).*)')}"

    def _head(self, tool: Tool) -> str:
        name = re.escape(literal(tool.name))
        colon = f"{SPACE}:{SPACE}"
        kind = f'"type"{colon}"function"{SPACE},{SPACE}'
        fence = r"```(?:json)?[ \t\r\n]{1,40}"
        keys = "(?:arguments|parameters)"
        return (
            rf"{SPACE}(?:{fence})?\{{{SPACE}(?:\{{{SPACE})?(?:{kind})?"
            rf'"name"{colon}{name}{SPACE},{SPACE}"{keys}"{colon}'
        )
