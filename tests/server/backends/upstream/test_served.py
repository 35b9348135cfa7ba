"""One of our servers behind another: an upstream like any stranger's, seen from the client."""

from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from tests.client.test_warm import Start
from tests.server.serving import fetch, script, status_of, until
from tests.server.turns.test_steering import ENDS, Socket
from vivace.client.warm import ServerAddress, ensure_server
from vivace.config import Settings

CALL = '<tool_call>\n{"name": "look", "arguments": {"at": "it"}}\n</tool_call>'
LOOK = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object", "properties": {}},
    "strict": False,
}


@pytest.fixture
def far(tmp_path: Path, served: Settings) -> str:
    """A model that only the far server (the module's own) knows how to play."""
    assert served
    replies = {"seen": "I saw it.", "call": CALL, "turn": "Turned.", "": "x" * 400}
    return script(tmp_path, "far", replies=replies, step_ms=3)


@pytest.fixture
def known(tmp_path: Path, address: ServerAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on servers have the far one as an upstream."""
    folder = tmp_path / "config" / "vivace"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(f'[upstreams.far]\nurl = "{address.url}"\nkey_env = "FAR_KEY"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder.parent))
    monkeypatch.setenv("FAR_KEY", address.token)


@pytest.fixture
def near(start: Start, tmp_path: Path, known: None) -> ServerAddress:
    """A server that has the far one as an upstream, and a model of its own."""
    del known
    return ensure_server(start(model=script(tmp_path, "near", replies={"": "Near."})))


def test_a_name_chooses_the_server(near: ServerAddress, far: str) -> None:
    """NAME/MODEL is answered by the upstream, any other name here; its models are listed."""
    _, answer = fetch(near, "POST", "/v1/responses", {"input": "hi"})
    assert answer["output"][0]["content"][0]["text"] == "Near."
    _, answer = fetch(near, "POST", "/v1/responses", {"model": f"far/{far}", "input": "turn"})
    assert answer["output"][0]["content"][0]["text"] == "Turned."
    assert answer["usage"]["output_tokens"] > 0
    until(lambda: any(m["id"].startswith("far/") for m in fetch(near, "GET", "/v1/models")[1]["data"]))


@pytest.mark.usefixtures("known")
def test_the_default_model_may_be_an_upstream_s(start: Start, far: str) -> None:
    """Then no engine is loaded or waited for, and who names no model is answered from there."""
    settings = start(model=f"far/{far}")
    near = ensure_server(settings)
    assert fetch(near, "GET", "/readyz")[0] == 200
    _, answer = fetch(near, "POST", "/v1/responses", {"input": "turn"})
    assert answer["output"][0]["content"][0]["text"] == "Turned."
    assert status_of(settings).engine.pid is None


def test_a_tool_round_through_an_upstream(near: ServerAddress, far: str) -> None:
    """The call comes back as an item; its output continues the conversation that was stored here."""
    body = {"model": f"far/{far}", "tools": [LOOK]}
    _, first = fetch(near, "POST", "/v1/responses", body | {"input": "call"})
    (call,) = first["output"]
    assert (call["name"], call["arguments"]) == ("look", '{"at": "it"}')
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "seen"}
    more = body | {"input": [output], "previous_response_id": first["id"]}
    _, second = fetch(near, "POST", "/v1/responses", more)
    assert second["output"][0]["content"][0]["text"] == "I saw it."


async def test_steering_restarts_an_upstream_with_the_partial(
    near: ServerAddress, far: str, served: Settings
) -> None:
    """What was said so far stays in the conversation, and the far server stops at once."""
    headers = {"Authorization": f"Bearer {near.token}"}
    async with connect(near.socket_url, additional_headers=headers, proxy=None) as connection:
        socket = Socket(connection)
        await socket.say("response.create", model=f"far/{far}", input="go")
        first = await socket.until_said(5)
        await socket.say("response.steer", previous_response_id=first, input="turn")
        ended = await socket.until_type(*ENDS)
        assert ended["response"]["incomplete_details"]["reason"] == "steered"
        done = await socket.until_type(*ENDS)
        assert done["response"]["output"][0]["content"][0]["text"] == "Turned."
        items = fetch(near, "GET", f"/v1/responses/{done['response']['id']}/input_items?order=asc")[1]
        texts = [item["content"][0]["text"] for item in items["data"]]
        assert texts == ["go", socket.text(first), "turn"]
    until(lambda: status_of(served).engine.turns == 0)


def test_an_unknown_previous_response_is_the_same_error_everywhere(near: ServerAddress, far: str) -> None:
    """400 and one code, whether the model is here or an upstream's."""
    for model in (f"far/{far}", None):
        body = {"model": model, "input": "hi", "previous_response_id": "resp_unknown"}
        status, answer = fetch(near, "POST", "/v1/responses", body)
        assert (status, answer["error"]["code"]) == (400, "previous_response_not_found")


def test_an_upstream_that_is_away_is_named(near: ServerAddress, tmp_path: Path) -> None:
    """A model that nobody serves is a 404 with what to do."""
    status, answer = fetch(
        near, "POST", "/v1/responses", {"model": f"nowhere/{tmp_path.name}", "input": "hi"}
    )
    assert (status, answer["error"]["code"]) == (404, "model_not_found")


def test_anthropics_api_through_an_upstream(near: ServerAddress, far: str) -> None:
    """A round of tools as messages; how long a prompt is there is a guess."""
    tool = {"name": "look", "input_schema": LOOK["parameters"]}
    body = {"model": f"far/{far}", "max_tokens": 100, "tools": [tool]}
    question = {"role": "user", "content": "call"}
    _, first = fetch(near, "POST", "/v1/messages", body | {"messages": [question]})
    (used,) = first["content"]
    assert (used["name"], used["input"], first["stop_reason"]) == ("look", {"at": "it"}, "tool_use")
    result = {"type": "tool_result", "tool_use_id": used["id"], "content": "seen"}
    history = [question, {"role": "assistant", "content": [used]}, {"role": "user", "content": [result]}]
    _, second = fetch(near, "POST", "/v1/messages", body | {"messages": history})
    assert second["content"] == [{"type": "text", "text": "I saw it."}]
    status, counted = fetch(near, "POST", "/v1/messages/count_tokens", body | {"messages": history})
    assert (status, counted["input_tokens"] > 0) == (200, True)
