"""What a client may ask for over chat completions, and what it becomes."""

import json
from typing import Any

import pytest

from vivace.protocol.chat.requests import parse_chat
from vivace.protocol.shapes.items import InputItem
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.protocol.shapes.tools import Choice

HI = [{"role": "user", "content": "hi"}]
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "description": "Now.", "parameters": {"type": "object"}},
}
PATCH = {"type": "custom", "custom": {"name": "patch", "description": "Free text."}}


def parse(messages: Any = HI, **fields: Any) -> ResponseCreate:
    return parse_chat(json.dumps({"messages": messages} | fields)).create


def items(*messages: dict[str, Any]) -> list[InputItem]:
    return parse(list(messages)).items


# ---- messages --------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant"])
def test_a_message_keeps_role_and_text(role: str) -> None:
    """Content is plain text or text parts; names of participants are passed over."""
    plain, parted = items(
        {"role": role, "content": "ab", "name": "Ada"},
        {"role": role, "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    )
    assert (plain.type, plain.role, plain.text) == ("message", role, "ab")
    assert (parted.role, parted.text) == (role, "ab")


def test_a_round_of_tools_becomes_calls_and_outputs() -> None:
    """Text first, then each call, then each output, told apart by kind."""
    calls = [
        {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}},
        {"id": "2", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}},
    ]
    said, weather, patch, sunny, done = items(
        {"role": "assistant", "content": "Let me look.", "tool_calls": calls, "function_call": None},
        {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "sunny"}]},
        {"role": "tool", "tool_call_id": "2", "content": "done"},
    )
    assert (said.role, said.text) == ("assistant", "Let me look.")
    assert (weather.type, weather.call_id, weather.name) == ("function_call", "1", "weather")
    assert weather.call_text == '{"city":"Rome"}'
    assert (patch.type, patch.call_id, patch.name) == ("custom_tool_call", "2", "patch")
    assert patch.call_text == "*** Begin"
    assert (sunny.type, sunny.call_id, sunny.output_text) == ("function_call_output", "1", "sunny")
    assert (done.type, done.call_id, done.output_text) == ("custom_tool_call_output", "2", "done")


@pytest.mark.parametrize("content", [None, "", []])
def test_nothing_said_before_a_call_is_no_message(content: Any) -> None:
    """Clients send null or empty content beside tool calls."""
    call = {"id": "1", "function": {"name": "weather", "arguments": "{}"}}
    (only,) = items({"role": "assistant", "content": content, "tool_calls": [call]})
    assert only.type == "function_call"


@pytest.mark.parametrize("content", [None, ""])
def test_an_empty_answer_in_the_history_is_kept(content: str | None) -> None:
    """A turn that gave nothing does not fail the turns after it."""
    (only,) = items({"role": "assistant", "content": content, "tool_calls": []})
    assert (only.role, only.text) == ("assistant", "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [('{"a":', '{"a":'), ("", ""), (None, ""), ("<b>", "<b>"), ({"a": 1}, '{"a":1}'), ([1], "[1]")],
)
def test_malformed_arguments_in_the_history_pass(arguments: Any, words: str) -> None:
    """What a model once wrote, or a client made of it, is told as it is."""
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    (only,) = items({"role": "assistant", "tool_calls": [call]})
    assert only.call_text == words


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_in_the_history_comes_before_the_text(name: str) -> None:
    """Both names under which clients send it back are read."""
    thought, said = items({"role": "assistant", "content": "4", name: "two and two"})
    assert (thought.type, thought.text) == ("reasoning", "two and two")
    assert said.text == "4"


def test_reasoning_in_a_foreign_shape_is_passed_over() -> None:
    """Other servers' details of reasoning do no harm."""
    (said,) = items({"role": "assistant", "content": "4", "reasoning": {"effort": "low"}})
    assert said.text == "4"


def test_a_refusal_in_the_history_is_what_was_said() -> None:
    """As a field or as a part."""
    field, part = items(
        {"role": "assistant", "content": None, "refusal": "No."},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
    )
    assert field.text == part.text == "No."


# ---- settings --------------------------------------------------------------------------------------


def test_a_bare_request_asks_for_an_answer_that_is_not_stored() -> None:
    """Chat is not stored unless it is asked for; everything else is the default of a response."""
    request = parse(model="m")
    assert (request.model, request.stream, request.is_stored) == ("m", None, False)
    assert not request.wants_logprobs
    assert request.is_generating
    assert request.choice() == Choice()
    assert parse(store=True).is_stored


def test_the_settings_of_an_answer_arrive() -> None:
    """Each field of the same meaning, and our additions."""
    given = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
        "presence_penalty": -1.0,
        "frequency_penalty": 1.5,
        "seed": 7,
        "stop": ["a", "b"],
        "metadata": {"a": "b"},
        "parallel_tool_calls": False,
        "prompt_cache_key": "k",
        "service_tier": "flex",
        "stream": True,
    }
    request = parse(**given)
    assert {name: getattr(request, name) for name in given} == given
    assert request.tier == "background"


def test_nulls_are_defaults() -> None:
    """SDKs in other languages send null for what was not given."""
    names = ["temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "logit_bias"]
    names += ["stop", "seed", "n", "max_tokens", "max_completion_tokens", "tools", "tool_choice", "metadata"]
    names += ["response_format", "stream_options", "logprobs", "top_logprobs", "store", "functions", "stream"]
    names += ["reasoning_effort", "prediction", "parallel_tool_calls", "modalities", "service_tier"]
    assert parse(**dict.fromkeys(names)) == parse()


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 6}, 6),
        ({"max_tokens": 5, "max_completion_tokens": 6}, 6),
        ({}, None),
    ],
)
def test_the_newer_name_of_the_limit_wins(fields: dict[str, int], tokens: int | None) -> None:
    """Both names of the most tokens are known."""
    assert parse(**fields).max_output_tokens == tokens


def test_biases_are_by_token() -> None:
    """JSON has only strings for keys."""
    assert parse(logit_bias={"42": -100, "7": 1.5}).logit_bias == {42: -100, 7: 1.5}


def test_a_negative_seed_is_a_seed() -> None:
    """OpenAI's seeds are signed; each gives a seed of ours, always the same."""
    assert parse(seed=-1).seed == parse(seed=-1).seed != parse(seed=-2).seed


def test_minus_one_is_no_top_k() -> None:
    """As other servers have it."""
    assert parse(top_k=-1).top_k == 0


@pytest.mark.parametrize(
    ("fields", "top"),
    [({"logprobs": True}, 0), ({"logprobs": True, "top_logprobs": 3}, 3), ({"logprobs": False}, None)],
)
def test_logprobs_are_asked_for(fields: dict[str, Any], top: int | None) -> None:
    """With the number of alternatives, if one is given."""
    request = parse(**fields)
    assert (request.top_logprobs, request.wants_logprobs) == (top, top is not None)


def test_a_prediction_is_the_text_of_its_parts() -> None:
    """As for predicted outputs."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    request = parse(prediction={"type": "content", "content": parts})
    assert request.prediction
    assert request.prediction.text == "ab"


@pytest.mark.parametrize(("effort", "ours"), [("none", "none"), ("low", "low"), ("max", "xhigh")])
def test_effort(effort: str, ours: str) -> None:
    """Every value that the API has is understood."""
    assert parse(reasoning_effort=effort).effort == ours


def test_usage_in_a_stream_is_asked_for() -> None:
    """`stream_options.include_usage`; other options are passed over."""
    options = {"include_usage": True, "include_obfuscation": True}
    body = {"messages": HI, "stream": True, "stream_options": options}
    assert parse_chat(json.dumps(body)).has_usage_chunk
    assert not parse_chat(json.dumps({"messages": HI, "stream": True})).has_usage_chunk


def test_fields_that_change_nothing_are_passed_over() -> None:
    """Whatever clients send to identify themselves does no harm."""
    assert (
        parse(user="u", safety_identifier="s", modalities=["text"], prompt_cache_retention="24h") == parse()
    )


# ---- formats and tools -----------------------------------------------------------------------------


def test_formats_of_the_text() -> None:
    """Any text, any object, or an object after a schema."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
    request = parse(response_format=form, verbosity="low")
    assert json.loads(request.schema) == schema
    assert request.text
    assert (request.text.format.name, request.text.format.strict) == ("n", True)
    assert request.text.verbosity == "low"
    assert parse(response_format={"type": "json_object"}).schema == '{"type":"object"}'
    assert parse(response_format={"type": "text"}).schema == ""


def test_functions_are_strict_only_if_asked() -> None:
    """Unlike in the Responses API, where strict is the default."""
    strict = {"type": "function", "function": {"name": "b", "strict": True}}
    loose, tight = parse(tools=[WEATHER, strict]).all_tools()
    assert (loose.name, loose.description, loose.parameters) == ("weather", "Now.", {"type": "object"})
    assert (loose.is_strict, tight.is_strict) == (False, True)


def test_custom_tools_with_a_grammar() -> None:
    """The grammar lies one level deeper than in the Responses API."""
    grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /x/"}}
    held = {"type": "custom", "custom": {"name": "held", "format": grammar}}
    free, tool = parse(tools=[PATCH, held]).all_tools()
    assert (free.is_custom, free.syntax, free.definition) == (True, "text", "")
    assert (tool.is_custom, tool.syntax, tool.definition) == (True, "lark", "start: /x/")


@pytest.mark.parametrize(
    ("given", "choice"),
    [
        ("auto", Choice()),
        ("none", Choice("none")),
        ("required", Choice("required")),
        ({"type": "function", "function": {"name": "weather"}}, Choice("required", frozenset({"weather"}))),
        ({"type": "custom", "custom": {"name": "patch"}}, Choice("required", frozenset({"patch"}))),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "function", "function": {"name": "weather"}}],
                },
            },
            Choice("required", frozenset({"weather"})),
        ),
    ],
)
def test_tool_choices(given: Any, choice: Choice) -> None:
    """Each shape in which a choice comes."""
    assert parse(tools=[WEATHER, PATCH], tool_choice=given).choice() == choice
