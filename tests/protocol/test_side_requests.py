"""Requests that clients send beside a turn: which give way to it, and which do not."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.protocol.shapes.parsing import parse_create
from vivace.protocol.side_requests import TURN, is_side_request

# As Codex CLI 0.166.0 sends them, without the ids.
USERS = {"request_kind": "turn", "thread_source": "user", "turn_trigger": "user", "window_number": 0}
TITLES = {"request_kind": "turn", "thread_source": "thread_title", "sandbox_mode": "read-only"}


def tier_of(said: Any, **fields: Any) -> str:
    body = {"input": "hi", "client_metadata": {"turn_id": "x", TURN: said}}
    return parse_create(json.dumps(body | fields)).tier


def test_a_title_gives_way_to_the_users_turn() -> None:
    """Codex asks for both at once; only one of them is waited for."""
    assert tier_of(json.dumps(TITLES)) == "background"
    assert tier_of(json.dumps(USERS)) == "realtime"
    assert parse_create(b'{"input": "hi"}').tier == "realtime"


@pytest.mark.parametrize(
    "said",
    [
        None,
        7,
        "",
        "thread_title",
        "[]",
        '{"thread_source": null}',
        '{"thread_source": ["thread_title"]}',
        '{"thread_source": "thread_title"',
        "[" * 10_000,
        TITLES,
        json.dumps(TITLES | {"padding": "x" * 20_000}),
    ],
    ids=lambda said: str(said)[:30],
)
def test_what_is_not_understood_is_passed_over(said: Any) -> None:
    """A turn runs as it would without it."""
    assert tier_of(said) == "realtime"
    assert tier_of(said, service_tier="flex") == "background"


@given(st.dictionaries(st.text() | st.just(TURN), st.text() | st.integers() | st.none() | st.binary()))
def test_no_metadata_is_a_mistake_of_ours(metadata: dict[str, Any]) -> None:
    """Whatever clients put there."""
    assert not is_side_request(metadata, "", None, has_tools=False)


def tier(**body: Any) -> str:
    return parse_create(json.dumps({"input": "hi"} | body)).tier


def form(*names: str) -> Any:
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}}
    return {"format": {"type": "json_schema", "name": "x", "schema": schema}}


def test_claude_codes_title_gives_way() -> None:
    """A schema for a title and no tools. With tools, or more to say, somebody waits."""
    tool = {"type": "function", "name": "look"}
    assert tier(text=form("title"), tools=[]) == "background"
    assert tier(text=form("title"), tools=[tool]) == "realtime"
    assert tier(text=form("title", "body")) == "realtime"
    assert tier(text=form()) == "realtime"


@pytest.mark.parametrize(
    "system",
    [
        "You are a title generator. You output a title.",
        "\nYou are now acting as the managed memory extraction subagent for something.",
    ],
)
def test_other_clients_side_requests_give_way(system: str) -> None:
    """opencode's and Qwen Code's are known by their system text, wherever it stands."""
    assert tier(instructions=system) == "background"
    said = [{"role": "system", "content": system}, {"role": "user", "content": "hi"}]
    assert tier(input=said) == "background"
    assert tier(input=system) == "realtime"  # the user's own words
