"""Requests of Anthropic's API: each becomes the Responses request that asks for the same."""

import contextlib
import json
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.protocol.messages.content import Reader, joined_lines
from vivace.protocol.messages.requests import parse_message
from vivace.protocol.messages.said_calls import SaidCalls
from vivace.protocol.messages.thoughts import ThoughtSigner
from vivace.protocol.shapes.items import InputItem
from vivace.protocol.shapes.refusal import Refusal
from vivace.protocol.shapes.requests import ResponseCreate

SIGNER = ThoughtSigner("token")
TOOL = {"name": "look", "input_schema": {"type": "object"}}
MARK = {"type": "ephemeral"}


def parse(
    messages: Any = "hi", said: SaidCalls | None = None, tenant: str = "", **fields: Any
) -> ResponseCreate:
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    reader = Reader(said or SaidCalls(), partial(SIGNER.is_ours, tenant=tenant))
    body = {"messages": messages, "model": "m", "max_tokens": 9} | fields
    return parse_message(json.dumps(body), reader).create


def items(*messages: Any, **options: Any) -> list[InputItem]:
    return parse(list(messages), **options).items


def user(*blocks: Any) -> Any:
    return {"role": "user", "content": list(blocks)}


def said(*blocks: Any) -> Any:
    return {"role": "assistant", "content": list(blocks)}


def text(words: str, **fields: Any) -> Any:
    return {"type": "text", "text": words} | fields


def refusal(*messages: Any, **fields: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        parse(list(messages) or "hi", **fields)
    return caught.value


# ---- messages --------------------------------------------------------------------------------------


@given(st.text())
def test_a_string_and_one_block_are_the_same(words: str) -> None:
    """Claude Code sends a message as a block, and one turn later as a string. Marks have no effect."""
    assert items({"role": "user", "content": words}) == items(user(text(words, cache_control=MARK)))
    assert parse(system=words).instructions == parse(
        system=[text(words, cache_control=MARK)]
    ).instructions or (words.startswith("x-anthropic-billing-header:"))


def test_billing_headers_are_left_out() -> None:
    """Their hash differs in every conversation, and would change the first bytes of each prompt."""
    header = text("x-anthropic-billing-header: cc_version=2.1.197.abc; cc_entrypoint=cli;")
    assert parse(system=[header, text("You help."), text("Be brief.")]).instructions == "You help.\nBe brief."
    assert parse(system=[header]).instructions is None


def test_blocks_are_lines() -> None:
    """A reminder and the question behind it do not run together."""
    assert joined_lines(["a", "b\n", "", "c"]) == "a\nb\nc"
    assert joined_lines([]) == ""


def test_the_system_may_speak_in_the_middle() -> None:
    """A refusal would fail every turn of Claude Code."""
    system, question = items({"role": "system", "content": "Now."}, user(text("hi")))
    assert (system.role, system.text, question.role) == ("system", "Now.", "user")


def test_calls_and_results_in_their_order() -> None:
    """Text behind a result is a message of the user's."""
    call = {"type": "tool_use", "id": "t1", "name": "look", "input": {"file": "é", "n": 1}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [text("one"), text("two")]}
    found = items(user(text("hi")), said(text("I look."), call), user(result, text("and?")))
    assert [item.type for item in found] == [
        "message",
        "message",
        "function_call",
        "function_call_output",
        "message",
    ]
    assert found[2].call_text == '{"file": "é", "n": 1}'
    assert (found[3].call_id, found[3].output_text, found[4].text) == ("t1", "one\ntwo", "and?")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("no such file", "Error: no such file"),
        ("<tool_use_error>no</tool_use_error>", "<tool_use_error>no</tool_use_error>"),
        ("Error: no", "Error: no"),
        (None, "Error: "),
    ],
)
def test_an_error_of_a_tool_is_told_once(content: Any, told: str) -> None:
    """As it says itself, or in front of what it says."""
    result = {"type": "tool_result", "tool_use_id": "t1", "content": content, "is_error": True}
    assert items(user(result))[0].output_text == told


def test_arguments_come_back_as_the_model_wrote_them() -> None:
    """Or everything behind them would be read again. Other arguments are other arguments."""
    memory = SaidCalls()
    memory.remember("t1", '{"a":1.0,  "b":2}')

    def sent(arguments: Any, call_id: str = "t1") -> str:
        call = {"type": "tool_use", "id": call_id, "name": "look", "input": arguments}
        return items(said(call), said=memory)[0].call_text

    assert sent({"a": 1.0, "b": 2}) == '{"a":1.0,  "b":2}'
    assert sent({"a": 1.0, "b": 3}) == '{"a": 1.0, "b": 3}'
    assert sent({"b": 2, "a": 1.0}) == '{"b": 2, "a": 1.0}'
    assert sent({"a": 1.0, "b": 2}, "t2") == '{"a": 1.0, "b": 2}'


def test_the_memory_of_calls_has_an_end() -> None:
    """The oldest are forgotten, by their number and by their size."""
    memory = SaidCalls(max_calls=2, max_chars=20)
    for call_id in ("a", "b", "c"):
        memory.remember(call_id, '{"x":  1}')
    assert memory.arguments("a", {"x": 1}) == '{"x": 1}'
    assert memory.arguments("c", {"x": 1}) == '{"x":  1}'
    memory.remember("d", '{"x":             1}')
    assert memory.arguments("c", {"x": 1}) == '{"x": 1}'


def test_only_our_own_thoughts_come_back() -> None:
    """One with a wrong signature, or none, or another tenant's, is left out; the turn is not."""

    def kept(signature: str, tenant: str = "") -> bool:
        thought = {"type": "thinking", "thinking": "Hm.", "signature": signature}
        kinds = [item.type for item in items(said(thought, text("Yes.")), user(text("?")), tenant=tenant)]
        return kinds == ["reasoning", "message", "message"]

    ours = SIGNER.sign("Hm.", "")
    assert kept(ours)
    assert not kept(ours, tenant="other")
    assert not kept("")
    assert not kept("é")
    assert not kept(ThoughtSigner("other token").sign("Hm.", ""))
    hidden = {"type": "redacted_thinking", "data": "x"}
    assert [item.type for item in items(said(hidden, text("Yes.")))] == ["message"]


def test_a_last_message_of_the_assistant_is_continued() -> None:
    """And only the last."""
    found = items(said(text("One")), user(text("?")), said(text("Two")))
    assert [item.status for item in found] == [None, None, "in_progress"]


@pytest.mark.parametrize("kind", ["image", "document", "search_result"])
def test_what_is_no_text_is_refused_by_name(kind: str) -> None:
    """In what a user says. What a tool gave is replaced by a note: nobody could take it back."""
    refused = refusal(user({"type": kind, "source": {}}))
    assert kind in refused.message
    assert refused.param == "messages[0].content[0].type"
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [text("a"), {"type": kind}]}
    assert kind in items(user(result))[0].output_text


# ---- everything else -------------------------------------------------------------------------------


def test_settings_have_other_names() -> None:
    """And unknown fields have no effect."""
    asked = parse(
        temperature=0.5,
        top_p=0.9,
        top_k=-1,
        stop_sequences=["x"],
        metadata={"user_id": "u" * 2000},
        betas=["y"],
    )
    assert (asked.max_output_tokens, asked.temperature, asked.top_p, asked.top_k) == (9, 0.5, 0.9, 0)
    assert (asked.stops, asked.is_stored, asked.metadata) == (["x"], False, None)


@pytest.mark.parametrize(
    ("choice", "mode", "names"),
    [
        ({"type": "auto"}, "auto", None),
        ({"type": "any"}, "required", None),
        ({"type": "none"}, "none", None),
        ({"type": "tool", "name": "look"}, "required", frozenset({"look"})),
    ],
)
def test_which_tools_may_be_called(choice: Any, mode: str, names: Any) -> None:
    """One by one, if that is asked for."""
    asked = parse(tools=[TOOL], tool_choice=choice | {"disable_parallel_tool_use": True})
    assert (asked.choice().mode, asked.choice().names) == (mode, names)
    assert asked.parallel_tool_calls is False
    assert parse(tools=[TOOL], tool_choice=choice).parallel_tool_calls is True


@pytest.mark.parametrize(
    ("fields", "effort"),
    [
        ({}, "none"),
        ({"thinking": {"type": "disabled"}}, "none"),
        ({"thinking": {"type": "adaptive"}}, "high"),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}, "low"),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}, "xhigh"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "medium"),
        ({"thinking": {"type": "enabled", "budget_tokens": 5000}}, "high"),
        ({"thinking": {"type": "enabled", "budget_tokens": 31999}}, "xhigh"),
        ({"output_config": {"effort": "high"}}, "none"),
    ],
)
def test_how_hard_to_think(fields: Any, effort: str) -> None:
    """By a budget, or by an effort; without a word of it, not at all."""
    asked = parse(**fields)
    assert asked.effort == effort
    assert asked.asked_effort == (effort if "thinking" in fields else None)


def test_a_schema_of_the_answer() -> None:
    """Held by a grammar, as in Responses."""
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    asked = parse(output_config={"format": {"type": "json_schema", "schema": schema}})
    assert json.loads(asked.schema) == schema


def test_a_title_has_an_end() -> None:
    """Claude Code allows it 32,000 tokens, and a small model may never end a string."""
    schema = {"type": "object", "properties": {"title": {"type": "string"}}}
    form = {"format": {"type": "json_schema", "schema": schema}}
    assert parse(output_config=form, max_tokens=32_000, tools=[]).max_output_tokens == 256
    assert parse(output_config=form, max_tokens=9).max_output_tokens == 9
    assert parse(output_config=form, max_tokens=32_000, tools=[TOOL]).max_output_tokens == 32_000
    assert parse(max_tokens=32_000).max_output_tokens == 32_000


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": {"type": "tool"}, "tools": [TOOL]}, "tool_choice.name"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"system": [{"type": "image"}]}, "system[0].type"),
        ({"temperature": 9}, "temperature"),
    ],
)
def test_a_refusal_names_the_field(fields: Any, param: str) -> None:
    """In the words of this API."""
    assert refusal(**fields).param == param


def test_no_messages() -> None:
    """There is nothing to answer."""
    with pytest.raises(Refusal, match="no messages"):
        parse([])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KINDS = st.sampled_from(["text", "thinking", "tool_use", "tool_result", "image", "redacted_thinking"])
NAMES = st.sampled_from(
    ["text", "thinking", "signature", "id", "name", "input", "tool_use_id", "content", "is_error"]
)
BLOCKS = st.builds(lambda kind, rest: {"type": kind} | rest, KINDS, st.dictionaries(NAMES, JSON, max_size=5))
ROLES = st.sampled_from(["user", "assistant", "system"])


@given(
    st.lists(
        st.fixed_dictionaries({"role": ROLES, "content": st.text() | st.lists(BLOCKS, max_size=3)}),
        max_size=3,
    )
)
def test_any_message_is_read_or_refused(messages: list[Any]) -> None:
    """Whatever comes, it is no mistake of ours."""
    with contextlib.suppress(Refusal):
        parse(messages)
