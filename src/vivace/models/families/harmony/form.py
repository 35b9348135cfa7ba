"""Grammars of harmony (gpt-oss): reasoning first, then the answer or the call that the `OutputSpec` asks for.

Owns those grammars, and the beginning of an answer's header that goes with them. llama.cpp counts all
markers of the format as words, but for those that end an answer: so they can stand in a grammar. Between
two of them there is always more than one way to go on, so that it is the model that says them, each as the
one token that it is.
"""

from collections.abc import Sequence

import msgspec

from vivace.models.families.base import Grammar, OutputSpec, Tool
from vivace.models.families.calls.call_reader import callable_tools
from vivace.models.families.calls.lark_grammar import TEXT, arguments_rule, json_rule, lark, literal, pattern
from vivace.models.families.harmony.parser import CHANNEL, COMMENTARY, CONSTRAIN, FINAL, MESSAGE
from vivace.models.families.harmony.typescript import recipient

_HEAD = "HEAD: " + pattern(r" ?<\|message\|>")
_JSON_HEAD = "JSON_HEAD: " + pattern(r" ?(?:<\|constrain\|>)?(?:json)? ?<\|message\|>")
_TALK = 'talk: ("analysis" | "commentary") HEAD rest'
_REST = "rest[lazy]: " + pattern(r"(?s:.*)<\|end\|>")
_NEXT = "NEXT: " + pattern(r"\n?<\|start\|>assistant ?<\|channel\|>")


def header_of(spec: OutputSpec) -> Sequence[str]:
    """Return the beginning of the header that `spec` makes certain. The grammar begins behind it."""
    tools = list(callable_tools(spec).values())
    if harmony_grammar(spec) is None:
        return []
    if _thinks(spec):
        return [CHANNEL]
    if tools and spec.choice == "required":
        if len(tools) > 1:
            return [CHANNEL, f"{COMMENTARY} to="]
        kind = [] if tools[0].is_custom else [" ", CONSTRAIN, "json"]
        return [CHANNEL, f"{COMMENTARY} to={recipient(tools[0])}", *kind, MESSAGE]
    return [CHANNEL] if tools else [CHANNEL, FINAL, MESSAGE]


def harmony_grammar(spec: OutputSpec) -> Grammar | None:
    """Return the grammar, or None if any text will do."""
    tools = list(callable_tools(spec).values())
    is_forced = bool(tools) and spec.choice == "required"
    if not (is_forced or spec.schema or any(map(_holds, tools))):
        return None
    answer = f"answer: {_answer(spec.schema)}"
    calls = _calls(tools, is_free=not is_forced and not spec.schema)
    final, call = f"{literal(FINAL)} HEAD answer", f"{literal(COMMENTARY + ' to=')} call"
    common = [TEXT, _HEAD, _JSON_HEAD, *calls]
    if not _thinks(spec):
        if is_forced:
            return lark(f"start: {'call' if len(tools) > 1 else 'body_0'}", *common)
        return lark(f"start: {final} | {call}" if tools else "start: answer", answer, *common)
    last = call if is_forced else f"({final} | {call})" if tools else final
    talk = [_TALK, _REST, _NEXT]
    return lark(f"start: (talk NEXT)* {last}", *talk, *([] if is_forced else [answer]), *common)


def _thinks(spec: OutputSpec) -> bool:
    return spec.effort != "none"


def _holds(tool: Tool) -> bool:
    return bool(tool.definition and tool.syntax != "text") if tool.is_custom else tool.is_strict


def _answer(schema: str) -> str:
    if not schema:
        return "TEXT"
    try:
        return json_rule(msgspec.json.decode(schema))
    except msgspec.DecodeError:  # the engine will say what is wrong with it
        return f"%json {schema}"


def _calls(tools: Sequence[Tool], *, is_free: bool) -> list[str]:
    if not tools:
        return []
    ways = [
        f"{literal(recipient(tool))} {'HEAD' if tool.is_custom else 'JSON_HEAD'} body_{place}"
        for place, tool in enumerate(tools)
    ]
    bodies = [f"body_{place}: {_body(tool, is_free=is_free)}" for place, tool in enumerate(tools)]
    return [f"call: {' | '.join(ways)}", *bodies]


def _body(tool: Tool, *, is_free: bool) -> str:
    if not tool.is_custom:
        return arguments_rule(tool, is_free=is_free)
    if not tool.definition or tool.syntax == "text":
        return "TEXT"
    return f"%lark {{\n{tool.definition}\n}}" if tool.syntax == "lark" else pattern(tool.definition)
