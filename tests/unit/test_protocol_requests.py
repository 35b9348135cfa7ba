"""What a client may ask for, and how it is told what it may not."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.errors import ContextOverflow, ModelUnavailable, StartError, UsageError, VivaceError
from vivace.protocol.refusal import Refusal, body_of, frame_of, status_of
from vivace.protocol.requests import parse_create


def parse(**fields: Any) -> Any:
    return parse_create(json.dumps(fields))


def test_a_string_is_a_message_of_the_users() -> None:
    """`input` may be plain text."""
    (item,) = parse(input="hi").items
    assert (item.role, item.text) == ("user", "hi")


def test_parts_of_text_are_joined() -> None:
    """Content may come in parts, as the SDKs send it."""
    parts = [{"type": "input_text", "text": "a"}, {"type": "output_text", "text": "b", "annotations": []}]
    (item,) = parse(input=[{"role": "user", "content": parts}]).items
    assert item.text == "ab"


def test_unknown_fields_are_passed_over() -> None:
    """Fields of the API that change nothing here do no harm."""
    request = parse(input="hi", reasoning={"effort": "low"}, include=[], prompt_cache_key="k", tools=[])
    assert request.items[0].text == "hi"


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"input": 3}, "input", "invalid_value"),
        ({"input": "x", "temperature": 3}, "temperature", "invalid_value"),
        ({"input": "x", "max_output_tokens": 0}, "max_output_tokens", "invalid_value"),
        ({"input": "x", "stop": [""]}, "stop[0]", "invalid_value"),
        ({"input": "x", "seed": -1}, "seed", "invalid_value"),
        ({"input": "x", "seed": 1 << 70}, "seed", "invalid_value"),
        ({"input": "x", "tools": [{"type": "function"}]}, "tools", "unsupported_parameter"),
        ({"input": "x", "background": True}, "background", "unsupported_parameter"),
        ({"input": "x", "candidates": ["a"]}, "candidates", "invalid_value"),
        ({"input": [{"role": "pirate", "content": "x"}]}, "input[0].role", "invalid_value"),
        ({"input": [{"content": "x"}]}, "input[0].role", "missing_required_parameter"),
        ({"input": [{"type": "function_call"}]}, "input[0].type", "unsupported_parameter"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "input[0].content[0].type",
            "unsupported_parameter",
        ),
        ({}, "input", "missing_required_parameter"),
        ({"generate": False, "candidates": ["a"]}, "input", "missing_required_parameter"),
    ],
)
def test_what_we_cannot_do_is_refused_by_name(fields: dict[str, Any], param: str, code: str) -> None:
    """A refusal names the field."""
    with pytest.raises(Refusal) as caught:
        parse(**fields)
    assert (caught.value.param, caught.value.code, caught.value.status) == (param, code, 400)


def test_an_empty_warm_up_is_allowed() -> None:
    """A client may open with `generate: false` and nothing else."""
    assert parse(generate=False, input=[]).items == []


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[" * 100_000, b'{"input":' + b"[" * 100_000, b'"\\ud800"', b"\xff", b"nul", b"[]"]
)
def test_hostile_json_is_refused(data: bytes) -> None:
    """Broken, deep or foreign JSON is a 400, never a crash."""
    with pytest.raises(Refusal) as caught:
        parse_create(data)
    assert caught.value.status == 400


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
FIELDS = st.sampled_from(
    [
        "input",
        "model",
        "stop",
        "candidates",
        "generate",
        "seed",
        "metadata",
        "tools",
        "stream_id",
        "instructions",
    ]
)


@given(st.dictionaries(FIELDS, JSON))
def test_any_json_is_parsed_or_refused(fields: dict[str, Any]) -> None:
    """Nothing but a `Refusal` comes out of a bad request."""
    try:
        request = parse(**fields)
    except Refusal:
        return
    assert all(isinstance(item.text, str) for item in request.items)
    assert all(request.stops)


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
    """Each typed error is one status on the wire; a frame always carries it."""
    assert (status_of(error), body_of(error).type) == (status, kind)
    assert frame_of(error).status == status
