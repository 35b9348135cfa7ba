"""What a key can learn of others: nothing of their numbers, their text or the owner's files, on no route."""

import json
import secrets
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.server.serving import fetch, script, send, until, until_ready
from tests.server.transport.attacks.attacking import TARGETS
from vivace.client import warm
from vivace.client.warm import ServerAddress
from vivace.config import Settings
from vivace.server.store.sqlite import SqliteStore
from vivace.server.transport.access.keys import add_key

COUNTED = ("request_success_total", "generation_tokens_total", "prompt_tokens_total", "num_requests_running")


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    folder = tmp_path_factory.mktemp("tenants")
    model = script(folder, replies={"long": "word " * 150, "": "Hello there."}, step_ms=2)
    settings = Settings(
        cache_dir=folder / "cache", state_dir=folder, port=0, threads=1, model=model, allow_scripted=True
    )
    warm.ensure_server(settings)
    until_ready(settings)
    yield settings
    assert warm.stop_server(settings)


@pytest.fixture
def owner(settings: Settings) -> ServerAddress:
    return warm.ensure_server(settings)


@pytest.fixture
async def tenants(settings: Settings, owner: ServerAddress) -> tuple[ServerAddress, ServerAddress]:
    """Two keys, of two tenants that nobody else has."""
    async with SqliteStore(settings.database) as store:
        made = [(await add_key(store, f"t{secrets.token_hex(4)}"))[1] for _ in range(2)]
    one, other = (msgspec.structs.replace(owner, token=secret) for secret in made)
    return one, other


def page(address: ServerAddress) -> str:
    answer = send(address, "GET", "/metrics")
    text = answer.read().decode()
    answer.vivace_connection.close()  # type: ignore[attr-defined]
    assert answer.status == 200
    return text


def counted(address: ServerAddress) -> dict[str, float]:
    """The sums of what `/metrics` counts."""
    sums = dict.fromkeys(COUNTED, 0.0)
    for line in page(address).splitlines():
        name = line.removeprefix("vivace:").partition("{")[0]
        if name in sums and not line.startswith("#"):
            sums[name] += float(line.rpartition(" ")[2])
    return sums


def say(address: ServerAddress, text: str = "hi", **fields: Any) -> Any:
    status, answer = fetch(address, "POST", "/v1/responses", {"input": text} | fields)
    assert status == 200, answer
    return answer


def test_a_key_sees_its_own_numbers(
    tenants: tuple[ServerAddress, ServerAddress], owner: ServerAddress
) -> None:
    """Metrics, history and status count the turns of its tenant; the owner's count everybody's."""
    one, other = tenants
    before = counted(owner)
    for address in (one, one, other, owner):
        say(address)
    assert counted(one)["request_success_total"] == 2
    assert counted(other)["request_success_total"] == 1
    assert counted(owner)["request_success_total"] == before["request_success_total"] + 4
    turns = [sum(each["turns"] for each in history(address)["samples"]) for address in (one, other)]
    assert turns == [2, 1]
    assert sum(each["turns"] for each in history(owner)["samples"]) >= 4
    states = [fetch(address, "GET", "/v1/vivace/status")[1] for address in (one, other)]
    generated = [state["engine"]["tokens_generated"] for state in states]
    assert generated[0] == 2 * generated[1] > 0


def history(address: ServerAddress) -> Any:
    return fetch(address, "GET", "/v1/vivace/history")[1]


def test_a_turn_that_runs_is_seen_by_its_tenant_only(
    tenants: tuple[ServerAddress, ServerAddress], owner: ServerAddress
) -> None:
    """Running, waiting and answers are nobody else's business."""
    one, other = tenants
    running = say(one, "long", background=True)
    shown = [fetch(address, "GET", "/v1/vivace/status")[1] for address in (one, other, owner)]
    assert [each["answers"] for each in shown] == [1, 0, 1]
    assert counted(other)["num_requests_running"] == 0
    assert until(lambda: counted(one)["num_requests_running"] == 1)
    assert fetch(one, "POST", f"/v1/responses/{running['id']}/cancel")[0] == 200


def test_no_route_tells_a_key_of_files(
    tenants: tuple[ServerAddress, ServerAddress], owner: ServerAddress, settings: Settings
) -> None:
    """The log, the token and the database are the owner's; only he is told where they are."""
    assert fetch(owner, "GET", "/v1/vivace/status")[1]["log_file"] == str(settings.run_dir / "server.log")
    for target in TARGETS:
        if target.method == "UPGRADE":
            continue
        path = target.path.replace("{response_id}", "resp_x").replace("{name:path}", "x")
        answer = send(tenants[0], target.method, path, {})
        text = answer.read().decode("utf-8", "replace")
        answer.vivace_connection.close()  # type: ignore[attr-defined]
        for secret in ("server.log", str(settings.run_dir), str(settings.token_file), "vivace.db"):
            assert secret not in text, (target.method, path)


def test_what_one_has_said_is_cached_for_nobody_else(
    tenants: tuple[ServerAddress, ServerAddress], owner: ServerAddress
) -> None:
    """The same prompt is found in the KV of its tenant, and in no other's, however it is asked."""
    text = f"{secrets.token_hex(200)} " * 3
    cached = [cached_of(say(address, text)) for address in (tenants[0], tenants[0], tenants[1], owner)]
    assert cached[1] > cached[0]
    assert cached[2] < cached[1]
    assert cached[3] < cached[1]
    key = {"prompt_cache_key": "shared"}
    other = f"{secrets.token_hex(200)} " * 3
    first, second = say(tenants[0], other, **key), say(tenants[1], other, **key)
    assert cached_of(second) <= cached_of(first)


def cached_of(response: Any) -> int:
    return int(response["usage"]["input_tokens_details"]["cached_tokens"])


def test_what_is_not_there_and_what_is_anothers_look_alike(
    tenants: tuple[ServerAddress, ServerAddress],
) -> None:
    """Byte for byte but for the id that was asked for."""
    theirs = say(tenants[0])["id"]
    nobodys = f"resp_{secrets.token_hex(16)}"
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")):
        answers = [fetch(tenants[1], method, f"/v1/responses/{each}{path}") for each in (theirs, nobodys)]
        told = [json.dumps(answer).replace(theirs, "ID").replace(nobodys, "ID") for answer in answers]
        assert told[0] == told[1]
        assert answers[0][0] == 404
