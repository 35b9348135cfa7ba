"""What a client may ask for, and how it is told what it may not."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.errors import ContextOverflow, ModelUnavailable, StartError, UsageError, VivaceError
from vivace.protocol.shapes.controls import parse_envelope, parse_interrupt, parse_steer
from vivace.protocol.shapes.items import MAX_DEPTH
from vivace.protocol.shapes.parsing import parse_create
from vivace.protocol.shapes.refusal import Refusal, body_of, frame_of, status_of


def parse(**fields: Any) -> Any:
    return parse_create(json.dumps(fields))


def parse_item(**fields: Any) -> Any:
    (item,) = parse(input=[fields]).items
    return item


def nested(depth: int) -> Any:
    return json.loads('{"a":' * depth + "1" + "}" * depth)


# ---- input ------------------------------------------------------------------------------------------


def test_a_string_is_a_message_of_the_users() -> None:
    """`input` may be plain text."""
    (item,) = parse(input="hi").items
    assert (item.role, item.text) == ("user", "hi")


def test_parts_of_text_are_joined() -> None:
    """Content may come in parts, as the SDKs send it, and as they give it back."""
    parts = [
        {"type": "input_text", "text": "a"},
        {"type": "output_text", "text": "b", "annotations": [], "logprobs": []},
        {"type": "refusal", "refusal": "c"},
    ]
    assert parse_item(role="user", content=parts).text == "abc"


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant"])
def test_every_role_may_speak(role: str) -> None:
    """All four of the API's."""
    assert parse_item(role=role, content="x").role == role


def test_a_call_and_its_output_are_history() -> None:
    """As they were given, with all their fields."""
    call = parse_item(
        type="function_call", id="fc_1", call_id="c", name="f", arguments='{"a":1}', status="completed"
    )
    assert (call.name, call.call_text) == ("f", '{"a":1}')
    output = parse_item(type="function_call_output", call_id="c", output="42")
    assert (output.call_id, output.output_text) == ("c", "42")


def test_a_custom_call_has_its_input() -> None:
    """Free-form text."""
    assert parse_item(type="custom_tool_call", call_id="c", name="patch", input="***").call_text == "***"
    assert parse_item(type="custom_tool_call_output", call_id="c", output="ok").output_text == "ok"


@pytest.mark.parametrize("arguments", ["{broken", "", "[1", {"a": 1}, None])
def test_malformed_arguments_in_old_history_pass(arguments: Any) -> None:
    """What a model once wrote badly must not fail every later turn."""
    text = parse_item(type="function_call", call_id="c", name="f", arguments=arguments).call_text
    assert text == (
        json.dumps(arguments, separators=(",", ":")) if arguments == {"a": 1} else arguments or ""
    )


def test_an_output_may_come_in_parts() -> None:
    """Text parts, joined; an object is given to the model as JSON."""
    parts = [{"type": "input_text", "text": "a"}, {"type": "output_text", "text": "b"}]
    assert parse_item(type="function_call_output", call_id="c", output=parts).output_text == "ab"
    assert parse_item(type="function_call_output", call_id="c", output={"a": 1}).output_text == '{"a":1}'


def test_reasoning_items_come_back() -> None:
    """With and without content; `encrypted_content` is passed on."""
    item = parse_item(
        type="reasoning",
        id="rs_1",
        summary=[{"type": "summary_text", "text": "s"}],
        content=[{"type": "reasoning_text", "text": "hm"}],
        encrypted_content="x",
    )
    assert (item.text, item.encrypted_content) == ("hm", "x")
    assert parse_item(type="reasoning", summary=[], content=None).text == ""


def test_what_a_response_gave_can_be_sent_back() -> None:
    """Fields that we have no use for do no harm."""
    item = parse_item(type="message", id="msg_1", role="assistant", status="completed", phase="x", content=[])
    assert item.role == "assistant"


def test_unknown_fields_are_passed_over() -> None:
    """Fields of the API that change nothing here do no harm."""
    assert parse(input="hi", safety_identifier="x", max_tool_calls=3, user="me").items[0].text == "hi"


def test_an_empty_warm_up_is_allowed() -> None:
    """A client may open with `generate: false` and nothing else."""
    assert parse(generate=False, input=[]).items == []
    assert parse(generate=False, input=None).items == []


def test_no_input_goes_with_a_previous_response() -> None:
    """To go on without a new word."""
    assert parse(previous_response_id="resp_1").items == []


# ---- what a request says of itself ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "is_generating"),
    [
        ({}, True),
        ({"generate": True}, True),
        ({"generate": None}, True),
        ({"generate": False}, False),
        ({"prompt_cache_options": {"prewarm": True}}, False),
        ({"prompt_cache_options": {"prewarm": False}}, True),
    ],
)
def test_both_ways_of_asking_for_a_warm_up(fields: dict[str, Any], is_generating: bool) -> None:
    """`generate: false`, or `prewarm`."""
    assert parse(input="x", **fields).is_generating is is_generating


def test_responses_are_stored_unless_they_shall_not_be() -> None:
    """`store` is true by default, as in the API."""
    assert parse(input="x").is_stored
    assert parse(input="x", store=None).is_stored
    assert not parse(input="x", store=False).is_stored


@pytest.mark.parametrize(
    ("fields", "tier"),
    [
        ({}, "realtime"),
        ({"service_tier": "priority"}, "realtime"),
        ({"service_tier": "flex"}, "background"),
        ({"background": True}, "background"),
    ],
)
def test_the_tier_is_how_much_hurry_there_is(fields: dict[str, Any], tier: str) -> None:
    """Background work and the cheap tiers give way."""
    assert parse(input="x", **fields).tier == tier


def test_a_schema_comes_from_the_text_format() -> None:
    """A JSON schema, any object, or nothing."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    format = {"type": "json_schema", "name": "n", "schema": schema, "strict": True}
    assert json.loads(parse(input="x", text={"format": format}).schema) == schema
    assert json.loads(parse(input="x", text={"format": {"type": "json_object"}}).schema) == {"type": "object"}
    assert parse(input="x", text={"format": {"type": "text"}, "verbosity": "low"}).schema == ""


def test_log_probabilities_are_asked_for_in_two_ways() -> None:
    """A number of the likeliest, or by `include`."""
    assert parse(input="x", top_logprobs=0).wants_logprobs
    assert parse(input="x", include=["message.output_text.logprobs"]).wants_logprobs
    assert not parse(input="x", include=["reasoning.encrypted_content"]).wants_logprobs


def test_stops_are_a_list() -> None:
    """One or several."""
    assert parse(input="x", stop="a").stops == ["a"]
    assert parse(input="x", stop=["a", "b"]).stops == ["a", "b"]


def test_what_codex_sends_is_understood() -> None:
    """Its whole request, as it was recorded."""
    request = parse(
        model="m",
        stream=True,
        input=[
            {
                "type": "additional_tools",
                "role": "developer",
                "tools": [
                    {
                        "type": "namespace",
                        "name": "functions",
                        "tools": [{"type": "function", "name": "shell", "parameters": {"type": "object"}}],
                    }
                ],
            },
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        ],
        tool_choice="auto",
        parallel_tool_calls=True,
        reasoning={"effort": "medium", "summary": "auto", "context": "x"},
        store=False,
        include=["reasoning.encrypted_content"],
        prompt_cache_key="k",
        client_metadata={"a": {"b": 1}},
    )
    (tool,) = request.all_tools()
    assert (tool.namespace, tool.name, request.effort) == ("functions", "shell", "medium")
    assert request.items[1].text == "hi"


# ---- what is refused --------------------------------------------------------------------------------

IMAGE = [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]
FILE_OUTPUT = [{"type": "function_call_output", "call_id": "c", "output": [{"type": "input_file"}]}]


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"input": 3}, "input", "invalid_value"),
        ({"input": "x", "temperature": 3}, "temperature", "invalid_value"),
        ({"input": "x", "max_output_tokens": 0}, "max_output_tokens", "invalid_value"),
        ({"input": "x", "stop": [""]}, "stop[0]", "invalid_value"),
        ({"input": "x", "seed": -1}, "seed", "invalid_value"),
        ({"input": "x", "seed": 1 << 70}, "seed", "invalid_value"),
        ({"input": "x", "top_logprobs": 21}, "top_logprobs", "invalid_value"),
        ({"input": "x", "truncation": "maybe"}, "truncation", "invalid_value"),
        ({"input": "x", "reasoning": {"effort": "huge"}}, "reasoning.effort", "invalid_value"),
        ({"input": "x", "metadata": {str(n): "" for n in range(17)}}, "metadata", "invalid_value"),
        ({"input": "x", "background": True, "store": False}, "store", "invalid_value"),
        ({"input": "x", "conversation": "conv_1"}, "conversation", "unsupported_parameter"),
        ({"input": "x", "prompt": {"id": "p"}}, "prompt", "unsupported_parameter"),
        ({"input": "x", "candidates": ["a"]}, "candidates", "invalid_value"),
        ({"input": "x", "is_provisional": True}, "is_provisional", "invalid_value"),
        ({"input": "x", "stream_id": ""}, "stream_id", "invalid_stream_id"),
        ({"input": "x", "tools": [{"type": "web_search"}]}, "tools[0].type", "unsupported_parameter"),
        ({"input": "x", "tool_choice": "required"}, "tool_choice", "invalid_value"),
        (
            {"input": "x", "text": {"format": {"type": "json_schema"}}},
            "text.format.schema",
            "missing_required_parameter",
        ),
        ({"input": [{"role": "pirate", "content": "x"}]}, "input[0].role", "invalid_value"),
        ({"input": [{"content": "x"}]}, "input[0].role", "missing_required_parameter"),
        ({"input": [{"type": "function_call"}]}, "input[0].name", "missing_required_parameter"),
        ({"input": [{"type": "function_call_output"}]}, "input[0].call_id", "missing_required_parameter"),
        ({"input": [{"type": "computer_call"}]}, "input[0].type", "unsupported_parameter"),
        ({"input": IMAGE}, "input[0].content[0].type", "unsupported_parameter"),
        ({"input": FILE_OUTPUT}, "input[0].output[0].type", "unsupported_parameter"),
        ({}, "input", "missing_required_parameter"),
        ({"generate": False, "candidates": ["a"]}, "input", "missing_required_parameter"),
    ],
)
def test_what_we_cannot_do_is_refused_by_name(fields: dict[str, Any], param: str, code: str) -> None:
    """A refusal names the field."""
    with pytest.raises(Refusal) as caught:
        parse(**fields)
    assert (caught.value.param, caught.value.code, caught.value.status) == (param, code, 400)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[" * 100_000, b'{"input":' + b"[" * 100_000, b'"\\ud800"', b"\xff", b"nul", b"[]"]
)
def test_hostile_json_is_refused(data: bytes) -> None:
    """Broken, deep or foreign JSON is a 400, never a crash."""
    with pytest.raises(Refusal) as caught:
        parse_create(data)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "function", "name": "f", "parameters": nested(MAX_DEPTH)}]},
        {"tool_choice": nested(MAX_DEPTH + 1)},
        {"text": {"format": {"type": "json_schema", "schema": nested(MAX_DEPTH + 1)}}},
        {"input": [{"type": "function_call", "name": "f", "arguments": nested(MAX_DEPTH + 1)}]},
        {"input": [{"type": "function_call_output", "call_id": "c", "output": nested(MAX_DEPTH + 1)}]},
        {"input": [{"type": "additional_tools", "tools": [nested(MAX_DEPTH)]}]},
    ],
)
def test_what_could_be_read_but_not_written_is_refused(fields: dict[str, Any]) -> None:
    """Depth is bounded well below where writing it again would fail."""
    with pytest.raises(Refusal, match="deep"):
        parse(**{"input": "x"} | fields)


def test_schemas_may_be_as_deep_as_schemas_are() -> None:
    """Fifty levels do no harm."""
    assert parse(input="x", tools=[{"type": "function", "name": "f", "parameters": nested(50)}]).all_tools()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
KINDS = st.sampled_from(["message", "function_call", "function_call_output", "reasoning", "additional_tools"])
ITEM = st.fixed_dictionaries(
    {"type": KINDS | JSON},
    optional={
        "role": st.sampled_from(["user", "developer"]) | JSON,
        "content": JSON,
        "name": st.text(max_size=5),
        "call_id": st.text(max_size=5),
        "arguments": JSON,
        "output": JSON,
        "tools": JSON,
    },
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "input": st.text(max_size=5) | st.lists(ITEM, max_size=3) | JSON,
        "model": JSON,
        "stop": JSON,
        "candidates": JSON,
        "generate": JSON,
        "seed": JSON,
        "metadata": JSON,
        "tools": JSON,
        "tool_choice": JSON,
        "text": JSON,
        "reasoning": JSON,
        "stream_id": JSON,
        "instructions": JSON,
    },
)


@given(FIELDS)
def test_any_json_is_parsed_or_refused(fields: dict[str, Any]) -> None:
    """Nothing but a `Refusal` comes out of a bad request, and a good one can be used."""
    try:
        request = parse(**fields)
    except Refusal:
        return
    for item in request.items:
        assert isinstance(item.text + item.call_text + item.output_text, str)
    assert all(request.stops)
    assert isinstance(request.schema, str)
    assert request.choice().mode in ("auto", "none", "required")


# ---- messages on a WebSocket ------------------------------------------------------------------------


def test_an_envelope_is_read_whatever_is_in_it() -> None:
    """Type and lane, although the rest is wrong."""
    envelope = parse_envelope('{"type":"response.create","temperature":"hot","stream_id":"a"}')
    assert (envelope.type, envelope.stream_id) == ("response.create", "a")


def test_an_interrupt_may_have_a_mode() -> None:
    """Codex's discards what is not whole."""
    assert (
        parse_interrupt('{"response_id":"x","mode":"discard_partial_items"}').mode == "discard_partial_items"
    )
    assert parse_interrupt('{"response_id":"x"}').mode == ""


def test_a_steer_is_read_as_it_came() -> None:
    """Its input as JSON, to be given back as it was, and the fields that it must not have."""
    asked = parse_steer('{"type":"response.steer","previous_response_id":"x","input":[ 1.50 ],"b":1,"a":2}')
    assert (asked.previous_response_id, bytes(asked.input), asked.unknown) == ("x", b"[ 1.50 ]", ["a", "b"])


# ---- errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (UsageError("no"), 400, "invalid_request_error"),
        (ContextOverflow("no"), 400, "invalid_request_error"),
        (ModelUnavailable("no"), 404, "invalid_request_error"),
        (StartError("no"), 503, "server_error"),
        (VivaceError("no"), 500, "server_error"),
        (Refusal("no", code="x", status=413), 413, "invalid_request_error"),
    ],
)
def test_errors_have_a_status_and_a_type(error: VivaceError, status: int, kind: str) -> None:
    """Each typed error is one status on the wire; a frame always carries it, and its lane if it has one."""
    assert (status_of(error), body_of(error).type) == (status, kind)
    assert (frame_of(error).status, frame_of(error, "a").stream_id) == (status, "a")
