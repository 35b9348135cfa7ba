"""Grammars of every format of calls: what llguidance lets through behind the opening."""

import json
from typing import Any

import pytest
from llguidance import LLTokenizer

from tests.models.families.written import WRITTEN
from vivace.engine.output.grammar_check import compile_grammar
from vivace.engine.wire.frames import Grammar as Frame
from vivace.models.families.base import OutputSpec, Tool
from vivace.models.families.calls.call_format import CallFormat
from vivace.models.families.calls.formats import FORMATS, PROBE_TOOLS, PROBES
from vivace.models.families.calls.lark_grammar import grammar_of

BYTES = LLTokenizer("byte")
PROBE_CALLS = [(call.name, json.loads(call.arguments)) for call in PROBES]
NOW = Tool("now")
TOOLS = (*PROBE_TOOLS, NOW)
REQUIRED = OutputSpec(tools=TOOLS, choice="required")
ONE = OutputSpec(tools=TOOLS, choice="required", is_parallel=False)
AUTO = OutputSpec(tools=(Tool("get", parameters=PROBE_TOOLS[0].parameters, is_strict=True), NOW))
HELD = [one for one in FORMATS if one.form]
FREELY_HELD = [one for one in HELD if one.form and one.form.holds(AUTO.tools[0])]
held = pytest.mark.parametrize("each", HELD, ids=[one.name for one in HELD])


def allows(each: CallFormat, spec: OutputSpec, text: str) -> bool:
    grammar = grammar_of(spec, each.form)
    assert grammar is not None
    matcher = compile_grammar(BYTES, Frame(grammar.kind, grammar.text))
    data = list(text.encode())
    return matcher.try_consume_tokens(data) == len(data) and matcher.is_accepting()


def written(each: CallFormat, *calls: tuple[str, dict[str, Any]]) -> str:
    text = WRITTEN[each.name](calls)
    assert text.startswith(each.opening)
    return text.removeprefix(each.opening)


@held
def test_required_calls_are_held_to_their_tools(each: CallFormat) -> None:
    """What the template writes is allowed; unknown tools, wrong types, missing keys and mere text are not."""
    name, arguments = PROBE_CALLS[0]
    assert allows(each, REQUIRED, written(each, *PROBE_CALLS[:1]))
    assert allows(each, REQUIRED, written(each, ("now", {})))
    assert not allows(each, REQUIRED, written(each, ("other", arguments)))
    assert not allows(each, REQUIRED, written(each, (name, {**arguments, "days": "three"})))
    assert not allows(each, REQUIRED, written(each, (name, {"city": "Oslo"})))
    assert not allows(each, REQUIRED, "I will not.")


@held
def test_several_calls_only_where_they_may_be(each: CallFormat) -> None:
    """All calls of a group, or exactly one."""
    assert allows(each, REQUIRED, written(each, *PROBE_CALLS))
    assert allows(each, ONE, written(each, *PROBE_CALLS[:1]))
    assert not allows(each, ONE, written(each, *PROBE_CALLS))


@pytest.mark.parametrize("each", FREELY_HELD, ids=[one.name for one in FREELY_HELD])
def test_strict_tools_are_held_in_free_answers(each: CallFormat) -> None:
    """Text is free; a call of a strict tool in it obeys its schema, any other call does not have to."""
    arguments = PROBE_CALLS[0][1]
    good = WRITTEN[each.name]([("get", arguments)])
    text = "" if each.name == "llama" else "I look.\n"
    assert allows(each, AUTO, "No call at all.")
    assert allows(each, AUTO, text + good)
    assert allows(each, AUTO, text + WRITTEN[each.name]([("now", {"what": "ever"})]))
    assert not allows(each, AUTO, text + WRITTEN[each.name]([("get", {**arguments, "days": "three"})]))


@held
def test_calls_that_control_tokens_begin_are_held_if_required(each: CallFormat) -> None:
    """A grammar cannot have the token: so text and calls are free unless a call must come."""
    form = each.held([each.style.openers[0]])
    assert grammar_of(AUTO, form) is None
    assert grammar_of(REQUIRED, form) == grammar_of(REQUIRED, each.form)
    assert each.held(["<|im_end|>"]) is each.form


def test_only_these_formats_cannot_be_held() -> None:
    """The rest of the list has a grammar."""
    assert [one.name for one in FORMATS if not one.form] == ["lfm", "minimax-m3"]
    assert [one.name for one in HELD if one not in FREELY_HELD] == ["mistral"]
