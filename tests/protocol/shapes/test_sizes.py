"""What is too large is refused before it is parsed, and nothing else is."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.protocol.chat.requests import parse_chat
from vivace.protocol.shapes import sizes
from vivace.protocol.shapes.parsing import MAX_ITEMS, parse_create
from vivace.protocol.shapes.refusal import Refusal
from vivace.protocol.shapes.sizes import MAX_PIECES, check_pieces

TEXTS = st.text() | st.sampled_from(['"', "\\", '\\"', '{"a": [', "]}", "\n" * 20, "\\" * 5, "{" * 50])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=30,
)


def pieces_of(value: Any) -> int:
    match value:
        case dict():
            return 1 + len(value) + sum(map(pieces_of, value.values()))
        case list():
            return 1 + sum(map(pieces_of, value))
    return isinstance(value, str)


def is_refused(text: str | bytes) -> bool:
    try:
        check_pieces(text)
    except Refusal:
        return True
    return False


@given(JSON, st.booleans(), st.sampled_from([1, 2, 4096]))
def test_pieces_are_counted_as_a_parser_would(value: Any, is_ascii: bool, stretch: int) -> None:
    """Strings, objects and arrays; what is inside of a string is none, however it is written."""
    count, text = pieces_of(value), json.dumps(value, ensure_ascii=is_ascii)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizes, "_STRING", sizes.string_pattern(stretch))
        for limit in {max(0, count - 1), count, count + 1}:
            patch.setattr(sizes, "MAX_PIECES", limit)
            assert is_refused(text) == is_refused(text.encode()) == (count > limit)


@given(st.binary() | st.text(alphabet='"\\{[]}a\n').map(str.encode))
def test_no_bytes_are_a_mistake_of_ours(data: bytes) -> None:
    """What is no JSON is counted as far as that goes; saying what is wrong with it is the parser's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizes, "MAX_PIECES", 3)
        is_refused(data)


@pytest.mark.parametrize("parse", [parse_create, parse_chat])
def test_braces_in_a_text_are_no_objects(parse: Any) -> None:
    """A client may send much code."""
    text = 'if (a[1]) { return "x"; }\n' * (MAX_PIECES // 2)
    body = {"input": text} if parse is parse_create else {"messages": [{"role": "user", "content": text}]}
    parse(json.dumps(body))


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user"}] * MAX_PIECES},
        {"messages": [{"role": "assistant", "tool_calls": [{}] * MAX_PIECES}]},
        {"messages": [{"role": "assistant", "audio": [[]] * MAX_PIECES}]},
        {"messages": [{"role": "user", "content": "x"}], "model": ["xyz"] * MAX_PIECES},
    ],
    ids=lambda body: str(body)[:60],
)
def test_a_chat_of_very_many_small_things_is_refused_whole(body: Any) -> None:
    """Before any of them is made."""
    with pytest.raises(Refusal) as caught:
        parse_chat(json.dumps(body))
    assert (caught.value.status, caught.value.code) == (413, "request_too_large")


@pytest.mark.parametrize(
    "name",
    ["tools", "tool_choice", "response_format", "metadata", "logit_bias", "stop", "functions", "modalities"],
)
def test_a_field_of_a_chat_that_is_too_large_is_refused_by_name(name: str) -> None:
    """Whatever is in it."""
    body = {"messages": [{"role": "user", "content": "x"}], name: "x" * (sizes.MAX_FIELD_BYTES + 1)}
    with pytest.raises(Refusal) as caught:
        parse_chat(json.dumps(body))
    assert (caught.value.status, caught.value.param) == (413, name)


CALL = {"id": "c", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("messages", "is_too_many"),
    [
        ([{"role": "user", "content": "x"}] * MAX_ITEMS, False),
        ([{"role": "user", "content": "x"}] * (MAX_ITEMS + 1), True),
        ([{"role": "assistant", "tool_calls": [CALL] * MAX_ITEMS}], False),
        ([{"role": "assistant", "tool_calls": [CALL] * (MAX_ITEMS + 1)}], True),
    ],
    ids=["most", "too many", "most calls", "too many calls"],
)
def test_a_chat_has_as_many_messages_as_an_input_has_items(messages: Any, is_too_many: bool) -> None:
    """Each call counts as one, since it becomes one."""
    body = json.dumps({"messages": messages})
    if not is_too_many:
        assert len(parse_chat(body).create.items) == MAX_ITEMS
        return
    with pytest.raises(Refusal) as caught:
        parse_chat(body)
    assert (caught.value.status, caught.value.param) == (400, "messages")
