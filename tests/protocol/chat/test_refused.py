"""What a client may not ask for over chat completions, and how it is told."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vivace.protocol.chat.requests import parse_chat
from vivace.protocol.shapes.refusal import Refusal
from vivace.protocol.shapes.requests import ResponseCreate

HI = [{"role": "user", "content": "hi"}]
WEATHER = {"type": "function", "function": {"name": "weather"}}


def parse(messages: Any = HI, **fields: Any) -> ResponseCreate:
    return parse_chat(json.dumps({"messages": messages} | fields)).create


def refusal(messages: Any = HI, **fields: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        parse(messages, **fields)
    return caught.value


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"n": 2}, "n", "unsupported_parameter"),
        ({"functions": [{"name": "f"}]}, "functions", "unsupported_parameter"),
        ({"function_call": "auto"}, "function_call", "unsupported_parameter"),
        ({"modalities": ["text", "audio"]}, "modalities", "unsupported_parameter"),
        ({"web_search_options": {}}, "web_search_options", "unsupported_parameter"),
        ({"top_logprobs": 3}, "top_logprobs", "invalid_value"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "invalid_value"),
        ({"temperature": 3}, "temperature", "invalid_value"),
        ({"max_tokens": 0}, "max_tokens", "invalid_value"),
        ({"max_completion_tokens": -1}, "max_completion_tokens", "invalid_value"),
        ({"stop": [""]}, "stop[0]", "invalid_value"),
        ({"logit_bias": {"1": 101}}, "logit_bias[...]", "invalid_value"),
        ({"metadata": {str(number): "" for number in range(17)}}, "metadata", "invalid_value"),
        ({"reasoning_effort": "huge"}, "reasoning_effort", "invalid_value"),
        ({"response_format": {"type": "yaml"}}, "response_format.type", "invalid_value"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}},
            "response_format.json_schema.schema",
            "missing_required_parameter",
        ),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "unsupported_parameter"),
        (
            {"tools": [{"type": "function", "name": "f"}]},
            "tools[0].function",
            "missing_required_parameter",
        ),
        ({"tools": [{"type": "custom"}]}, "tools[0].custom", "missing_required_parameter"),
        (
            {"tools": [{"type": "function", "function": {"name": "a b"}}]},
            "tools[0].function.name",
            "invalid_value",
        ),
        ({"tools": [WEATHER, WEATHER]}, "tools", "invalid_value"),
        ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
        ({"tool_choice": "any"}, "tool_choice", "invalid_value"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.function.name", "missing_required_parameter"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice.type", "unsupported_parameter"),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "nope"}}},
            "tool_choice",
            "invalid_value",
        ),
    ],
)
def test_a_field_that_cannot_be_obeyed_is_refused_by_its_name(
    fields: dict[str, Any], param: str, code: str
) -> None:
    """The name is the chat's, also where the field is checked as one of a response."""
    error = refusal(**fields)
    assert (error.param, error.code, error.status) == (param, code, 400)
    assert "output_tokens" not in error.message
    assert "text.format" not in error.message


@pytest.mark.parametrize(
    ("messages", "param", "code"),
    [
        ([], "messages", "missing_required_parameter"),
        (None, "messages", "missing_required_parameter"),
        ("hi", "messages", "invalid_value"),
        ([{"content": "x"}], "messages[0]", "invalid_value"),
        ([{"role": "pirate", "content": "x"}], "messages[0].role", "invalid_value"),
        ([*HI, {"role": "user"}], "messages[1].content", "missing_required_parameter"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
            "messages[0].content[0].type",
            "unsupported_parameter",
        ),
        (
            [{"role": "tool", "tool_call_id": "1", "content": [{"type": "input_audio"}]}],
            "messages[0].content[0].type",
            "unsupported_parameter",
        ),
        ([{"role": "tool", "content": "x"}], "messages[0].tool_call_id", "missing_required_parameter"),
        (
            [{"role": "function", "name": "f", "content": "x"}],
            "messages[0].role",
            "unsupported_parameter",
        ),
        (
            [{"role": "assistant", "function_call": {"name": "f", "arguments": ""}}],
            "messages[0].function_call",
            "unsupported_parameter",
        ),
        (
            [{"role": "assistant", "audio": {"id": "a"}}],
            "messages[0].audio",
            "unsupported_parameter",
        ),
        (
            [{"role": "assistant", "tool_calls": [{"id": "1", "function": {"arguments": ""}}]}],
            "messages[0].tool_calls[0].function.name",
            "missing_required_parameter",
        ),
    ],
)
def test_a_message_that_cannot_be_read_is_refused_by_its_place(messages: Any, param: str, code: str) -> None:
    """Text only, and nothing of the shapes that OpenAI gave up."""
    error = refusal(messages)
    assert (error.param, error.code, error.status) == (param, code, 400)


@pytest.mark.parametrize("name", ["functions", "function_call"])
def test_who_uses_what_was_given_up_learns_what_to_use(name: str) -> None:
    """A hint comes with the refusal."""
    assert "tools" in refusal(**{name: "auto"}).hint


@pytest.mark.parametrize("data", [b"", b"{", b'{"messages":' + b"[" * 100_000, b"\xff", b"[]", b'"\\ud800"'])
def test_hostile_json_is_refused(data: bytes) -> None:
    """Broken, deep or foreign JSON is a 400, never a crash."""
    with pytest.raises(Refusal) as caught:
        parse_chat(data)
    assert caught.value.status == 400


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
ROLES = st.sampled_from(["system", "user", "assistant", "tool", "function"])
MESSAGE_FIELDS = st.sampled_from(["content", "tool_calls", "tool_call_id", "refusal", "reasoning", "audio"])
FIELDS = st.sampled_from(
    [
        "messages",
        "stop",
        "seed",
        "tools",
        "tool_choice",
        "response_format",
        "logit_bias",
        "n",
        "prediction",
        "stream_options",
        "max_tokens",
        "metadata",
        "logprobs",
        "top_logprobs",
        "reasoning_effort",
        "top_k",
    ]
)
MESSAGES = st.lists(
    st.builds(lambda role, rest: rest | {"role": role}, ROLES, st.dictionaries(MESSAGE_FIELDS, JSON)),
    max_size=3,
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(FIELDS, JSON), MESSAGES)
def test_any_json_is_parsed_or_refused(fields: dict[str, Any], messages: list[Any]) -> None:
    """Nothing but a `Refusal` comes out of a bad request, and of a good one a request with items."""
    try:
        request = parse(**({"messages": messages} | fields))
    except Refusal:
        return
    assert request.items
    assert all(isinstance(item.text + item.call_text + item.output_text, str) for item in request.items)
