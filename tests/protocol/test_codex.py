"""What the Codex CLI says of its requests."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.protocol.codex import TURN, is_title
from vivace.protocol.shapes.parsing import parse_create

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
    assert not is_title(metadata)
